"""At small β there is one fixed point for all queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Modern


@dataclass(frozen=True)
class Config:
    patterns: int = 30
    dim: int = 8
    queries: int = 40
    size: float = 3.0


def _outcome(key: Any, config: Config, *, heat: float) -> Outcome:
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
    figure = Figure(
        "One fixed point",
        "updates",
        "distance moved",
        (
            Series("median of the queries", floats(np.arange(len(moves))), floats(np.median(moves, axis=1))),
            Series("all", floats(np.arange(len(moves))), floats(moves.min(axis=1)), "band", floats(moves.max(axis=1))),
            Series(
                "(β m²)^t",
                floats(np.arange(len(moves))),
                floats(moves[0].max() * heat ** np.arange(len(moves))),
                "dashed",
            ),
        ),
        yscale="log",
        caption=f"β m² = {heat:g}, centred patterns, {config.queries} queries of any size.",
    )
    checks = (
        Check("largest norm at the end", float(ends.max()), high=1e-11),
        Check("largest ratio of consecutive moves", float(rates.max()), high=heat if heat < 1 else 1.0),
        Check("certified as single", float(found.certificate.single.mean()), low=1.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, heat=0.5)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, heat=40.0)


claim = Claim(
    name="ramsauer-2020-global-fixed-point",
    title="Hot memories forget",
    statement=(
        "If β m² < 1, with m the largest distance of a pattern from the mean, the update is a contraction with rate "
        "β m², so all queries end in one fixed point; for centred patterns it is their mean."
    ),
    hypotheses=("β m² < 1",),
    reference="ramsauer2020, Appendix A",
    run=_run,
    control=_control,
    control_statement="β m² = 40: the patterns attract.",
    quick=Config(),
    full=Config(patterns=300, dim=16, queries=1000),
)
