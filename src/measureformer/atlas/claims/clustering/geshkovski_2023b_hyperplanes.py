"""A value matrix with one dominant eigenvalue: rescaled tokens settle on at most three parallel hyperplanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.clustering import clusters
from measureformer.flows import flow
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete

NEAR = 1e-2
"""Coordinates closer than this, relative to their extent, are one."""


@dataclass(frozen=True)
class Config:
    n: int = 20
    trials: int = 2
    dims: int = 1
    """How many of the dimensions 3, 4, 5."""
    growth: float = 8.0
    """The last time in units of the inverse of the first eigenvalue. Tokens settle like e^{−t}, while a token between
    two keys makes the equation stiff like e^{2t}: at 14, explicit steps get too small."""


def _coordinates(key: Key, config: Config, variant: str) -> tuple[list[np.ndarray], np.ndarray]:
    """First coordinates (t, n) of rescaled tokens, V with eigenvalues 1 > |λ₂|, …; those of a special start.

    That start is x, −x and 0, and no other token has mass. By symmetry 0 stays, but it repels doubly exponentially, so
    that rounding errors grow: it is looked at after a quarter of the time.
    """
    rng, paths, sign = generator(key), list[np.ndarray](), -1.0 if variant == "k-minus-q" else 1.0
    special = np.zeros(0)
    for d in (3, 4, 5)[: config.dims]:
        for trial in range(config.trials + 1):
            basis = np.eye(d) + 0.4 * rng.normal(size=(d, d)) / np.sqrt(d)
            inverse, first = np.linalg.inv(basis), basis[:, 0]
            V = (basis * np.array([1.0, *rng.uniform(-0.5, 0.5, size=d - 1)])) @ inverse
            A = rng.normal(size=(d, d)) / np.sqrt(d)
            # ⟨Aφ₁, φ₁⟩ = |φ₁|²
            A += (1 - first @ A @ first / (first @ first)) * np.eye(d)
            X, weights = rng.normal(size=(config.n, d)), np.ones(config.n)
            if trial == config.trials:
                X[0], X[1], weights[3:] = 0.5 * first, -0.5 * first, 0
                X[2] = 0.1 * first if variant == "off-the-middle" else 0
            G = Attention.head(A, sign * np.eye(d), V)
            times = config.growth * np.array([0.0, 0.25, 0.5, 0.75, 1.0])
            points = np.asarray(flow(Rescaled(G), Discrete.weighted(X, weights), times).points)
            # φ₁*, the row that belongs to the first eigenvalue
            path = points @ (inverse[0] / np.linalg.norm(inverse[0]))
            if trial < config.trials:
                paths.append(path)
            else:
                special = path[1, :3]
    return paths, special


def _count(end: np.ndarray) -> int:
    return clusters(end[:, None], NEAR * max(float(np.ptp(end)), 1e-300)).count


def measure(key: Key, config: Config, variant: str) -> Outcome:
    paths, special = _coordinates(key, config, variant)
    counts, extents = [0], [np.inf]
    for path in paths:
        extent = float(np.ptp(path[-1]))
        extents.append(extent / float(np.ptp(path[0])))
        counts.append(_count(path[-1]))
    middle = abs(special[2] / special[0])
    # one point would be one hyperplane, and say nothing
    extent_name = "least extent of the limit over that of the start"
    checks = (
        Check("largest number of hyperplanes", max(counts), high=3.0, rejected_by="k-minus-q"),
        Check("start x, −x, 0: what moves from the middle", middle, high=1e-9, rejected_by="off-the-middle"),
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
        caption=f"{config.n} tokens in dimension 3, random A, V with one dominant eigenvalue; z = e^{{−tV}}x.",
    )


claim = Claim(
    name="geshkovski-2023b-hyperplanes",
    title="At most three hyperplanes",
    kind="theorem",
    statement=(
        "For every V whose eigenvalue λ₁ of largest modulus is simple, real and positive, with ⟨Qφ₁, Kφ₁⟩ > 0 for its "
        "eigenvector: the coordinates φ₁*(z_i) of the rescaled tokens z = e^{−tV}x converge, to at most three limits. "
        "Three occur, for special starts."
    ),
    hypotheses=(
        "one softmax head",
        "λ₁ simple, positive, of strictly largest modulus",
        "⟨Qφ₁, Kφ₁⟩ > 0",
        "the limit is judged at a finite time: with the quick preset, tokens had settled by then on nine of ten fresh "
        "seeds",
    ),
    reference="geshkovski2023b",
    measure=measure,
    controls={
        "k-minus-q": "K = −K, so that ⟨Qφ₁, Kφ₁⟩ < 0.",
        "off-the-middle": "The token at 0 starts at 0.1 φ₁.",
    },
    quick=Config(),
    full=Config(n=60, trials=13, growth=10.0, dims=3),
)
