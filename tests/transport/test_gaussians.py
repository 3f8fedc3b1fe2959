"""W_2 between Gaussians: the trace formula, singular covariances, derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

import measureformer as mf

seeds = st.integers(0, 2**32 - 1)
gradient_of = jax.jit(jax.grad(mf.wasserstein))


def gaussian(seed: int, dim: int, rank: int) -> mf.Gaussian:
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(dim, rank))
    return mf.Gaussian(rng.normal(size=dim), factor @ factor.T)


@settings(max_examples=20)
@given(seeds, st.sampled_from([1, 2, 6]))
def test_trace_formula(seed: int, dim: int) -> None:
    # kills: the polar factor transposed, means left out
    g, h = gaussian(seed, dim, dim + 2), gaussian(seed + 1, dim, dim + 2)
    A, B = np.asarray(g.cov), np.asarray(h.cov)
    root = np.real(sqrtm(A))
    square = np.trace(A + B - 2 * np.real(sqrtm(root @ B @ root))) + np.sum((np.asarray(g.mean() - h.mean())) ** 2)
    assert float(mf.wasserstein(g, h)) == pytest.approx(np.sqrt(square), rel=1e-7)
    assert float(mf.wasserstein(2 * g, 2 * h) ** 2) == pytest.approx(2 * square, rel=1e-7)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 4), (2, 3), (0, 2), (0, 0)])
def test_singular_covariances(first: int, second: int) -> None:
    """Fewer samples than dimensions: never NaN, never negative, and a distance."""
    g, h = gaussian(0, 4, first), gaussian(1, 4, second)
    distance = float(mf.wasserstein(g, h))
    assert np.isfinite(distance)
    assert distance >= float(np.linalg.norm(np.asarray(g.mean() - h.mean()))) - 1e-12
    assert float(mf.wasserstein(h, g)) == pytest.approx(distance, rel=1e-12)
    # the root of a rounding error of a zero eigenvalue
    assert float(mf.wasserstein(g, g)) < 1e-7
    for leaf in jax.tree.leaves(gradient_of(g, h)):
        assert np.isfinite(np.asarray(leaf)).all()


def test_one_atom_is_a_gaussian_without_spread() -> None:
    dirac, g = mf.Gaussian([0.0, 0.0], np.zeros((2, 2))), mf.Gaussian([3.0, 0.0], np.diag([7.0, 9.0]))
    assert float(mf.wasserstein(dirac, g)) == pytest.approx(5, rel=1e-14)


def test_line() -> None:
    g, h = mf.Gaussian([1.0], [[4.0]]), mf.Gaussian([-2.0], [[1.0]])
    assert float(mf.wasserstein(g, h)) == pytest.approx(np.sqrt(10), rel=1e-14)
    # the same by quantiles of many atoms: equal quantiles miss the tails, whose share of the variance is ~ log n / n
    assert float(mf.wasserstein(g.discretize(4096), h.discretize(4096))) == pytest.approx(np.sqrt(10), rel=1e-3)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_derivatives(rank: int) -> None:
    """Against differences along covariances that keep their range, where W_2 is differentiable even if singular.

    They are taken of |m−n|² + |F|² + tr B − 2 ‖B^{1/2}F‖_* with A = FFᵀ: from A itself, the rounding error ε of an
    eigenvalue 0 would be a difference of √ε, which is 1e-8, over the step.
    """
    g, h = gaussian(0, 3, rank), gaussian(1, 3, 3)
    rng = np.random.default_rng(2)
    push, move = 0.3 * rng.normal(size=(3, 3)), rng.normal(size=3)
    A, B = np.asarray(g.cov), np.asarray(h.cov)
    factor = np.random.default_rng(0).normal(size=(3, rank))
    np.testing.assert_allclose(factor @ factor.T, A, atol=1e-15)

    def distance(step: float) -> float:
        F = (np.eye(3) + step * push @ A) @ factor
        nuclear = np.linalg.svd(np.real(sqrtm(B)) @ F, compute_uv=False).sum()
        away = np.asarray(g.mean() - h.mean()) + step * move
        return float(np.sqrt(away @ away + np.sum(F**2) + np.trace(B) - 2 * nuclear))

    # the root of a rounding error, if an eigenvalue is 0
    assert float(mf.wasserstein(g, h)) == pytest.approx(distance(0.0), abs=1e-12 if rank > 2 else 1e-7)
    step = 1e-5
    difference = (distance(step) - distance(-step)) / (2 * step)
    slope = push @ A @ A
    gradient = gradient_of(g, h)
    found = float(jnp.vdot(gradient.center, move) + jnp.vdot(gradient.cov, slope + slope.T))
    # h² times a third derivative, and roundings of 1e-16/h
    assert found == pytest.approx(difference, abs=1e-7)
    assert abs(found) > 1e-3


def test_distance_zero_has_derivative_zero() -> None:
    g = gaussian(0, 2, 2)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(gradient_of(g, g)))
