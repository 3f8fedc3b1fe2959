"""Rescaled tokens: against the tokens themselves, the polytope of the limit, leaders, refusals."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import measureformer as mf
from measureformer.errors import DimensionMismatchError, DtypeError, NotFiniteError, OptionError

EYE = np.eye(2)
IDENTITY = mf.Attention.head(EYE, EYE, EYE)
LINE = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])


def rescaled_trajectory(G: Any, mu: Any, times: Any, **options: Any) -> Any:
    mu = mu if isinstance(mu, mf.Discrete) else mf.Discrete.uniform(mu)
    return mf.flow(mf.Rescaled(G), mu, times, **options)


def tokens(traj: Any, i: int) -> np.ndarray:
    return np.asarray(traj.velocity.maps[0].at_time(traj.times[i]).original(traj.points[i]))


def leaders(traj: Any, i: int) -> Any:
    return mf.clustering.leaders(traj.velocity.maps[0].at_time(traj.times[i]), traj.measures[i])


def test_the_same_tokens_as_without_rescaling() -> None:
    # kills: V on one side only, A transposed, weights ignored, e^{tV} in place of its transpose
    rng = np.random.default_rng(0)
    Q, K, V, W = rng.normal(size=(4, 2, 2)) / 2
    X, w = rng.normal(size=(12, 2)), rng.uniform(0.5, 2, size=12)
    A = 0.7 * K.T @ Q

    def right(t: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(12, 2)
        logits = (x @ A.T) @ x.T
        P = w * np.exp(logits - logits.max(axis=1, keepdims=True))
        return ((P / P.sum(axis=1, keepdims=True)) @ x @ (W @ V).T).ravel()

    expected = solve_ivp(right, (0, 2), X.ravel(), rtol=1e-11, atol=1e-12, method="DOP853").y[:, -1].reshape(12, 2)
    G = mf.Attention(Q[None], K[None], V[None], W[None], scale=0.7)
    traj = rescaled_trajectory(G, mf.Discrete.weighted(X, w), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(tokens(traj, 2), expected, atol=1e-6 * np.abs(expected).max())
    assert np.abs(np.asarray(traj.points[2]) - expected).max() > 0.1
    np.testing.assert_allclose(traj.measures[1].weights, w)


def test_the_hull_shrinks_to_a_polytope_and_tokens_to_special_points() -> None:
    X = np.random.default_rng(2).uniform(-1, 1, size=(20, 2))
    traj = rescaled_trajectory(IDENTITY, X, [0.0, 1.0, 4.0, 15.0])
    angles = np.linspace(0, 2 * np.pi, 100)
    support = (np.asarray(traj.points) @ np.stack([np.cos(angles), np.sin(angles)])).max(axis=1)
    assert (np.diff(support, axis=0) < 1e-6).all()
    assert support[0].max() - support[3].max() > 1e-3
    z = np.asarray(traj.points[3])
    vertices = z[mf.clustering.polytope_vertices(z)]
    np.testing.assert_allclose(np.sum(z * z, axis=1), (z @ vertices.T).max(axis=1), atol=1e-3)
    # not so at the beginning
    assert np.abs(np.sum(X * X, axis=1) - (X @ X[mf.clustering.polytope_vertices(X)].T).max(axis=1)).max() > 0.1


def test_leaders_on_the_line() -> None:
    # a token in the middle that is pulled both ways: its row stays uniform, as long as rounding allows
    sharp = diffrax.PIDController(rtol=1e-12, atol=1e-12)
    index, share = leaders(rescaled_trajectory(LINE, [[-1.0], [0.0], [1.0]], [0.0, 1.9], steps=sharp), 1)
    assert index[[0, 2]].tolist() == [0, 2]
    np.testing.assert_allclose(share, [1, 1 / 3, 1], atol=1e-8)
    # no two tokens are close, so the logits of the leader and of the next token are far apart in the end
    X = np.random.default_rng(1).permutation(np.linspace(-1, 0.9, 12))[:, None]
    traj = rescaled_trajectory(LINE, X, [0.0, 8.0])
    index, share = leaders(traj, 1)
    grown = np.abs(tokens(traj, 1)[:, 0]) > 1
    assert grown.sum() >= 10
    assert set(index[grown].tolist()) <= {int(X.argmin()), int(X.argmax())}
    np.testing.assert_allclose(share[grown], 1, atol=1e-6)
    np.testing.assert_array_equal(index[grown] == X.argmax(), tokens(traj, 1)[grown, 0] > 0)


def test_a_simple_dominant_eigenvalue_gives_parallel_hyperplanes() -> None:
    V = np.array([[0.64709742, 0.81911926], [0.61210449, 0.63263484]])
    traj = rescaled_trajectory(mf.Attention.head(EYE, EYE, V), np.random.default_rng(3).normal(size=(20, 2)), [0, 6])
    values, vectors = np.linalg.eig(V.T)
    assert mf.clustering.clusters(np.asarray(traj.points[1]) @ vectors[:, [values.argmax()]], 1e-2).count <= 3


def test_vertices_of_flat_clouds_and_of_a_point() -> None:
    square = np.array([[0, 0, 1.0], [1, 0, 1], [1, 1, 1], [0, 1, 1], [0.5, 0.5, 1], [0.5, 0.0, 1]])
    assert mf.clustering.polytope_vertices(square).tolist() == [0, 1, 2, 3]
    assert mf.clustering.polytope_vertices(square[[0, 4, 2]]).tolist() == [0, 2]
    assert mf.clustering.polytope_vertices(square[[1, 1]]).tolist() == [0]


def test_refusals() -> None:
    X = np.ones((3, 2))
    with pytest.raises(OptionError, match="begin at 1"):
        rescaled_trajectory(IDENTITY, X, [1.0, 2.0])
    with pytest.raises(DtypeError, match="one softmax head"):
        rescaled_trajectory(mf.L2Attention.head(EYE, EYE, EYE), X, [0, 1])
    with pytest.raises(DimensionMismatchError, match="itself"):
        rescaled_trajectory(mf.Attention.head(EYE, EYE, EYE[:1]), X, [0, 1])
    with pytest.raises(NotFiniteError, match="logits beyond the largest number at t = 400"):
        rescaled_trajectory(IDENTITY, X, [0.0, 300.0, 400.0])
    with pytest.raises(DtypeError, match="one softmax head"):
        mf.clustering.leaders(mf.Attention.random(jax.random.key(0), 2, heads=2), mf.Discrete.uniform(X))


def test_the_map_is_the_velocity_in_other_coordinates() -> None:
    # kills: V on the wrong side, the exponential transposed, logits of the wrong tokens
    rng, t = np.random.default_rng(4), 0.7
    Q, K, V = rng.normal(size=(3, 2, 2))
    G, mu, z = mf.Attention.head(Q, K, V), mf.Discrete.weighted(rng.normal(size=(6, 2)), rng.uniform(1, 2, 6)), EYE
    E = expm(t * V)
    grown = mu.with_points(jnp.asarray(np.asarray(mu.points) @ E.T))
    expected = np.asarray(G(grown, z @ E.T)) @ np.linalg.inv(E).T - z @ V.T
    np.testing.assert_allclose(mf.Rescaled(G, t)(mu, z), expected, atol=1e-12)
    np.testing.assert_allclose(mf.Rescaled(G, t).original(mu.points), grown.points, atol=1e-13)


def test_derivatives_in_the_values_of_the_head() -> None:
    X = np.random.default_rng(1).normal(size=(5, 2))

    def end(s: Any) -> Any:
        return mf.flow(
            mf.Rescaled(mf.Attention.head(EYE, EYE, (1 + s) * EYE)), mf.Discrete.uniform(X), [0.0, 1.0]
        ).points[-1]

    slope = jax.jit(jax.jacrev(end))(0.0)
    np.testing.assert_allclose(slope, (end(1e-5) - end(-1e-5)) / 2e-5, atol=1e-6)


def test_equal_steps_know_the_time() -> None:
    # kills: a velocity that is frozen at the time of the start of a step, or of the segment
    X = np.random.default_rng(1).normal(size=(5, 2))
    errors = []
    exact = rescaled_trajectory(IDENTITY, X, [0.0, 0.5, 1.0]).points
    for steps in (8, 16):
        errors.append(
            np.abs(rescaled_trajectory(IDENTITY, X, [0.0, 0.5, 1.0], solver="rk4", steps=steps).points - exact).max()
        )
    assert 10 < errors[0] / errors[1] < 25
