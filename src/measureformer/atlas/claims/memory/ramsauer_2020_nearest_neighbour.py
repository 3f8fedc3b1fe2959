"""At zero temperature the update is the search for the nearest neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.memory_patterns import sphere
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern


@dataclass(frozen=True)
class Config:
    patterns: int = 200
    dim: int = 8
    queries: int = 100
    betas: int = 8


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    X = sphere(rng, config.patterns, config.dim, 1.0)
    if variant == "different-norms":
        X = X * rng.uniform(0.5, 2, (config.patterns, 1))
    queries = sphere(rng, config.queries, config.dim, 1.0)
    squares = np.sum(X**2, axis=1)[None] - 2 * queries @ X.T + 1
    order = np.argsort(squares, axis=1)
    nearest = X[order[:, 0]]
    rows = np.arange(config.queries)
    # for equal norms, ⟨x, ξ⟩ falls by half the squared distance
    gap = (1.0 if variant == "without-the-half" else 0.5) * (squares[rows, order[:, 1]] - squares[rows, order[:, 0]])
    betas = np.geomspace(10, 1e6, config.betas)
    errors = np.array([np.linalg.norm(Modern.store(X, beta).update(queries) - nearest, axis=1) for beta in betas])
    # M is a norm, and 1 here
    most = np.linalg.norm(X, axis=1).max()
    bounds = 2 * most * (config.patterns - 1) * np.exp(-betas[:, None] * gap)
    checks = (
        Check(
            "share answered with the nearest pattern at the largest β, of queries with a bound below 0.01",
            np.mean(errors[-1][bounds[-1] < 0.01] < 0.01),
            low=1.0,
            rejected_by="different-norms",
        ),
        Check(
            "largest error over 2M(N−1)e^{−β gap}",
            (errors / (bounds + 1e-13)).max(),
            high=1.0,
            rejected_by=("different-norms", "without-the-half"),
        ),
    )
    return Outcome(checks, _figure(config, betas, errors) if variant == "claim" else None)


def _figure(config: Config, betas: np.ndarray, errors: np.ndarray) -> Figure:
    return Figure(
        "Towards zero temperature",
        "inverse temperature β",
        "distance of the update from the nearest pattern",
        (
            Series("median of the queries", betas, np.median(errors, axis=1), "points", role="measured"),
            Series("the worst query", betas, errors.max(axis=1), "points", role="measured"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.patterns} patterns and {config.queries} queries on the unit sphere of R^{config.dim}.",
    )


claim = Claim(
    name="ramsauer-2020-nearest-neighbour",
    title="Zero temperature is nearest-neighbour search",
    kind="theorem",
    statement=(
        "For patterns of equal norms and every ξ with one nearest pattern: as β → ∞ the update tends to that "
        "pattern, with an error of at most 2M(N−1)e^{−β gap}, gap = half the difference of the two smallest squared "
        "distances."
    ),
    hypotheses=("patterns have equal norms",),
    reference="ramsauer2020, Theorem 5",
    measure=measure,
    controls={
        "different-norms": "Patterns of different norms: the largest inner product is not the smallest distance.",
        "without-the-half": "gap = the whole difference of the two smallest squared distances.",
    },
    quick=Config(),
    full=Config(patterns=20_000, dim=16, queries=1000, betas=15),
)
