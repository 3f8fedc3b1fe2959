"""At zero temperature the update is the search for the nearest neighbour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats, sphere
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Modern


@dataclass(frozen=True)
class Config:
    patterns: int = 200
    dim: int = 8
    queries: int = 100
    betas: int = 8


def _outcome(key: Any, config: Config, *, equal: bool) -> Outcome:
    rng = generator(key)
    X = sphere(rng, config.patterns, config.dim, 1.0)
    if not equal:
        X = X * rng.uniform(0.5, 2, (config.patterns, 1))
    queries = sphere(rng, config.queries, config.dim, 1.0)
    squares = np.sum(X**2, axis=1)[None] - 2 * queries @ X.T + 1
    order = np.argsort(squares, axis=1)
    nearest = X[order[:, 0]]
    rows = np.arange(config.queries)
    # for equal norms, ⟨x, ξ⟩ falls by half the squared distance
    gap = 0.5 * (squares[rows, order[:, 1]] - squares[rows, order[:, 0]])
    betas = np.geomspace(10, 1e6, config.betas)
    errors, ratios = [], []
    for beta in betas:
        apart = np.linalg.norm(np.asarray(Modern.store(X, float(beta)).update(queries)) - nearest, axis=1)
        bound = 2 * np.abs(X).max() * config.dim**0.5 * (config.patterns - 1) * np.exp(-beta * gap)
        errors.append(apart)
        ratios.append((apart / (bound + 1e-13)).max())
    found = np.array(errors)
    figure = Figure(
        "Towards zero temperature",
        "inverse temperature β",
        "distance of the update from the nearest pattern",
        (
            Series("median of the queries", floats(betas), floats(np.median(found, axis=1)), "points"),
            Series("the worst query", floats(betas), floats(found.max(axis=1)), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.patterns} patterns and {config.queries} queries on the unit sphere of R^{config.dim}.",
    )
    checks = (
        Check(
            "share of queries answered with the nearest pattern at the largest β",
            float((found[-1] < 0.01).mean()),
            low=0.97,
        ),
        Check("largest error over 2M(N−1)e^{−β gap}", float(max(ratios)), high=1.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, equal=True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, equal=False)


claim = Claim(
    name="ramsauer-2020-nearest-neighbour",
    title="Zero temperature is nearest-neighbour search",
    statement=(
        "For patterns of equal norms and every ξ with one nearest pattern: as β → ∞ the update tends to that "
        "pattern, with an error of at most 2M(N−1)e^{−β gap}, gap = half the difference of the two smallest squared "
        "distances."
    ),
    hypotheses=("patterns have equal norms",),
    reference="ramsauer2020, Theorem 5",
    run=_run,
    control=_control,
    control_statement="Patterns of different norms: the largest inner product is not the smallest distance.",
    quick=Config(),
    full=Config(patterns=20_000, dim=16, queries=1000, betas=15),
)
