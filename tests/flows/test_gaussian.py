"""Flows of Gaussians against closed forms, an independent solver, and what must be refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import expm, sqrtm

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import (
    BlowUpError,
    DimensionMismatchError,
    NoClosedFormError,
    OptionError,
    ShapeError,
    TimeError,
)
from measureformer.flows import gaussian as _gaussian
from measureformer.flows.gaussian import moment_rates
from measureformer.flows.settings import settings_of

Field = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
LINE = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
EPS = 0.7
SHARP = settings_of("dopri8", diffrax.PIDController(rtol=1e-11, atol=1e-14), _gaussian.PRECISE)[0]


def matrices(seed: int, count: int, d: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, d, d)) / math.sqrt(2 * d)


def covariance(seed: int, d: int = 2) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T / d + 0.3 * np.eye(d)


Q, K, V, Q2, K2, V2 = matrices(0, 6)
A, A2 = K.T @ Q, K2.T @ Q2
EYE = np.eye(2)


def _softmax(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return V @ (EYE + S @ A) @ m, V @ S @ A


def _l2(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = V @ np.linalg.inv(EYE + 2 * S @ K.T @ K)
    return left @ (EYE + 2 * S @ A) @ m, 2 * left @ S @ A


def _sinkhorn(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # the other formula, C_Σ = ½(Σ^{1/2}(4Σ^{1/2}AᵀΣAΣ^{1/2}+I)^{1/2}Σ^{-1/2} − I), Cᵀ = A^{-T}Σ^{-1}C_ΣΣ
    half = np.real(sqrtm(S))
    inner = half @ np.real(sqrtm(4 * half @ A.T @ S @ A @ half + EYE)) @ np.linalg.inv(half)
    Ct = np.linalg.inv(A).T @ np.linalg.inv(S) @ (0.5 * (inner - EYE)) @ S
    return V @ m, V @ Ct @ np.linalg.inv(S)


def _heads(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    B = V @ S @ A / math.sqrt(2) + V2 @ S @ A2 / math.sqrt(2)
    return (V + V2) @ m + B @ m, B


def _linear(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    B = V @ (S + np.outer(m, m)) @ A
    return B @ m, B


def _shift(m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return 0 * m, -EPS * np.linalg.inv(S + EPS * EYE)


ROWS: dict[str, tuple[Any, Field]] = {
    "softmax": (mf.Attention.head(Q, K, V), _softmax),
    "L2": (mf.L2Attention.head(Q, K, V), _l2),
    "Sinkhorn": (mf.SinkhornAttention.head(Q, K, V), _sinkhorn),
    "two heads": (
        mf.Attention(np.stack([Q, Q2]), np.stack([K, K2]), np.stack([V, V2]), np.stack([EYE, EYE]), scale=0.5**0.5),
        _heads,
    ),
    "linear": (mf.LinearAttention.head(Q, K, V), _linear),
    "mean shift": (mf.L2Attention.head(EYE, EYE, EYE, scale=1 / (2 * EPS)) - mf.Identity(), _shift),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_the_table_against_another_solver(name: str) -> None:
    # kills: A transposed, Cᵀ and C exchanged, a factor 2 in L2, Σ without mmᵀ, ε without its ½
    G, formula = ROWS[name]
    mean, cov = np.array([0.5, -1.0]), covariance(1)

    def right(t: float, y: np.ndarray) -> np.ndarray:
        rate, B = formula(y[:2], y[2:].reshape(2, 2))
        return np.concatenate([rate, (B @ y[2:].reshape(2, 2) + y[2:].reshape(2, 2) @ B.T).ravel()])

    start = np.concatenate([mean, cov.ravel()])
    rates = moment_rates(G, mf.Gaussian(mean, cov))
    np.testing.assert_allclose(np.concatenate([rates[0], np.ravel(rates[1])]), right(0, start), atol=1e-13)
    other = solve_ivp(right, (0, 0.6), start, t_eval=[0.2, 0.6], rtol=1e-11, atol=1e-12, method="DOP853").y.T
    traj = mf.flow(G, mf.Gaussian(mean, cov), [0.0, 0.2, 0.6])
    assert traj.blow_up is None
    np.testing.assert_allclose(traj.means[1:], other[:, :2], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(traj.covs[1:], other[:, 2:].reshape(2, 2, 2), rtol=1e-8, atol=1e-9)
    assert np.abs(other[1] - start).max() > 1e-2


def test_numbers_on_the_line() -> None:
    traj = mf.flow(LINE, 3 * mf.Gaussian([2.0], [[1.0]]), [0.0, 0.25, 0.499, 0.7])
    np.testing.assert_allclose(traj.covs[:, 0, 0], [1, 2, 500], rtol=1e-8)
    assert float(traj.means[1, 0]) == pytest.approx(2 * 1.815886, abs=2e-6)
    assert traj.blow_up == pytest.approx(0.5, abs=1e-9)
    assert traj.times.tolist() == [0.0, 0.25, 0.499]
    assert float(traj.measures[1].mass) == pytest.approx(3)
    assert traj.measures[2].same_as(3 * mf.Gaussian(traj.means[2], traj.covs[2]))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_identity_values_follow_the_closed_forms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, cov, mean = rng.normal(size=(3, 3)) / 2, covariance(seed, 3), rng.normal(size=3)
    end = mf.flows.castin25_blow_up(A, cov)
    # a random A + Aᵀ is indefinite or positive here, now and then negative definite
    last = 2.0 if end is None else 0.9 * end
    flow = mf.flow(mf.Attention.head(A, np.eye(3), np.eye(3)), mf.Gaussian(mean, cov), [0.0, last])
    assert flow.blow_up is None
    expected = np.linalg.inv(np.linalg.inv(cov) - last * (A + A.T))
    np.testing.assert_allclose(flow.covs[1], expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(mf.flows.castin25_covariance(A, cov, last), expected, rtol=1e-9, atol=1e-12)
    if end is not None:
        beyond = mf.flow(mf.Attention.head(A, np.eye(3), np.eye(3)), mf.Gaussian(mean, cov), [0.0, 2 * end])
        assert beyond.blow_up == pytest.approx(end, rel=1e-8)
        assert beyond.times.tolist() == [0.0]


def test_the_mean_for_a_symmetric_matrix_and_the_diagonal_case() -> None:
    rng = np.random.default_rng(5)
    draw = rng.normal(size=(3, 3))
    A, cov, mean = -(draw @ draw.T) / 3, covariance(6, 3), rng.normal(size=3)
    flow = mf.flow(mf.Attention.head(A, np.eye(3), np.eye(3)), mf.Gaussian(mean, cov), [0.0, 0.8])
    expected = math.exp(0.8) * np.real(np.linalg.inv(sqrtm(np.eye(3) - 1.6 * cov @ A))) @ mean
    np.testing.assert_allclose(flow.means[1], expected, rtol=1e-8)
    v, a, s = np.array([1.0, -0.5, 2.0]), np.array([0.3, 1.0, -1.0]), np.array([1.0, 2.0, 0.5])
    flow = mf.flow(
        mf.Attention.head(np.diag(a), np.eye(3), np.diag(v)), mf.Gaussian(np.zeros(3), np.diag(s)), [0.0, 1.0]
    )
    np.testing.assert_allclose(flow.covs[1], np.diag(s / (1 - 2 * v * a * s)), rtol=1e-8, atol=1e-12)


def test_l2_and_sinkhorn_grow_without_explosion() -> None:
    # two lines at once: the second coordinate starts at 2 and knows nothing of the first
    start = mf.Gaussian([0.0, 0.0], np.diag([1.0, 2.0]))
    doubling = (2 * math.log(2) + 0.5) / 4
    times = np.array([0.0, doubling, 9.0])
    L2 = mf.flow(mf.L2Attention.head(EYE, EYE, EYE), start, times)
    assert float(L2.covs[1, 0, 0]) == pytest.approx(2, rel=1e-9)
    s = np.diagonal(np.asarray(L2.covs), axis1=1, axis2=2)
    invariant = 2 * np.log(s) - 1 / s - 4 * times[:, None]
    np.testing.assert_allclose(invariant - invariant[0], 0, atol=1e-8)
    times = np.array([0.0, 1.0, 20.0])
    sinkhorn = mf.flow(mf.SinkhornAttention.head(EYE, EYE, EYE), start, times)
    u = np.arcsinh(2 * np.diagonal(np.asarray(sinkhorn.covs), axis1=1, axis2=2))
    invariant = u - 1 / np.tanh(u / 2) - 2 * times[:, None]
    assert u[0, 0] == pytest.approx(1.443635, abs=1e-6)
    assert invariant[0, 0] == pytest.approx(-0.174399, abs=1e-6)
    np.testing.assert_allclose(invariant - invariant[0], 0, atol=1e-8)
    assert L2.blow_up is None
    assert sinkhorn.blow_up is None


def test_a_singular_covariance_keeps_its_rank_exactly() -> None:
    root = np.array([[1.0, 2.0], [0.5, -1.0], [1.0, 0.0]])
    A = np.array([[0.1, 0.3, 0.0], [-0.2, 0.1, 0.4], [0.0, 0.1, -0.3]])
    G, cov = mf.Attention.head(A, np.eye(3), np.eye(3)), root @ root.T
    last = 0.5 * (mf.flows.castin25_blow_up(A, cov) or 2.0)
    flow = mf.flow(G, mf.Gaussian(np.ones(3), cov), [0.0, last])
    assert flow.roots.shape == (2, 3, 2)
    # the closed form for singular covariances is the limit of that for regular ones
    limit = mf.flows.castin25_covariance(A, cov + 1e-9 * np.eye(3), last)
    np.testing.assert_allclose(flow.covs[1], limit, atol=1e-6)
    np.testing.assert_allclose(mf.flows.castin25_covariance(A, cov, last), limit, atol=1e-6)
    assert np.linalg.eigvalsh(flow.covs[1])[0] > -1e-14
    assert flow.rank().tolist() == [2, 2]
    # a Dirac measure moves like e^t, and has no covariance to lose
    point = mf.flow(LINE, mf.Gaussian([2.0], [[0.0]]), [0.0, 1.0])
    assert float(point.means[1, 0]) == pytest.approx(2 * math.e, rel=1e-9)
    assert point.rank().tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_the_limit_of_a_contracting_flow(seed: int) -> None:
    q = np.zeros((3, 3))
    q[0] = np.random.default_rng(seed).normal(size=3)
    G, cov = mf.Attention.head(q, -q, np.eye(3)), covariance(seed, 3)
    flow = mf.flow(G, mf.Gaussian(np.zeros(3), cov), [0.0, 1e4])
    # S = −2qᵀq has a kernel of dimension 2, on which the inverse is what it was
    P = np.eye(3) - np.linalg.pinv(q) @ q
    expected = P @ np.linalg.pinv(P @ np.linalg.inv(cov) @ P) @ P
    np.testing.assert_allclose(flow.covs[1], expected, atol=1e-2 * np.abs(expected).max())
    assert flow.rank(1e-3).tolist() == [3, 2]
    np.testing.assert_allclose(moment_rates(G, mf.Gaussian(np.zeros(3), expected))[1], 0, atol=1e-12)


def test_rank_bound_by_hand() -> None:
    rank = mf.clustering.castin25_stationary_rank
    assert rank(np.diag([1.0, -1.0, -1.0, 0.0, 0.0])) == 3
    assert [rank(np.diag(s)) for s in ([1, 1, -1, -1], [1, 1, 1, -1], [1, 1, 1, 1])] == [2, 1, 0]
    # attained: an isotropic vector for (1, −1), and the kernel
    B = np.zeros((5, 3))
    B[0, 0] = B[1, 0] = B[3, 1] = B[4, 2] = 1.0
    A = np.diag([1.0, -1.0, -1.0, 0.0, 0.0])
    G = mf.Attention.head(A, np.eye(5), np.eye(5))
    np.testing.assert_allclose(moment_rates(G, mf.Gaussian(np.zeros(5), B @ B.T))[1], 0, atol=1e-15)


def test_a_residual_layer_is_exact_and_many_of_them_are_the_flow() -> None:
    G, mean, cov = mf.Attention.head(Q, K, V), np.array([0.5, -1.0]), covariance(1)
    tau, B = 0.3, V @ cov @ A
    pushed = mf.Residual(G, tau).push(mf.Gaussian(mean, cov))
    np.testing.assert_allclose(pushed.covariance(), (EYE + tau * B) @ cov @ (EYE + tau * B).T, atol=1e-14)
    np.testing.assert_allclose(pushed.mean(), mean + tau * V @ (EYE + cov @ A) @ mean, atol=1e-14)
    exact = mf.flow(G, mf.Gaussian(mean, cov), [0.0, 0.6]).covs[1]

    def error(layers: int) -> float:
        g = mf.Gaussian(mean, cov)
        for _ in range(layers):
            g = mf.Residual(G, 0.6 / layers).push(g)
        return float(np.abs(g.covariance() - exact).max())

    assert 1.8 < error(20) / error(40) < 2.2


def test_time_is_additive_and_a_linear_velocity_is_an_exponential() -> None:
    G, g = mf.Attention.head(Q, K, V), mf.Gaussian([0.5, -1.0], covariance(1))
    whole = mf.flow(G, g, [0.0, 0.2, 0.6])
    half = mf.flow(G, whole.measures[1], [5.0, 5.4])
    np.testing.assert_allclose(half.covs[1], whole.covs[2], rtol=1e-8)
    M = np.array([[0.0, 1.0], [-2.0, -0.3]])
    flow = mf.flow(mf.Linear(M), g, [0.0, 2.0])
    E = expm(2 * M)
    np.testing.assert_allclose(flow.covs[1], E @ np.asarray(g.cov) @ E.T, atol=1e-8)
    np.testing.assert_allclose(flow.means[1], E @ np.asarray(g.center), atol=1e-8)


@pytest.mark.parametrize("v", [1.0, -0.7])
@given(seed=st.integers(0, 10**6), rank=st.sampled_from([2, 3]))
@settings(max_examples=4)
def test_closed_forms_are_what_integration_gives(v: float, seed: int, rank: int) -> None:
    # kills: A transposed or with its antisymmetric part, v forgotten in the slope of the mean, a wrong sign of the pole
    rng = np.random.default_rng(seed)
    S, L, mean = rng.normal(size=(3, 3)), rng.normal(size=(3, rank)), rng.normal(size=3)
    G, state = mf.Attention.head(S + S.T, np.eye(3), v * np.eye(3), scale=0.2), (mean, L)
    pole = mf.flows.castin25_blow_up(v * np.asarray(G.A[0]), L @ L.T)
    end = 2.0 if pole is None else 1.0 + pole
    times = np.array([1.0, 1.0 + 0.3 * (end - 1), 1.0 + 0.9 * (end - 1)])
    exact, found = _gaussian._exact(G, state, times), _gaussian._integrated(G, state, times, SHARP)
    assert exact is not None
    np.testing.assert_allclose(exact.means, found.means, rtol=1e-7, atol=1e-8)
    # roots differ by a rotation
    for one, other in zip(exact.roots, found.roots, strict=True):
        np.testing.assert_allclose(one @ one.T, other @ other.T, rtol=1e-7, atol=1e-8)
    if pole is not None:
        beyond = np.array([1.0, 1 + 2 * (end - 1)])
        for piece in (_gaussian._exact(G, state, beyond), _gaussian._integrated(G, state, beyond, SHARP)):
            assert piece is not None
            assert piece.blow_up == pytest.approx(end, rel=1e-8)


@given(seed=st.integers(0, 10**6))
def test_what_does_not_spread_does_not_blow_up(seed: int) -> None:
    # kills: an eigenvalue that is zero up to rounding, taken for a growth rate
    L = np.random.default_rng(seed).normal(size=(3, 2))
    S = np.diag([1.0, 2.0, 0.5]) - 10 * np.outer(normal := np.cross(*L.T), normal)
    assert mf.flows.castin25_blow_up(-np.eye(3), L @ L.T) is None
    assert mf.flows.castin25_blow_up(-np.outer(normal, normal), L @ L.T) is None
    assert mf.flows.castin25_blow_up(S, L @ L.T) is not None


def test_no_closed_form_where_there_is_none() -> None:
    state, times = (np.ones(2), EYE), np.array([0.0, 0.1])
    B = np.array([[1.0, 0.3], [0.3, -1.0]])
    assert _gaussian._exact(mf.Attention.head(B, EYE, EYE), state, times) is not None
    for G in (
        mf.Attention.head(np.array([[1.0, 0.3], [0.2, -1.0]]), EYE, EYE),
        mf.Attention.head(B, EYE, np.diag([1.0, 1.1])),
        mf.Attention(np.stack([B, B]), np.stack([EYE, EYE]), np.stack([EYE, EYE]), np.stack([EYE, EYE])),
        mf.L2Attention.head(B, EYE, EYE),
    ):
        assert _gaussian._exact(G, state, times) is None


def test_rates_of_contraction_for_negative_values() -> None:
    # V = −I, A = I: every eigenvalue times t tends to ½, and the mean falls like e^{−t}t^{−1/2}
    flow = mf.flow(mf.Attention.head(EYE, EYE, -EYE), mf.Gaussian([1.0, -2.0], covariance(4)), [0, 100, 200.0])
    np.testing.assert_allclose(np.linalg.eigvalsh(flow.covs[2]) * 200, 0.5, rtol=1e-2)
    logs = np.log(np.linalg.norm(flow.means, axis=1))
    assert logs[2] - logs[1] == pytest.approx(-100 - 0.5 * math.log(2), abs=0.01)


def test_layers_that_share_the_time_equally() -> None:
    # kills: layers in the wrong order, edges that depend on the requested times, a layer left out after its edge
    layers = [mf.Attention.head(Q, K, V), mf.Attention.head(K2, Q2, V2), mf.Attention.head(Q2, K, V)]
    g = mf.Gaussian([0.5, -1.0], covariance(1))
    traj = mf.flow(layers, g, [1.0, 1.15, 1.4, 1.6])
    now, expected = g, []
    for G, times in zip(layers, ([1.0, 1.15, 1.2], [1.2, 1.4], [1.4, 1.6]), strict=True):
        piece = mf.flow(G, now, times)
        now = piece.measures[-1]
        expected.append(piece)
    np.testing.assert_array_equal(traj.times, [1.0, 1.15, 1.4, 1.6])
    for i, (piece, j) in enumerate(((0, 0), (0, 1), (1, 1), (2, 1))):
        np.testing.assert_allclose(traj.means[i], expected[piece].means[j], rtol=1e-8)
        np.testing.assert_allclose(traj.covs[i], expected[piece].covs[j], rtol=1e-8)
    # the order is felt far above these tolerances
    wrong = mf.flow(layers[::-1], g, [1.0, 1.6])
    assert np.abs(np.asarray(wrong.covs[1]) - np.asarray(traj.covs[3])).max() > 1e-3


def test_a_blow_up_in_a_later_layer() -> None:
    # σ² stands still for half of the time, then 1/(1 − 2(t − 1)) from 1 on
    still = mf.Attention.head([[0.0]], [[1.0]], [[1.0]])
    traj = mf.flow([still, LINE], mf.Gaussian([0.0], [[1.0]]), [0.0, 0.5, 1.25, 2.0])
    assert traj.blow_up == pytest.approx(1.5, abs=1e-12)
    assert traj.times.tolist() == [0.0, 0.5, 1.25]
    np.testing.assert_allclose(traj.covs[:, 0, 0], [1, 1, 2], rtol=1e-12)


def test_blow_up_of_the_mean_alone_and_of_a_small_part() -> None:
    # linear attention almost at a Dirac measure: m' = m³
    G = mf.LinearAttention.head(EYE, EYE, EYE)
    assert mf.flow(G, mf.Gaussian([1.0, 0.0], 1e-20 * EYE), [0, 1]).blow_up == pytest.approx(0.5, abs=1e-9)
    # one direction explodes under a million times larger one that stands still
    G = mf.Attention.head(np.diag([0.0, 1.0]), np.eye(2), np.eye(2))
    g = mf.Gaussian([0.0, 0.0], np.diag([1e6, 1.0]))
    assert mf.flow(G, g, [0, 1]).blow_up == pytest.approx(0.5, abs=1e-8)


def test_precision_and_compilation() -> None:
    G, g = mf.Attention.head(Q, K, V), mf.Gaussian([0.5, -1.0], covariance(1))
    mf.flow(G, g, [0.0, 0.6])
    other = mf.Attention.head(K, Q, V2)
    assert count_compilations(lambda: mf.flow(other, g, np.linspace(0, 0.5, 7))) == 0
    g32 = mf.Gaussian(np.float32([0.5, -1]), np.float32(EYE))
    single = mf.flow(mf.Attention.head(*(a.astype(np.float32) for a in (Q, K, V))), g32, [0, 0.1])
    assert single.covs.dtype == single.means.dtype == np.float32


REFUSALS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "one time": (lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), [0.0]), TimeError, "at least two"),
    "times back": (lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), [0, 2, 1]), TimeError, "later than"),
    "a number": (lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), 1.0), ShapeError, "one axis"),
    "a mixture": (
        lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]) + mf.Gaussian([1.0], [[1.0]]), [0, 1]),
        NoClosedFormError,
        "flow of Attention on a GaussianMixture",
    ),
    "not affine": (
        lambda: mf.flow(mf.UnnormalizedAttention.head([[1.0]], [[1.0]], [[1.0]]), mf.Gaussian([0.0], [[1.0]]), [0, 1]),
        NoClosedFormError,
        "UnnormalizedAttention",
    ),
    "no layers": (lambda: mf.flow([], mf.Gaussian([0.0], [[1.0]]), [0, 1]), OptionError, "at least one"),
    "a layer of another space": (
        lambda: mf.flow([LINE, mf.Linear(EYE)], mf.Gaussian([0.0], [[1.0]]), [0, 1]),
        OptionError,
        "different forms",
    ),
    "dimension": (lambda: mf.flow(LINE, mf.Gaussian([0, 0], EYE), [0, 1]), DimensionMismatchError, "R\\^2"),
    "another space": (
        lambda: mf.flow(mf.Linear([[1.0, 0.0]]), mf.Gaussian([0, 0], EYE), [0, 1]),
        DimensionMismatchError,
        "itself",
    ),
    "equal steps": (lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), [0, 1], steps=4), OptionError, "steps = 4"),
    "saving": (lambda: mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), [0, 1], save="x"), OptionError, "save for a Gauss"),
    "too far": (
        lambda: mf.flow(LINE, mf.Gaussian([2.0], [[0.0]]), [0, 1000]),
        BlowUpError,
        "soon after t = 709",
    ),
    "after the end": (lambda: mf.flows.castin25_covariance([[1.0]], [[1.0]], 0.5), OptionError, "before the blow-up"),
    "asymmetric": (lambda: mf.clustering.castin25_stationary_rank(A), OptionError, "not symmetric"),
    "not square": (lambda: mf.flows.castin25_blow_up([[1.0, 2.0]], [[1.0]]), DimensionMismatchError, "square"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    call, error, words = REFUSALS[case]
    with pytest.raises(error, match=words):
        call()


def test_a_flow_that_ends_early_carries_its_last_state() -> None:
    with pytest.raises(BlowUpError) as caught:
        mf.flow(LINE, mf.Gaussian([2.0], [[0.0]]), [0, 1000])
    assert caught.value.last is not None
    time, measure = caught.value.last
    # without spread the mean obeys m' = m
    assert float(np.log(measure.center[0] / 2)) == pytest.approx(time, rel=1e-6)


def test_a_threshold_out_of_range_is_refused() -> None:
    flow = mf.flow(LINE, mf.Gaussian([0.0], [[1.0]]), [0.0, 0.1])
    with pytest.raises(OptionError, match="threshold"):
        flow.rank(2.0)


def test_derivatives_in_the_layer_and_the_gaussian() -> None:
    # a singular covariance: kills derivatives of its square root
    mean, cov, direction = np.array([0.5, -1.0]), np.diag([1.0, 0.0]), np.array([[0.3, 0.1], [0.1, 0.2]])

    def end(s: Any) -> Any:
        G = mf.Attention.head(Q + s * K, K, V)
        g = mf.Gaussian(jnp.asarray(mean) + s, jnp.asarray(cov) + s * direction)
        traj = mf.flow([G, mf.Attention.head(Q2, K2, V2)], g, [0.0, 0.3, 0.6])
        return jnp.concatenate([traj.means[2], traj.covs[2].ravel()])

    value, slope = jax.jit(end)(0.0), jax.jit(jax.jacrev(end))(0.0)
    np.testing.assert_allclose(value, end(0.0), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(slope, (end(2e-5) - end(0.0)) / 2e-5, rtol=1e-3, atol=1e-4)
