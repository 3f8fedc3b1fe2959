"""Random clouds for the tests of transport, and independent solvers to compare with."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

import measureformer as mf


def cloud(seed: int, n: int, dim: int, *, passive: bool = False) -> mf.Discrete:
    """n atoms of unequal weights and mass 1; with `passive`, every third of them without mass, the first included."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, n)
    if passive:
        weights[::3] = 0
    return mf.Discrete.weighted(rng.normal(size=(n, dim)), weights / weights.sum())


def prompt(seed: int, n: int, dim: int) -> mf.Discrete:
    return mf.Discrete.uniform(np.random.default_rng(seed).normal(size=(n, dim)))


def cost_matrix(mu: Any, nu: Any, p: float) -> np.ndarray:
    return cdist(np.asarray(mu.points), np.asarray(nu.points)) ** p


def by_linear_programming(mu: Any, nu: Any, p: float) -> float:
    """min Σ π c over π ≥ 0 with the two marginals, to W_p."""
    cost = cost_matrix(mu, nu, p)
    n, m = cost.shape
    marginals = np.concatenate([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    masses = np.concatenate([np.asarray(mu.weights), np.asarray(nu.weights)])
    # one constraint follows from the others, and would be infeasible by a rounding
    found = linprog(cost.ravel(), A_eq=marginals[:-1], b_eq=masses[:-1])
    assert found.status == 0
    return float(found.fun) ** (1 / p)


def by_permutations(mu: Any, nu: Any, p: float) -> float:
    cost = cost_matrix(mu, nu, p)
    rows = np.arange(mu.n)
    return float(min(cost[rows, list(order)].sum() for order in permutations(rows)) * float(mu.mass) / mu.n) ** (1 / p)
