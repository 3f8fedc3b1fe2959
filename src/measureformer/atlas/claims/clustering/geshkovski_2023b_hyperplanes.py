"""A value matrix with one dominant eigenvalue: rescaled tokens settle on at most three parallel hyperplanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import clusters
from measureformer.figures.figure import Figure, Series
from measureformer.flows import flow
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete
from measureformer.numerics.types import Key

DIM = 2
NEAR = 1e-2
"""Coordinates closer than this, relative to their extent, are one."""


@dataclass(frozen=True)
class Config:
    n: int = 20
    trials: int = 3
    growth: float = 10.0
    """The last time in units of the inverse of the first eigenvalue. Tokens settle like e^{−t}, while a token between
    two keys makes the equation stiff like e^{2t}: at 14, explicit steps get too small."""


def _coordinates(key: Key, config: Config, *, sign: float) -> list[np.ndarray]:
    """First coordinates (t, n) of rescaled tokens for random V with eigenvalues λ₁ = 1 > |λ₂|, in any basis."""
    rng, paths = generator(key), list[np.ndarray]()
    for _ in range(config.trials):
        basis = np.eye(DIM) + 0.4 * rng.normal(size=(DIM, DIM)) / np.sqrt(DIM)
        values = np.array([1.0, *rng.uniform(-0.5, 0.5, size=DIM - 1)])
        inverse = np.linalg.inv(basis)
        V = (basis * values) @ inverse
        times = np.array([0.0, 0.25, 0.5, 0.75, 1.0]) * config.growth / values[0]
        G = Attention.head(np.eye(DIM), sign * np.eye(DIM), V)
        start = Discrete.uniform(rng.normal(size=(config.n, DIM)))
        points = np.asarray(flow(Rescaled(G), start, times).points)
        # φ₁*, the row that belongs to the first eigenvalue
        paths.append(points @ (inverse[0] / np.linalg.norm(inverse[0])))
    return paths


def measure(key: Key, config: Config, variant: str) -> Outcome:
    paths = _coordinates(key, config, sign=-1.0 if variant == "k-minus-q" else 1.0)
    counts, extents = [0], [np.inf]
    for path in paths:
        extent = float(np.ptp(path[-1]))
        extents.append(extent / float(np.ptp(path[0])))
        counts.append(clusters(path[-1][:, None], NEAR * max(extent, 1e-300)).count)
    # one point would be one hyperplane, and say nothing
    extent_name = "least extent of the limit over that of the start"
    checks = (
        Check("largest number of hyperplanes", max(counts), high=3.0, rejected_by="k-minus-q"),
        Check(extent_name, min(extents), low=10 * NEAR, rejected_by="k-minus-q"),
    )
    return Outcome(checks, _figure(config, paths[0]) if variant == "claim" else None)


def _figure(config: Config, path: np.ndarray) -> Figure:
    x, order = np.arange(config.n), np.argsort(path[0])
    return Figure(
        "Tokens settle on parallel hyperplanes",
        "token, ordered by its start",
        "coordinate φ₁*(z)",
        (
            Series("start", x, path[0][order], "points", role="measure"),
            Series("end", x, path[-1][order], "points", role="measured"),
        ),
        caption=f"{config.n} tokens in dimension {DIM}, Q = K = I, V with one dominant eigenvalue; z = e^{{−tV}}x.",
    )


claim = Claim(
    name="geshkovski-2023b-hyperplanes",
    title="At most three hyperplanes",
    statement=(
        "For every V whose eigenvalue λ₁ of largest modulus is simple, real and positive, with ⟨Qφ₁, Kφ₁⟩ > 0 for its "
        "eigenvector: the coordinates φ₁*(z_i) of the rescaled tokens z = e^{−tV}x converge, to at most three limits."
    ),
    hypotheses=("one softmax head", "λ₁ simple, positive, of strictly largest modulus", "⟨Qφ₁, Kφ₁⟩ > 0"),
    reference="geshkovski2023b",
    measure=measure,
    controls={
        "k-minus-q": "K = −Q, so that ⟨Qφ₁, Kφ₁⟩ < 0.",
    },
    quick=Config(),
    full=Config(n=60, trials=40),
)
