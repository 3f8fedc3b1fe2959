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


def measure(key: Key, config: Config, variant: str) -> Outcome:
    heat = 40.0 if variant == "cold" else 0.5
    rng = generator(key)
    X = rng.normal(size=(config.patterns, config.dim))
    X -= X.mean(axis=0)
    queries = config.size * rng.normal(size=(config.queries, config.dim))
    spread = Modern.store(X, 1.0).spread()
    found = Modern.store(X, heat / spread**2).retrieve(queries, steps=200)
    ends = np.linalg.norm(np.asarray(found.state), axis=1)
    moves = found.trace.moves
    # a query that has come to rest has no rate
    rates = moves[1:6] / np.where(moves[:5] > 0, moves[:5], np.inf)
    checks = (
        Check("largest norm at the end", ends.max(), high=1e-11, rejected_by="cold"),
        Check("largest ratio of consecutive moves", rates.max(), high=min(heat, 1.0), rejected_by="cold"),
        Check("certified as single", found.certificate.single.mean(), low=1.0, rejected_by="cold"),
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
        caption=f"β m² = {heat:g}, centred patterns, {config.queries} queries of any size.",
    )


claim = Claim(
    name="ramsauer-2020-global-fixed-point",
    title="Hot memories forget",
    statement=(
        "If β m² < 1, with m the largest distance of a pattern from the mean, the update is a contraction with rate "
        "β m², so all queries end in one fixed point; for centred patterns it is their mean."
    ),
    hypotheses=("β m² < 1",),
    reference="ramsauer2020, Appendix A",
    measure=measure,
    controls={"cold": "β m² = 40: the patterns attract."},
    quick=Config(),
    full=Config(patterns=300, dim=16, queries=1000),
)
