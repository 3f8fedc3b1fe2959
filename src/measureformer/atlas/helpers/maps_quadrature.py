"""Gauss–Hermite rules as measures: an independent way to integrate against a Gaussian."""

from __future__ import annotations

import numpy as np

from measureformer.measures import Discrete, Gaussian


def gauss_hermite(g: Gaussian, nodes: int) -> Discrete:
    """The product rule with `nodes` nodes per axis, carried to N(m, Σ) by a Cholesky factor."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * g.dim, indexing="ij"), axis=-1).reshape(-1, g.dim)
    weights = np.prod(np.stack(np.meshgrid(*[w] * g.dim, indexing="ij"), axis=-1), axis=-1).reshape(-1)
    root = np.linalg.cholesky(np.asarray(g.cov))
    return Discrete.weighted(np.asarray(g.center) + grid @ root.T, weights * float(g.mass) / weights.sum())
