"""At small β there is one fixed point for all queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern


@dataclass(frozen=True)
class Config:
    patterns: int = 30
    dim: int = 8
    queries: int = 40
    size: float = 3.0


STEPS = 200


def measure(key: Key, config: Config, variant: str) -> Outcome:
    heat = 1.5 if variant == "warm" else 0.9
    rng = generator(key)
    cloud, side = rng.normal(size=(config.patterns, config.dim)), rng.normal(size=config.dim)
    # two points: the update is tanh along the line, with the slope β m² at the mean
    pair = np.where(np.arange(config.patterns) % 2, 1.0, -1.0)[:, None] * side
    # far from the mean and close to it
    queries = config.size * rng.normal(size=(config.queries, config.dim))
    queries[::2] *= 1e-3
    ends, rates, single, moves = list[float](), list[float](), list[float](), np.zeros(0)
    for X in (cloud - cloud.mean(axis=0), pair - pair.mean(axis=0)):
        found = Modern.store(X, heat / Modern.store(X, 1.0).spread() ** 2).retrieve(queries, steps=STEPS)
        moves = found.trace.moves
        ends.append(np.linalg.norm(np.asarray(found.state), axis=1).max())
        # a query that has come to rest has no rate
        rates.append((moves[1:6] / np.where(moves[:5] > 0, moves[:5], np.inf)).max())
        single.append(found.certificate.single.mean())
    far = np.linalg.norm(queries, axis=1).max()
    checks = (
        Check(
            "largest norm at the end, over 0.9^200 of the first",
            max(ends) / far / 0.9**STEPS,
            high=1,
            rejected_by="warm",
        ),
        Check("largest ratio of consecutive moves", max(rates), high=0.9 + 1e-9, rejected_by="warm"),
        Check("certified as single", min(single), low=1.0, rejected_by="warm"),
    )
    return Outcome(checks, _figure(config, heat, moves) if variant == "claim" else None)


def _figure(config: Config, heat: float, moves: np.ndarray) -> Figure:
    t = np.arange(len(moves))
    return Figure(
        "One fixed point",
        "updates",
        "distance moved",
        (
            Series("median of the queries", t, np.median(moves, axis=1), role="measured"),
            Series("all", t, moves.min(axis=1), "band", moves.max(axis=1), role="measured"),
            Series("(β m²)^t", t, moves[0].max() * heat**t, "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"β m² = {heat:g}, patterns at two points, where the rate is attained; {config.queries} queries.",
    )


claim = Claim(
    name="ramsauer-2020-global-fixed-point",
    title="Hot memories forget",
    kind="theorem",
    statement=(
        "If β m² < 1, with m the largest distance of a pattern from the mean, the update is a contraction with rate "
        "β m², so all queries end in one fixed point; for centred patterns it is their mean. For two points this is "
        "sharp."
    ),
    hypotheses=("β m² < 1",),
    reference="ramsauer2020, Appendix A",
    measure=measure,
    controls={"warm": "β m² = 1.5: two points attract."},
    quick=Config(),
    full=Config(patterns=300, dim=16, queries=1000),
)
