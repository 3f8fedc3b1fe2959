"""Clusters of patterns give metastable states: their averages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.memory_patterns import sphere
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern


@dataclass(frozen=True)
class Config:
    clusters: int = 5
    members: int = 8
    dim: int = 16
    width: float = 0.02


def _patterns(key: Key, config: Config) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(key)
    centres = np.repeat(sphere(rng, config.clusters, config.dim, 4.0), config.members, axis=0)
    X = centres + config.width * rng.normal(size=centres.shape)
    # of equal norms, so that every pattern can be stored by itself when it is cold enough
    X *= 4 / np.linalg.norm(X, axis=1, keepdims=True)
    means = X.reshape(config.clusters, config.members, -1).mean(axis=1)
    return X, means


def measure(key: Key, config: Config, variant: str) -> Outcome:
    X, means = _patterns(key, config)
    found = Modern.store(X, 3e4 if variant == "cold" else 1.0).fixed_points()
    ends = found.points[found.labels].reshape(config.clusters, config.members, -1)
    apart = np.linalg.norm(ends - means[:, None], axis=2).max()
    n = config.clusters
    checks = (
        Check("fixed points that are metastable", found.metastable.sum(), n, n, rejected_by="cold"),
        Check(
            "largest distance of a fixed point from the average of its cluster", apart, high=0.02, rejected_by="cold"
        ),
    )
    return Outcome(checks, _figure(config, X) if variant == "claim" else None)


def _figure(config: Config, X: np.ndarray) -> Figure:
    betas = np.geomspace(0.1, 3e4, 12)
    counts = [len(Modern.store(X, beta).fixed_points().points) for beta in betas]
    return Figure(
        "Fixed points of a memory of clusters",
        "inverse temperature β",
        "fixed points that patterns reach",
        (
            Series("found", betas, counts, "points", role="measured"),
            Series("clusters", betas[[0, -1]], (config.clusters,) * 2, "dashed", role="theory"),
            Series("patterns", betas[[0, -1]], (len(X),) * 2, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.clusters} clusters of {config.members} patterns at radius 4, {config.width:g} wide.",
    )


claim = Claim(
    name="ramsauer-2020-metastable",
    title="Metastable states are averages",
    kind="theorem",
    statement=(
        "If patterns form clusters that are separated at the temperature 1/β, while the members of a cluster are "
        "not, then every pattern ends in one fixed point per cluster, close to the average of the cluster."
    ),
    hypotheses=("β · (width of a cluster)² small", "β · (separation of the clusters) large"),
    reference="ramsauer2020, Appendix A",
    measure=measure,
    controls={"cold": "A temperature at which every pattern of a cluster is stored by itself."},
    quick=Config(),
    full=Config(clusters=12, members=20, dim=32),
)
