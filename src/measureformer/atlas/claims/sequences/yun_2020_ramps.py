"""Softmax and ReLUs without a clamp: the error grows with the width of the ramps, linearly, and vanishes with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.sequences.yun import compile_yun

CELLS = 4
POWERS = (1, 2)


@dataclass(frozen=True)
class Config:
    points: int = 1000
    widest: int = 9
    narrowest: int = 19
    """Ramps have widths 2^−widest, …, 2^−narrowest."""


@once
def _excess(key: Key, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Widths e; d_p(f, g_e)^p − d_p(f, g)^p, (widths, powers); and the same over its bound.

    The networks differ on ramps only, so the first token lies on one. A sequence with both on ramps counts half.
    """
    rng, widths = generator(key), 2.0 ** -np.arange(config.widest, config.narrowest + 1, 2.0)
    cells, place, second = rng.integers(CELLS, size=config.points), *rng.uniform(size=(2, config.points))
    excess, shares = np.empty((2, len(widths), len(POWERS)))
    for i, e in enumerate(widths):
        net = compile_yun(wave, d=1, n=2, delta=1 / CELLS, ramp=float(e))
        X = np.stack([(cells + 1) / CELLS - e * place, second], axis=1)[..., None]
        count = 1 + (CELLS * second % 1 > 1 - CELLS * e)
        F, soft, hard = wave(X), net.run(X, "soft"), net.run(X, "hard")
        for j, p in enumerate(POWERS):
            more = ((np.abs(soft - F) ** p - np.abs(hard - F) ** p).sum(axis=(1, 2)) / count).mean()
            budget = net.error_budget(p, points=100)
            excess[i, j] = 2 * CELLS * e * more
            shares[i, j] = excess[i, j] / budget.ramps_part["soft"] ** p
    return widths, excess, shares


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure(key: Key, config: Config, variant: str) -> Outcome:
    widths, excess, shares = _excess(key, config)
    if variant == "constant":
        excess = np.broadcast_to(excess[0], excess.shape)
    elif variant == "root":
        excess = np.sqrt(excess)
    elif variant == "bound-of-the-clamp":
        net = compile_yun(wave, d=1, n=2, delta=1 / CELLS)
        parts = [net.error_budget(p, points=100).ramps_part for p in POWERS]
        shares = shares * np.array(
            [(part["soft"] / part["clamped"]) ** p for part, p in zip(parts, POWERS, strict=True)]
        )
    checks = (
        *(
            Check(
                f"p = {p}: exponent of the width in the excess of d_p^p",
                _slope(widths, excess[:, j]),
                low=0.95,
                high=1.05,
                rejected_by=("constant", "root"),
            )
            for j, p in enumerate(POWERS)
        ),
        Check("largest excess of d_p^p over its bound", shares.max(), high=1, rejected_by="bound-of-the-clamp"),
        Check("p = 1: excess at the narrowest ramps", excess[-1, 0], high=0.03, rejected_by=("constant", "root")),
    )
    return Outcome(checks, _figure(widths, excess) if variant == "claim" else None)


def _figure(widths: np.ndarray, excess: np.ndarray) -> Figure:
    wrong = np.full(len(widths), excess[0, 0])
    return Figure(
        "Ramps without a clamp",
        "width e of the ramps",
        "excess of d_p^p over that with jumps",
        (
            *(Series(f"p = {p}", widths, excess[:, j], "points", role="measured") for j, p in enumerate(POWERS)),
            *(
                Series(
                    f"p = {p}, proportional to e", widths, excess[0, j] * widths / widths[0], "dashed", role="theory"
                )
                for j, p in enumerate(POWERS)
            ),
            Series("control: the same error at every width", widths, wrong, role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"δ = 1/{CELLS}, d = 1, n = 2; sequences of which a token lies on a ramp, weighted by their share.",
    )


claim = Claim(
    name="yun-2020-ramps",
    title="Ramps without a clamp",
    kind="theorem",
    statement=(
        "The compiled network with jumps is g; with softmax and ReLUs with ramps of width e, and no clamp, it is g_e. "
        "Then 0 ≤ d_p(f, g_e)^p − d_p(f, g)^p ≤ ρ((dn)^(1/p) t + F)^p with the share ρ ≤ dn(1/δ+1)e of the ramps, the "
        "largest context id t and F = sup ‖f‖_p. The excess is proportional to e and vanishes as e → 0."
    ),
    hypotheses=("δ = 1/4, d = 1, n = 2; p = 1 and 2", "the lower bound 0 is seen and not proved"),
    reference="yun2020, Theorem 2",
    measure=measure,
    controls={
        "constant": "The error has the size of the ids at any width.",
        "root": "The excess of d_p^p grows like √e, as d_2 itself does.",
        "bound-of-the-clamp": "The bound with the largest value of the clamp in place of the largest id.",
    },
    quick=Config(),
    full=Config(points=20_000),
)
