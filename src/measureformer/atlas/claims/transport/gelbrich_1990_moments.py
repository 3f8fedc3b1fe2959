"""Gelbrich's inequality: no two laws with given means and covariances are closer in W_2 than the Gaussian ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete, Gaussian
from measureformer.transport import wasserstein


@dataclass(frozen=True)
class Config:
    pairs: int = 20
    n: int = 24
    tolerance: float = 1e-9


def _pairs(key: Any, config: Config) -> np.ndarray:
    """A row for each random pair: W_2, that of the Gaussians with the same moments, the bound of the control, and the
    ratio of the first two for a cloud and its image under a positive semidefinite affine map.
    """
    rng, rows = generator(key), []
    for _ in range(config.pairs):
        dim = int(rng.integers(1, 4))
        x, y = rng.standard_t(3, size=(2, config.n, dim)) @ rng.normal(size=(2, dim, dim))
        y += rng.normal(size=dim)
        mu, nu = Discrete.weighted(x, rng.dirichlet(np.ones(config.n))), Discrete.uniform(y)
        root = rng.normal(size=(dim, dim))
        image = mu.push(lambda z, root=root: np.asarray(z) @ (root @ root.T) + 1.0)
        gap = np.asarray(mu.mean()) - np.asarray(nu.mean())
        # the cost of the independent coupling: the cross term of the covariances is dropped
        independent = np.sqrt(gap @ gap + np.trace(mu.covariance()) + np.trace(nu.covariance()))
        equality = _by_moments(mu, image) / float(wasserstein(mu, image))
        rows.append((float(wasserstein(mu, nu)), _by_moments(mu, nu), float(independent), equality))
    return np.array(rows)


def _by_moments(mu: Discrete, nu: Discrete) -> float:
    return float(wasserstein(*(Gaussian(measure.mean(), measure.covariance()) for measure in (mu, nu))))


def _checks(clouds: np.ndarray, bound: np.ndarray, affine: np.ndarray, tolerance: float) -> tuple[Check, ...]:
    return (
        Check("bound over W_2, largest", float((bound / clouds).max()), high=1 + tolerance),
        # covariances are sums, and their roots lose half of the digits where they are nearly singular
        Check("equality for positive affine maps, |ratio − 1|", float(np.abs(affine - 1).max()), high=1e-6),
    )


def _run(key: Any, config: Config) -> Outcome:
    clouds, moments, false, affine = _pairs(key, config).T
    ends = float(clouds.min()), float(clouds.max())
    figure = Figure(
        "W_2 of clouds and of the Gaussians with their moments",
        "W_2 of the clouds",
        "bound by the moments",
        (
            Series("Gelbrich", tuple(map(float, clouds)), tuple(map(float, moments)), "points"),
            Series("control: independent coupling", tuple(map(float, clouds)), tuple(map(float, false)), "points"),
            Series("equality", ends, ends, "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.pairs} pairs of {config.n} atoms with heavy tails, d = 1, 2, 3; bounds lie below the line.",
    )
    return Outcome(_checks(clouds, moments, affine, config.tolerance), figure)


def _control(key: Any, config: Config) -> Outcome:
    clouds, _, independent, affine = _pairs(key, config).T
    return Outcome(_checks(clouds, independent, affine, config.tolerance))


claim = Claim(
    name="gelbrich-1990-moments",
    title="Gaussians are the closest laws with given moments",
    statement=(
        "For all laws μ, ν with finite second moments: W_2²(μ,ν) ≥ |m−m'|² + tr(A + B − 2(A^{1/2}BA^{1/2})^{1/2}), "
        "with equality if ν is the image of μ under an affine map with a positive semidefinite matrix."
    ),
    hypotheses=("m, A and m', B are the means and covariances of μ and ν",),
    reference="gelbrich1990, Theorem 2.1",
    run=_run,
    control=_control,
    control_statement="Without the cross term, |m−m'|² + tr A + tr B: the cost of the independent coupling.",
    quick=Config(),
    full=Config(pairs=1000, n=100),
)
