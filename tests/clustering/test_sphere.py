"""Tokens on the sphere: exact solutions, the energy identity, an independent solver, refusals."""

from __future__ import annotations

import math
from typing import Any

import diffrax
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import (
    DimensionMismatchError,
    NoClosedFormError,
    NotFiniteError,
    OffSphereError,
    OptionError,
    ZeroVectorError,
)

SHARP = diffrax.PIDController(rtol=1e-9, atol=1e-9)


def on_sphere(seed: int, n: int, d: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def head(beta: float, dim: int, *, normalized: bool = True) -> mf.AbstractInContextMap:
    kind = mf.Attention if normalized else mf.UnnormalizedAttention
    return kind.head(*[np.eye(dim)] * 3, scale=beta)


def sphere_trajectory(X: np.ndarray, beta: float, times: Any, *, normalized: bool = True) -> Any:
    velocity = mf.Tangent(head(beta, X.shape[1], normalized=normalized))
    return mf.flow(velocity, mf.Discrete.uniform(X), times)


def drift(X: np.ndarray, beta: float, *, normalized: bool) -> np.ndarray:
    """The field as it is written down, with all n × n weights."""
    weights = np.exp(beta * X @ X.T)
    mean = weights @ X / (weights.sum(axis=1, keepdims=True) if normalized else len(X))
    return mean - np.sum(mean * X, axis=1, keepdims=True) * X


@pytest.mark.parametrize("normalized", [True, False])
@given(seed=st.integers(0, 10**6), beta=st.sampled_from([-1.0, 0.0, 2.0]))
@settings(max_examples=6)
def test_against_another_solver(normalized: bool, seed: int, beta: float) -> None:
    # kills: β forgotten or on both sides, Σ in place of the mean in USA, pad rows that are felt
    X, d = on_sphere(seed, 7, 4), 4
    right = lambda t, y: drift(y.reshape(7, d), beta, normalized=normalized).ravel()  # noqa: E731
    other = solve_ivp(right, (0, 1.5), X.ravel(), rtol=1e-11, atol=1e-12, method="DOP853").y[:, -1].reshape(7, d)
    traj = sphere_trajectory(X, beta, [0.0, 0.7, 1.5], normalized=normalized)
    np.testing.assert_allclose(traj.points[2], other, atol=3e-8)
    np.testing.assert_allclose(np.linalg.norm(traj.points, axis=2), 1, atol=1e-12)


def test_tokens_stay_on_the_sphere_for_a_long_time() -> None:
    traj = sphere_trajectory(on_sphere(3, 7, 4), 2.0, [0.0, 10.0, 300.0])
    np.testing.assert_allclose(np.linalg.norm(traj.points, axis=2), 1, atol=1e-12)
    # one point in the end
    assert np.ptp(np.asarray(traj.points[2]), axis=0).max() < 1e-8


@pytest.mark.parametrize("normalized", [True, False])
def test_orthogonal_tokens_follow_the_equiangular_equation(normalized: bool) -> None:
    times = np.array([0.0, 0.3, 1.0])
    for beta in (0.0, 2.0):
        X = np.asarray(sphere_trajectory(np.eye(4), beta, times, normalized=normalized).points)
        products = (X @ X.swapaxes(1, 2))[:, *np.triu_indices(4, 1)]
        curve = mf.clustering.equiangular(4, beta, times, normalized=normalized)
        np.testing.assert_allclose(products, np.asarray(curve.cosines)[:, None] * np.ones(6), atol=1e-8)
        if beta == 0:
            exact = [mf.clustering.geshkovski23_equiangular(4, t) for t in times]
            np.testing.assert_allclose(curve.cosines, exact, atol=1e-10)
    assert curve.cosines[2] > 0.2


def test_numbers_and_tails_of_the_equiangular_equation() -> None:
    for n, gamma, t in ((467, 0.9, 4.171896), (32, 0.999, 5.186261)):
        assert float(mf.clustering.equiangular(n, 0.0, [0, t]).cosines[1]) == pytest.approx(gamma, abs=1e-6)
        exact = 0.5 * math.log((1 + (n - 1) * gamma) / (1 - gamma))
        assert mf.clustering.geshkovski23_equiangular(n, exact) == pytest.approx(gamma, rel=1e-13)
    for normalized, rate in ((True, -2.0), (False, -2 * math.exp(2))):
        gaps = mf.clustering.equiangular(5, 2.0, [0.0, 20.0, 40.0], normalized=normalized).log_gaps
        assert float(gaps[2] - gaps[1]) / 20 == pytest.approx(rate, rel=1e-4)
    assert mf.clustering.geshkovski23_equiangular(5, 1000.0) == 1


@pytest.mark.parametrize("normalized", [True, False])
def test_normalised_before_the_layer_tokens_grow(normalized: bool) -> None:
    # kills: a norm that is divided by twice
    X = on_sphere(1, 7, 4) * np.linspace(0.5, 2, 7)[:, None]

    def right(t: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(7, 4) / np.linalg.norm(y.reshape(7, 4), axis=1, keepdims=True)
        weights = np.exp(1.5 * x @ x.T)
        return (weights @ x / (weights.sum(axis=1, keepdims=True) if normalized else 7)).ravel()

    other = solve_ivp(right, (0, 3), X.ravel(), rtol=1e-11, atol=1e-12, method="DOP853").y[:, -1].reshape(7, 4)
    found = mf.flow(
        head(1.5, 4, normalized=normalized) @ mf.UnitNorm(np.ones(4)), mf.Discrete.uniform(X), [0.0, 3.0], steps=SHARP
    )
    np.testing.assert_allclose(found.points[-1], other, atol=1e-7)


@pytest.mark.parametrize("normalized", [True, False])
def test_equal_angles_when_tokens_grow(normalized: bool) -> None:
    times = [0.0, 0.5, 2.0]
    layer = head(2.0, 4, normalized=normalized) @ mf.UnitNorm(np.ones(4))
    points = np.asarray(mf.flow(layer, mf.Discrete.uniform(np.eye(4)), times, steps=SHARP).points)
    norms = np.linalg.norm(points, axis=2)
    curve = mf.clustering.equiangular(4, 2.0, times, normalized=normalized, norm="pre")
    X = points / norms[:, :, None]
    products = (X @ X.swapaxes(1, 2))[:, *np.triu_indices(4, 1)]
    np.testing.assert_allclose(products, np.asarray(curve.cosines)[:, None] * np.ones(6), atol=1e-8)
    np.testing.assert_allclose(norms, np.asarray(curve.norms)[:, None] * np.ones(4), rtol=1e-8)
    assert float(curve.norms[2]) > 1.2


def test_angles_close_like_the_inverse_square_of_the_depth() -> None:
    for beta in (0.0, 1.0):
        curve = mf.clustering.equiangular(5, beta, [0.0, 1e3, 1e4], norm="pre")
        assert float(curve.log_gaps[2] - curve.log_gaps[1]) / math.log(10) == pytest.approx(-2, abs=0.02)
    # e^{−2t} if normalised afterwards, by the test of tails above


def test_long_contexts_have_a_critical_temperature() -> None:
    exact = mf.clustering.rigollet25_long_context
    for rho, gamma, n in ((0.5, 2.0, 30), (0.3, 1.2, 11), (0.8, 7.0, 5)):
        # one layer among n tokens with equal angles, by brute force
        X = np.linalg.cholesky((1 - rho) * np.eye(n) + rho)
        weights = np.exp(gamma * np.log(n) * X @ X.T)
        Y = weights @ X / weights.sum(axis=1, keepdims=True)
        cosine = Y[0] @ Y[1] / np.linalg.norm(Y[0]) / np.linalg.norm(Y[1])
        assert exact(rho, gamma, n) == pytest.approx(cosine, rel=1e-12)
    assert exact(0.5, 2.0, 10**6) == pytest.approx(0.8, abs=1e-3)
    assert exact(0.5, 1.5, 10**6) == pytest.approx(0.9991, abs=1e-4)
    assert exact(0.5, 2.5, 10**6) == pytest.approx(0.5156, abs=1e-4)
    assert [exact(0.5, gamma) for gamma in (1.99, 2.0, 2.01)] == [1.0, 0.8, 0.5]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_the_energy_grows_as_it_should(seed: int) -> None:
    X, h = on_sphere(seed, 7, 4), 1e-3
    times = [0.0, 0.5 - h, 0.5, 0.5 + h, 2.0]
    traj = sphere_trajectory(X, 2.0, times, normalized=False)
    E = energy(traj, 2.0)
    now = np.asarray(traj.points[2])
    speed = np.sum(drift(now, 2.0, normalized=False) ** 2) / 7
    assert (E[3] - E[1]) / (2 * h) == pytest.approx(speed, rel=1e-4, abs=1e-7)
    assert E[2] == pytest.approx(np.exp(2 * now @ now.T).sum() / (4 * 49), rel=1e-12)
    assert (np.diff(energy(sphere_trajectory(X, 2.0, times), 2.0)) > -1e-12).all()


def energy(traj: Any, beta: float) -> np.ndarray:
    return np.array([mf.clustering.sphere_energy(points, beta) for points in traj.points])


def test_energy_at_zero_is_a_limit() -> None:
    X = on_sphere(0, 5, 3)
    small = mf.clustering.sphere_energy(X, 1e-6) - 1 / 2e-6
    assert mf.clustering.sphere_energy(X, 0.0) == pytest.approx(small, abs=1e-5)
    with pytest.raises(NotFiniteError, match="700"):
        mf.clustering.sphere_energy(X, 2000.0)


def test_sizes_inverse_temperatures_and_numbers_of_times_share_a_program() -> None:
    sphere_trajectory(on_sphere(0, 7, 4), 2.0, [0.0, 0.1, 0.3])
    run = lambda: sphere_trajectory(on_sphere(1, 9, 4), 1.0, [0.0, 0.1, 0.2])  # noqa: E731
    assert count_compilations(run) == 0
    assert run().measures[2].n == 9


def test_single_precision_in_and_out() -> None:
    X, eye = on_sphere(0, 7, 4).astype(np.float32), np.eye(4, dtype=np.float32)
    traj = mf.flow(mf.Tangent(mf.Attention.head(eye, eye, eye)), mf.Discrete.uniform(X), [0.0, 0.1])
    assert traj.points.dtype == np.float32


def test_derivatives_in_the_inverse_temperature_and_the_tokens() -> None:
    X = on_sphere(2, 5, 3)
    direction = np.random.default_rng(3).normal(size=X.shape)

    def end(s: Any) -> Any:
        # off the sphere the flow starts at the normalised points
        velocity = mf.Tangent(mf.Attention.head(*[np.eye(3)] * 3, scale=2.0 + s))
        return mf.flow(velocity, mf.Discrete.uniform(X + s * direction), [0.0, 0.5]).points[-1][:, 0].sum()

    value, slope = jax.jit(jax.value_and_grad(end))(0.0)
    assert float(value) == pytest.approx(float(sphere_trajectory(X, 2.0, [0.0, 0.5]).points[-1][:, 0].sum()), abs=1e-12)
    ends = []
    for s in (1e-5, -1e-5):
        moved = X + s * direction
        ends.append(
            float(
                sphere_trajectory(moved / np.linalg.norm(moved, axis=1)[:, None], 2.0 + s, [0, 0.5])
                .points[-1][:, 0]
                .sum()
            )
        )
    assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_laws_of_the_tangent_map(seed: int) -> None:
    # kills: the projection at x in place of x/|x|, norms of the atoms that are felt
    X, rng = on_sphere(seed, 7, 4), np.random.default_rng(seed)
    x, radii = rng.normal(size=(3, 4)), rng.uniform(0.5, 2, 7)
    G, mu = mf.Attention.random(jax.random.key(seed), 4), mf.Discrete.uniform(X)
    v = mf.Tangent(G)
    values = np.asarray(v(mu, x))
    np.testing.assert_allclose(np.sum(values * x, axis=1), 0, atol=1e-13)
    np.testing.assert_allclose(v(mf.Discrete.uniform(radii[:, None] * X), 3 * x), 3 * values, atol=1e-13)
    y = np.asarray(G(mu, X))
    np.testing.assert_allclose(v(mu, X), y - np.sum(y * X, axis=1, keepdims=True) * X, atol=1e-13)
    np.testing.assert_allclose(v.push(mu).points, v(mu, X), atol=1e-13)


def test_refusals() -> None:
    X = on_sphere(0, 7, 4)
    for bad in ((0.0, 1.0, 5), (0.5, 1.0, 1)):
        with pytest.raises(OptionError):
            mf.clustering.rigollet25_long_context(*bad)
    off = X.copy()
    off[3] *= 1 + 1e-6
    with pytest.raises(OffSphereError, match=r"point 3 with norm 1\.000001"):
        sphere_trajectory(off, 1.0, [0, 1])
    with pytest.raises(ZeroVectorError, match="query 0"):
        mf.Tangent(head(1.0, 4))(mf.Discrete.uniform(X), np.zeros(4))
    with pytest.raises(DimensionMismatchError, match="itself"):
        mf.Tangent(mf.Linear(np.ones((2, 3))))
    with pytest.raises(NoClosedFormError, match="Tangent"):
        mf.flow(mf.Tangent(head(1.0, 2)), mf.Gaussian([0.0, 0.0], np.eye(2)), [0, 1])
    with pytest.raises(OptionError, match="start = 1"):
        mf.clustering.equiangular(5, 1.0, [0, 1], start=1.0)
    with pytest.raises(OptionError, match="n ≥ 2"):
        mf.clustering.equiangular(1, 1.0, [0, 1])
    with pytest.raises(OptionError, match="one of 'post', 'pre'"):
        mf.clustering.equiangular(5, 1.0, [0, 1], norm="both")  # pyright: ignore[reportArgumentType]
