"""Where training keeps several tokens, W is a finite part that mixes them and a growing part that drops the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.implicit_bias import decompose, descend_all, misalignment, random_problems
from measureformer.implicit_bias.descent import Run

N, T = 3, 4
STEP = 2.0
POWERS = np.array([[2.0, 1.0], [1.0, 2.0], [3.0, 1.0]])
PARTS = ("both", "margin_only", "single")


@dataclass(frozen=True)
class Config:
    problems: int = 64
    runs: int = 2001
    steps: int = 3000
    dims: int = 1
    """How many of the dimensions 4, 6, 8, 10 of the random problems."""


@once
def _descent(key: Key, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradient descent on a problem with known limits: steps, W, the queries, and log(a/b)/2 for each example.

    All tokens and all queries are orthonormal, and the margin of example i is s_1^a s_2^b over its largest value, which
    it has at s = (a, b)/(a + b). So W_fin gives the two kept tokens of example i the logits ± log(a/b)/2.
    """
    rng = generator(key)
    powers = rng.permutation(POWERS)
    Z = np.linalg.qr(rng.normal(size=(N * T, N * T)))[0][:N]
    W, kept = 0.01 * rng.normal(size=(N, T, N * T)), list[np.ndarray]()
    top = powers / powers.sum(axis=1, keepdims=True)
    steps = np.unique(np.append(np.geomspace(1, config.steps, 25).astype(int), config.steps // 10))
    for k in range(1, config.steps + 1):
        logits = np.einsum("itd,id->it", W, Z)
        s = np.exp(logits - logits.max(axis=1, keepdims=True))
        s /= s.sum(axis=1, keepdims=True)
        h = np.prod((s[:, :2] / top) ** powers, axis=1)
        slope = -powers.sum(axis=1, keepdims=True) * s
        slope[:, :2] += powers
        W = W + STEP / N * ((h / (1 + np.exp(h)))[:, None] * slope)[:, :, None] * Z[:, None]
        if k in steps:
            kept.append(W)
    return steps, np.array(kept), Z, np.log(powers[:, 0] / powers[:, 1]) / 2


def _exact(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Steps; |ΠW_k − W_fin|, Π on differences of kept tokens; C_k; and 1 − cos(W_k, W_fin + C_k·W_mm) at the end."""
    steps, W, Z, halves = _descent(key, config)
    halves = {"even-mix": 0 * halves, "swapped": -halves, "neighbour": np.roll(halves, 1)}.get(variant, halves)
    logits = np.einsum("kitd,id->kit", W, Z)
    error = np.sqrt(2) * np.linalg.norm((logits[..., 0] - logits[..., 1]) / 2 - halves, axis=1)
    margins = np.array([1 - 2 / T] * 2 + [-2 / T] * (T - 2))
    growth = (logits @ margins).mean(axis=1) / np.sum(margins**2)
    rows = growth[-1] * margins + np.stack([halves, -halves, *[0 * halves] * (T - 2)], axis=1) * (
        variant != "no-finite-part"
    )
    told = rows[:, :, None] * Z[:, None]
    return steps, error, growth, misalignment(W[-1].reshape(N * T, -1), told.reshape(N * T, -1))


@once
def _runs(key: Key, config: Config) -> dict[int, list[Run]]:
    first, second = jax.random.split(key)
    return {
        d: descend_all(random_problems("several", first, count=config.problems, d=d), "ngd", config.runs, second)
        for d in (4, 6, 8, 10)[: config.dims]
    }


@once
def _random(key: Key, config: Config, early: bool) -> dict[int, np.ndarray]:
    """1 − cos of W at the end with each description, for each dimension: runs that are decided and drop a token."""
    found: dict[int, np.ndarray] = {}
    for d, runs in _runs(key, config).items():
        seen = int(np.searchsorted(runs[0].steps, config.runs // 20)) if early else None
        runs = [replace(run, steps=run.steps[:seen], W=run.W[:seen]) for run in runs]
        parts = [part for part in map(decompose, runs) if part.decided and part.grows]
        found[d] = np.array([[getattr(part, name)[-1] for name in PARTS] for part in parts]).reshape(-1, len(PARTS))
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    steps, error, _, away = _exact(key, config, variant)
    last, before = len(steps) - 1, int(np.searchsorted(steps, config.steps // 10))
    exponent = np.log(error[last] / error[before]) / np.log(steps[last] / steps[before])
    found = _random(key, config, variant == "stopped-early")
    ours = {"no-finite-part": 1, "single-tokens": 2}.get(variant, 0)
    means = np.array([table.mean(axis=0) if len(table) else np.full(len(PARTS), np.nan) for table in found.values()])
    wrong = ("even-mix", "swapped", "neighbour")
    checks = (
        Check("exponent of |Π W_k − W_fin| in the steps", exponent, low=-1.1, high=-0.9, rejected_by=wrong),
        Check("|Π W_k − W_fin| · k at the end", error[-1] * steps[-1], high=5, rejected_by=wrong),
        Check(
            "1 − cos(W_k, W_fin + C_k·W_mm) over that with W_mm alone",
            away / _exact(key, config, "no-finite-part")[3],
            high=0.5,
            rejected_by=("no-finite-part", "even-mix", "swapped", "neighbour"),
        ),
        Check(
            "random data: runs that are decided and drop a token, fewest in a dimension",
            min(map(len, found.values())),
            low=5,
            rejected_by="stopped-early",
        ),
        Check(
            "random data: mean 1 − cos over that with W_mm alone, largest",
            (means[:, ours] / means[:, 1]).max(),
            high=0.97,
            rejected_by="no-finite-part",
        ),
        Check(
            "random data: the same over that with the SVM of single tokens",
            (means[:, ours] / means[:, 2]).max(),
            high=0.5,
            rejected_by="single-tokens",
        ),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    steps, error, growth, _ = _exact(key, config, "claim")
    wrong = _exact(key, config, "swapped")[1]
    return Figure(
        "Several tokens are kept",
        "step k",
        "distance, and growth",
        (
            Series("|Π W_k − W_fin|", steps, error, "points", role="measured"),
            Series("proportional to 1/k", steps, error[-1] * steps[-1] / steps, "dashed", role="theory"),
            Series("C_k", steps, np.maximum(growth, 1e-3), role="measured"),
            Series("control: kept tokens exchanged", steps, wrong, role="control"),
        ),
        xscale="log",
        yscale="log",
        caption="Orthonormal tokens and queries, margins s_1^a s_2^b: W_fin is known, log(a/b) between two tokens.",
    )


claim = Claim(
    name="tarzanagh-2023-several-tokens",
    title="A finite part mixes tokens, a growing part drops the rest",
    kind="observation",
    statement=(
        "With a head for which a mixture of tokens is best, W_k ≈ W_fin + C_k·W_mm: W_fin gives the kept tokens the "
        "probabilities at which the loss on them is least, W_mm is the SVM that separates kept from dropped tokens. "
        "For orthonormal tokens and margins s_1^a s_2^b, W_fin is known without a run, and gradient descent "
        "approaches it like 1/k. On random data W_fin is taken from the first half of the run and judged at its end: "
        "observed is a mean 1 − cos of at most 0.97 of that with W_mm alone, and at most half of that with the SVM of "
        "single tokens."
    ),
    hypotheses=(
        "a conjecture in general",
        "3 examples of 4 tokens; (a, b) = (2, 1), (1, 2) and (3, 1), the logistic loss",
        "random data: head Σ relu(Vx), at least one label −1, normalised steps of 0.1",
    ),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "even-mix": "The kept tokens have equal probabilities in the limit.",
        "swapped": "The limits of the two kept tokens are exchanged.",
        "neighbour": "Each example has the limits of the next one.",
        "no-finite-part": "W_fin is left out.",
        "single-tokens": "The SVM of the single tokens with most attention describes W.",
        "stopped-early": "Training stops after a twentieth of the steps, before it drops tokens.",
    },
    quick=Config(),
    full=Config(problems=500, steps=100_000, dims=4),
)
