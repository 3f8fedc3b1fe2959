"""Gelbrich's inequality: no two laws with given means and covariances are closer in W_2 than the Gaussian ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.measures import Discrete, Gaussian
from measureformer.transport import wasserstein

CONTROLS = {
    "independent-coupling": "Without the cross term, |m−m'|² + tr A + tr B: the cost of the independent coupling.",
    "any-matrix": "Equality for every affine map, also where the matrix is not symmetric or not positive.",
}


@dataclass(frozen=True)
class Config:
    pairs: int = 20
    n: int = 24
    tolerance: float = 1e-9


def _bound(mu: Discrete, nu: Discrete, variant: str) -> float:
    """What the moments say of W_2: the distance of the Gaussians that have them."""
    if variant == "independent-coupling":
        gap = np.asarray(mu.mean()) - np.asarray(nu.mean())
        return float(np.sqrt(gap @ gap + np.trace(mu.covariance()) + np.trace(nu.covariance())))
    first, second = (Gaussian(measure.mean(), measure.covariance()) for measure in (mu, nu))
    return float(wasserstein(first, second))


@once
def _pairs(key: Key, config: Config) -> dict[str, np.ndarray]:
    """For each variant, a column for each random pair: W_2, its bound, and bound over W_2 for an affine image."""
    rng = generator(key)
    rows: dict[str, list[tuple[float, ...]]] = {variant: [] for variant in ("claim", *CONTROLS)}
    for _ in range(config.pairs):
        dim = int(rng.integers(1, 4))
        x, y = rng.standard_t(3, size=(2, config.n, dim)) @ rng.normal(size=(2, dim, dim))
        y += rng.normal(size=dim)
        mu, nu = Discrete.weighted(x, rng.dirichlet(np.ones(config.n))), Discrete.uniform(y)
        root, cloud = rng.normal(size=(dim, dim)), float(wasserstein(mu, nu))
        for variant, found in rows.items():
            matrix = root if variant == "any-matrix" else root @ root.T
            image = mu.push(lambda z, matrix=matrix: np.asarray(z) @ matrix + 1.0)
            equality = _bound(mu, image, variant) / float(wasserstein(mu, image))
            found.append((cloud, _bound(mu, nu, variant), equality))
    return {variant: np.array(found).T for variant, found in rows.items()}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    pairs = _pairs(key, config)
    clouds, bound, affine = pairs[variant]
    worst, off = (bound / clouds).max(), np.abs(affine - 1).max()
    checks = (
        Check("bound over W_2, largest", worst, high=1 + config.tolerance, rejected_by="independent-coupling"),
        # covariances are sums, and their roots lose half of the digits where they are nearly singular
        Check("equality for positive affine maps, |ratio − 1|", off, high=1e-6, rejected_by=tuple(CONTROLS)),
    )
    return Outcome(checks, _figure(config, pairs) if variant == "claim" else None)


def _figure(config: Config, pairs: dict[str, np.ndarray]) -> Figure:
    clouds, bound, _ = pairs["claim"]
    independent = pairs["independent-coupling"][1]
    ends = clouds.min(), clouds.max()
    return Figure(
        "W_2 of clouds and of the Gaussians with their moments",
        "W_2 of the clouds",
        "bound by the moments",
        (
            Series("Gelbrich", clouds, bound, "points", role="measured"),
            Series("control: independent coupling", clouds, independent, "points", role="control"),
            Series("equality", ends, ends, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.pairs} pairs of {config.n} atoms with heavy tails, d = 1, 2, 3; bounds lie below the line.",
    )


claim = Claim(
    name="gelbrich-1990-moments",
    title="Gaussians are the closest laws with given moments",
    kind="theorem",
    statement=(
        "For all laws μ, ν with finite second moments: W_2²(μ,ν) ≥ |m−m'|² + tr(A + B − 2(A^{1/2}BA^{1/2})^{1/2}), "
        "with equality if ν is the image of μ under an affine map with a positive semidefinite matrix."
    ),
    hypotheses=("m, A and m', B are the means and covariances of μ and ν",),
    reference="gelbrich1990, Theorem 2.1",
    measure=measure,
    controls=CONTROLS,
    quick=Config(),
    full=Config(pairs=1000, n=100),
)
