"""Adversarial clouds: the clusters of the theory, a search that climbs, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import DimensionMismatchError, DtypeError, NotFiniteError, OptionError, ShapeError

R = mf.regularity
HEAD = mf.Attention.random(jax.random.key(2), 3, heads=2)


def test_clusters_lie_on_the_eigenvector_that_grows_faster() -> None:
    # A is not symmetric: the eigenvector of Aᵀ is another one
    A = np.array([[2.0, 1.0], [0.0, -1.0]])
    s = 2 / math.sqrt(10)
    np.testing.assert_allclose(R.two_clusters(A, 3, 2.0), [[s, -3 * s], [-s, 3 * s], [-s, 3 * s]])
    A[0, 0] = 9.0
    np.testing.assert_allclose(R.two_clusters(A, 3, 2.0), [[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]], atol=1e-15)


@pytest.mark.parametrize(("eigenvalue", "exponent", "radii"), [(-1.0, 1.0, (2.0, 3.0)), (1.0, 1 / 8, (4.0, 6.0))])
def test_both_clusters_grow_exponentially(eigenvalue: float, exponent: float, radii: tuple[float, float]) -> None:
    """The constant at the best n is R² e^{exponent · |λ|R²}, up to a factor that changes slowly."""
    G = mf.Attention.head([[eigenvalue]], [[1.0]], [[1.0]])
    constants = []
    for radius in radii:
        best = 0.0
        for n in np.geomspace(2, 1e18, 60):
            first, second = R.two_clusters([[eigenvalue]], 2, radius)
            mu = mf.Discrete.weighted(np.stack([first, second]), [1 / n, 1 - 1 / n])
            best = max(best, mf.local_lipschitz(G, mu).lower)
        constants.append(best / radius**2)
    assert math.log(constants[1] / constants[0]) / (radii[1] ** 2 - radii[0] ** 2) == pytest.approx(exponent, rel=0.15)


def test_the_search_climbs_stays_in_the_ball_and_compiles_once() -> None:
    n, radius = 12, 1.5
    start = R.adversary(HEAD, n, radius, steps=0)
    found: list[Any] = []

    def search() -> None:
        found.append(R.adversary(HEAD, n - 1, 1.1 * radius, steps=3))
        found.append(R.adversary(HEAD, n, radius, steps=30, key=jax.random.key(4)))

    # candidates are ranked by the program that climbs
    assert count_compilations(search) <= 1  # the key of the test itself
    for mu, most in zip(found, (1.1 * radius, radius), strict=True):
        assert float(mu.radius()) <= most * (1 + 1e-12)
    before, after = (mf.local_lipschitz(HEAD, mu).lower for mu in (start, found[1]))
    assert after > 1.01 * before
    random = np.random.default_rng(0).normal(size=(30, n, 3))
    clouds = radius * random / np.linalg.norm(random, axis=2, keepdims=True)
    assert after > max(mf.local_lipschitz(HEAD, mf.Discrete.uniform(X)).lower for X in clouds)


def test_the_kind_of_measure_is_the_one_that_the_map_needs() -> None:
    assert isinstance(R.adversary(HEAD, 5, 1.0, steps=0), mf.Discrete)
    masked = R.adversary(mf.Causal(mf.Residual(HEAD)), 5, 1.0, steps=0)
    assert isinstance(masked, mf.SpaceTime)
    assert (masked.n, masked.dim) == (5, 3)


def test_maps_without_clusters_are_searched_from_a_random_cloud() -> None:
    # the derivative of x ↦ tanh(x) is largest at 0, where no random cloud on the sphere begins
    F = mf.MLP(np.eye(2), None, np.eye(2), None, activation="tanh")
    mu = R.adversary(F, 4, 1.0, steps=40)
    assert 0.95 < mf.local_lipschitz(F, mu).lower <= 1 + 1e-9


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: R.adversary(HEAD, 0, 1.0), OptionError, "n = 0"),
        (lambda: R.adversary(HEAD, 3, -1.0), OptionError, "radius = -1"),
        (lambda: R.adversary(HEAD, 3, math.inf), NotFiniteError, "radius = inf"),
        (lambda: R.adversary(HEAD, 3, 1.0, steps=-1), OptionError, "steps = -1"),
        (lambda: R.adversary(mf.Identity(), 3, 1.0), DimensionMismatchError, "any dimension"),
        (lambda: R.adversary("attention", 3, 1.0), DtypeError, "'attention' of type str; need an in-context map"),
        (lambda: R.two_clusters([[0.0, -1.0], [1.0, 0.0]], 3, 1.0), OptionError, "without real eigenvalues"),
        (lambda: R.two_clusters(np.ones((2, 3)), 3, 1.0), ShapeError, "square"),
    ],
)
def test_refusals(call: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
