"""Pairs of measures whose distance a layer stretches, measured with exact assignments."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import measureformer as mf
from measureformer.errors import DtypeError, OptionError

R = mf.regularity
KEY = jax.random.key(0)


def assigned(p: int) -> Any:
    """W_p of two uniform measures with equally many atoms."""

    def distance(mu: Any, nu: Any) -> float:
        X, Y = np.asarray(mu.points), np.asarray(nu.points)
        costs = np.linalg.norm(X[:, None] - Y[None], axis=2) ** p
        return float(costs[linear_sum_assignment(costs)].mean()) ** (1 / p)

    return distance


@pytest.mark.parametrize("p", [1, 2])
def test_ratios_are_attained_and_below_the_theorems(p: int) -> None:
    # kills: images compared with the wrong inputs, a ratio upside down
    A, V = np.array([[-1.0, 0.3], [0.0, 0.5]]), np.array([[1.0, 0.0], [0.5, 2.0]])
    G, mu = mf.Attention.head(A, np.eye(2), V), mf.Discrete.uniform(np.random.default_rng(1).normal(size=(6, 2)))
    found = R.worst_pair(G, mu, assigned(p), key=KEY, radius=1.2, steps=150)
    again = assigned(p)(G.push(found.mu), G.push(found.nu)) / assigned(p)(found.mu, found.nu)
    assert found.ratio == pytest.approx(again, rel=1e-12)
    assert max(float(found.mu.radius()), float(found.nu.radius())) <= 1.2 * (1 + 1e-12)
    sizes = float(np.linalg.norm(V, 2)), float(np.linalg.norm(A, 2)), 1.2
    assert found.ratio <= R.castin24_ball(*sizes)
    assert found.ratio <= (R.ball(*sizes) if p == 2 else math.inf)
    # better than where it began, and than translations of the mean alone
    start = R.worst_pair(G, mu, assigned(p), key=KEY, radius=1.2, steps=1)
    assert found.ratio > 1.1 * start.ratio


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-9), (np.float32, 1e-3)])
def test_a_linear_map_is_found_to_have_its_norm(dtype: Any, rounding: float) -> None:
    F = mf.Linear(np.array([[3.0, 0.0], [0.0, 1.0]], dtype))
    found = R.worst_pair(F, mf.Discrete.dirac(np.array([0.5, 0.5], dtype)), assigned(2), key=KEY)
    # kills: pairs so close that their ratio is rounding
    assert 2.9 < found.ratio <= 3 + rounding
    assert found.nu.points.dtype == dtype


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda mu: R.worst_pair(np.sin, mu, assigned(2), key=KEY), DtypeError, "in place of a map"),
        (lambda mu: R.worst_pair(mf.Identity(), np.eye(2), assigned(2), key=KEY), DtypeError, "measure with atoms"),
        (lambda mu: R.worst_pair(mf.Identity(), mu, assigned(2), key=1), DtypeError, "random key"),
        (lambda mu: R.worst_pair(mf.Identity(), mu, assigned(2), key=KEY, radius=0), OptionError, "radius = 0"),
        (lambda mu: R.worst_pair(mf.Identity(), mu, assigned(2), key=KEY, steps=0), OptionError, "steps = 0"),
    ],
)
def test_refusals(call: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        call(mf.Discrete.uniform(np.eye(2)))
