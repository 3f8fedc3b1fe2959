"""Pairs of measures whose distance a layer stretches, measured with exact transport."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer.errors import DtypeError, OptionError

R = mf.regularity
KEY = jax.random.key(0)


def exact_distance(p: int) -> Any:
    """W_p of two measures, exact."""
    return lambda mu, nu: mf.wasserstein(mu, nu, p)


@pytest.mark.parametrize("p", [1, 2])
def test_ratios_are_attained_and_below_the_theorems(p: int) -> None:
    # kills: images compared with the wrong inputs, a ratio upside down
    A, V = np.array([[-1.0, 0.3], [0.0, 0.5]]), np.array([[1.0, 0.0], [0.5, 2.0]])
    G, mu = (
        mf.Attention.head(A, np.eye(2), V),
        mf.Discrete.weighted(np.random.default_rng(1).normal(size=(6, 2)), [1, 2, 1, 1, 3, 1]),
    )
    found = R.worst_pair(G, mu, exact_distance(p), key=KEY, radius=1.2, steps=150)
    again = float(exact_distance(p)(G.push(found.mu), G.push(found.nu)) / exact_distance(p)(found.mu, found.nu))
    assert found.ratio == pytest.approx(again, rel=1e-12)
    assert max(float(found.mu.radius()), float(found.nu.radius())) <= 1.2 * (1 + 1e-12)
    sizes = float(np.linalg.norm(V, 2)), float(np.linalg.norm(A, 2)), 1.2
    assert found.ratio <= R.lipschitz_ball_castin24(*sizes)
    assert found.ratio <= (R.lipschitz_ball(*sizes) if p == 2 else math.inf)
    # better than where it began, and than translations of the mean alone
    start = R.worst_pair(G, mu, exact_distance(p), key=KEY, radius=1.2, steps=1)
    assert found.ratio > 1.1 * start.ratio


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-9), (np.float32, 1e-3)])
def test_a_linear_map_is_found_to_have_its_norm(dtype: Any, rounding: float) -> None:
    F = mf.Linear(np.array([[3.0, 0.0], [0.0, 1.0]], dtype))
    found = R.worst_pair(F, mf.Discrete.dirac(np.array([0.5, 0.5], dtype)), exact_distance(2), key=KEY)
    # kills: pairs so close that their ratio is rounding
    assert 2.9 < found.ratio <= 3 + rounding
    assert found.nu.points.dtype == dtype


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda mu: R.worst_pair(np.sin, mu, exact_distance(2), key=KEY), DtypeError, "need an in-context map"),
        (
            lambda mu: R.worst_pair(mf.Identity(), np.eye(2), exact_distance(2), key=KEY),
            DtypeError,
            "measure with atoms",
        ),
        (lambda mu: R.worst_pair(mf.Identity(), mu, exact_distance(2), key=1), DtypeError, "random key"),
        (lambda mu: R.worst_pair(mf.Identity(), mu, exact_distance(2), key=KEY, radius=0), OptionError, "radius = 0"),
        (lambda mu: R.worst_pair(mf.Identity(), mu, exact_distance(2), key=KEY, steps=0), OptionError, "steps = 0"),
    ],
)
def test_refusals(call: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        call(mf.Discrete.uniform(np.eye(2)))
