"""Flows of measures against closed forms, another solver, residual networks, and their own laws."""

from __future__ import annotations

import pickle
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import measureformer as mf
from compilations import count_compilations
from flow_examples import DIM, cloud, head, largest
from measureformer import errors

SHARP: dict[str, Any] = {"steps": diffrax.PIDController(rtol=1e-10, atol=1e-10)}


def brute_force(G: mf.Attention, mu: mf.Discrete, x: Any, t: float) -> np.ndarray:
    """Tokens and passive tokens x at time t, by SciPy and the plain formula."""
    (A,), values = np.asarray(G.A), np.asarray(G.W[0] @ G.V[0])
    start, weights = np.concatenate([mu.points, x]), np.asarray(mu.weights)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        rows = flat.reshape(start.shape)
        kernel = np.exp(rows @ A.T @ rows[: mu.n].T) * weights
        return (kernel / kernel.sum(1, keepdims=True) @ rows[: mu.n] @ values.T).ravel()

    found = solve_ivp(velocity, (0, t), start.ravel(), method="DOP853", rtol=1e-11, atol=1e-12)
    return found.y[:, -1].reshape(start.shape)


def test_without_logits_the_mean_moves_all_tokens_alike() -> None:
    # x(t) = x + (e^{Vt} − I) m. V is not symmetric and weights are not equal: kills Vᵀ and ignored weights
    V, mu = np.array([[0.5, -1.0], [0.3, 0.2]]), cloud()
    G = mf.Attention.head(np.zeros((DIM, DIM)), np.zeros((DIM, DIM)), V)
    traj = mf.flow(G, mu, [0.0, 0.3, 1.0], steps=diffrax.PIDController(rtol=1e-9, atol=1e-9))
    assert traj.times.tolist() == [0.0, 0.3, 1.0]
    for t, nu in zip(traj.times, traj.measures, strict=True):
        moved = np.asarray(mu.points) + (expm(V * t) - np.eye(DIM)) @ np.asarray(mu.mean())
        assert largest(nu.points - moved) < 1e-8
        np.testing.assert_array_equal(nu.log_weights, mu.log_weights)


def test_tokens_and_passive_tokens_agree_with_scipy() -> None:
    G, mu, x = head(), cloud(), np.random.default_rng(1).normal(size=(3, DIM))
    traj = mf.flow(G, mu, [0.0, 0.8], **SHARP)
    expected = brute_force(G, mu, x, 0.8)
    assert largest(traj.measures[-1].points - expected[: mu.n]) < 1e-8
    assert largest(traj.map(0.8)(mu, x) - expected[mu.n :]) < 1e-8
    # a time that was not asked for is computed
    assert largest(traj.at(0.5).points - brute_force(G, mu, x, 0.5)[: mu.n]) < 1e-8


def test_the_map_carries_its_own_atoms_and_those_of_any_other_measure() -> None:
    # kills: a map that moves points in the trajectory of the measure it was made from
    traj = mf.flow(head(), cloud(), [0.0, 0.8], **SHARP)
    other, x = cloud(5, n=9), np.zeros((1, DIM))
    phi = traj.map(0.8)
    assert largest(phi(other, x) - brute_force(head(), other, x, 0.8)[9:]) < 1e-8
    assert largest(phi(other, other.points) - phi.push(other).points) < 1e-8
    assert largest(phi.push(traj.initial).points - traj.measures[-1].points) < 1e-9
    assert traj.map(0.0).push(other).same_as(other)


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), s=st.sampled_from([0.2, 0.5]))
def test_flows_compose(seed: int, s: float) -> None:
    # φ_{t+s} = φ_t ⋄ φ_s, off the support too; the two sides take different steps
    traj = mf.flow(head(), cloud(seed), [0.0, 0.8], **SHARP)
    x = np.random.default_rng(seed).normal(size=(3, DIM))
    split = traj.map(0.8 - s) @ traj.map(s)
    assert largest(split(traj.initial, x) - traj.map(0.8)(traj.initial, x)) < 1e-8


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_a_flow_is_a_function_of_the_measure(seed: int) -> None:
    # kills: error norms averaged over rows, weights that are ignored, passive tokens that are felt
    mu = cloud(seed)
    rows = np.r_[np.arange(mu.n), 0, 0, 3]
    weights = np.r_[np.asarray(mu.weights), 0.0, 0.0, 0.0]
    weights[[0, mu.n]] = 0.3 * weights[0], 0.7 * weights[0]
    split = mf.Discrete.weighted(np.asarray(mu.points)[rows], weights)
    plain, other = (mf.flow(head(), measure, [0.0, 0.8]).measures[-1] for measure in (mu, 3.0 * split))
    # the tolerance is 1e-6, and the two take the same steps
    assert largest(other.points - np.asarray(plain.points)[rows]) < 1e-13


@pytest.mark.parametrize("layers", [1, 2])
def test_euler_is_a_residual_network(layers: int) -> None:
    maps, mu, x = [head(i) for i in range(layers)], cloud(), np.ones((2, DIM))
    traj = mf.flow(maps if layers > 1 else maps[0], mu, [0.0, 0.75], solver="euler", steps=6)
    net: Any = mf.Identity()
    for i in range(6):
        net = mf.Residual(maps[i * layers // 6], 0.75 / 6) @ net
    assert largest(traj.measures[-1].points - net.push(mu).points) < 1e-15
    assert largest(traj.map(0.75)(mu, x) - net(mu, x)) < 1e-15


def test_equal_steps_are_counted_between_the_times() -> None:
    mu = cloud()
    traj = mf.flow(head(), mu, [0.0, 0.25, 0.5], solver="euler", steps=2)
    nu = mu
    for _ in range(2):
        nu = mf.Residual(head(), 0.125).push(nu)
    assert largest(traj.measures[1].points - nu.points) < 1e-15
    assert largest(traj.map(0.25).push(mu).points - nu.points) < 1e-15
    with pytest.raises(errors.TimeError, match="one of its times"):
        traj.at(0.3)


def test_one_step_of_rk4_is_the_textbook_formula() -> None:
    G, mu, h = head(), cloud(), 0.4

    def v(points: Any) -> np.ndarray:
        return np.asarray(G.push(mu.with_points(jnp.asarray(points))).points)

    x = np.asarray(mu.points)
    k1 = v(x)
    k2 = v(x + h / 2 * k1)
    k3 = v(x + h / 2 * k2)
    k4 = v(x + h * k3)
    found = mf.flow(G, mu, [1.0, 1.0 + h], solver="rk4", steps=1).measures[-1]
    assert largest(found.points - (x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))) < 1e-14


@pytest.mark.parametrize("solver", ["dopri8", "heun"])
def test_other_solvers_keep_their_tolerance(solver: Any) -> None:
    mu = cloud()
    traj = mf.flow(mf.Linear(np.eye(DIM)), mu, [0.0, 1.0], solver=solver)
    assert largest(traj.points[-1] - np.e * np.asarray(mu.points)) < 3e-5


def test_solvers_and_controls_of_diffrax() -> None:
    # kills: a control that is ignored, and one whose norm is a mean over tokens
    mu, control = cloud(), diffrax.PIDController(rtol=1e-9, atol=1e-9, pcoeff=0.3, icoeff=0.4)
    exact = np.e * np.asarray(mu.points)
    loose, tight = (
        mf.flow(mf.Linear(np.eye(DIM)), mu, [0.0, 1.0], solver=diffrax.Dopri5(), steps=s) for s in (None, control)
    )
    assert largest(tight.points[-1] - exact) < 1e-8 < largest(loose.points[-1] - exact) < 1e-4
    by_name, by_class = (mf.flow(head(), mu, [0.0, 1.0], solver=s) for s in ("dopri8", diffrax.Dopri8()))
    np.testing.assert_array_equal(by_name.points, by_class.points)
    layer, control = mf.Linear(np.eye(DIM)), diffrax.PIDController(1e-5, 1e-4)
    mf.flow(layer, mu, [0.0, 1.0], steps=diffrax.PIDController(1e-6, 1e-4))
    assert count_compilations(lambda: mf.flow(layer, mu, [0.0, 1.0], steps=control)) == 0


def test_layers_take_turns_in_adaptive_flows_too() -> None:
    mu, first, second = cloud(), head(0), head(1)
    both = mf.flow([first, second], mu, [0.0, 0.5, 1.0], **SHARP)
    by_hand = mf.flow(second, mf.flow(first, mu, [0.0, 0.5], **SHARP).measures[-1], [0.5, 1.0], **SHARP)
    assert largest(both.measures[-1].points - by_hand.measures[-1].points) < 1e-8


def test_causal_flows_do_not_see_the_future() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, DIM))
    changed = np.concatenate([X[:4], rng.normal(size=(2, DIM))])
    G = mf.Causal(head())
    one, two = (mf.flow(G, mf.SpaceTime.sequence(Y), [0.0, 0.5], **SHARP) for Y in (X, changed))
    assert largest(one.points[-1][:4] - two.points[-1][:4]) < 1e-8
    assert largest(one.points[-1][4:] - two.points[-1][4:]) > 0.1
    np.testing.assert_array_equal(one.measures[-1].times, one.initial.times)
    # at the time of the first token only that one is seen, and it moves alone: x_1(t) = e^{Vt} x_1
    x, V = np.zeros((1, DIM)), np.asarray(G.map.W[0] @ G.map.V[0])  # pyright: ignore[reportAttributeAccessIssue]
    seen = one.map(0.5)(one.initial, x, 1 / 6)
    assert largest(seen - (expm(0.5 * V) - np.eye(DIM)) @ X[0]) < 1e-8


def test_a_new_number_of_tokens_or_times_compiles_nothing() -> None:
    G = head()

    def run(n: int, times: list[float]) -> None:
        traj = mf.flow(G, cloud(1, n), times)
        traj.map(times[-1])(traj.initial, np.ones((n - 2, DIM)))

    run(8, [0.0, 0.3, 0.6, 0.7])
    assert count_compilations(lambda: run(13, [0.5, 0.6, 0.7, 0.8, 1.0])) == 0


def test_derivatives_in_parameters_and_initial_points() -> None:
    G, mu = head(), cloud()

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(arguments: Any) -> Any:
        velocity, start = arguments
        return jnp.sum(jnp.sin(mf.flow(velocity, start, [0.0, 0.5], **SHARP).points[-1]))

    _, gradient = loss((G, mu))
    rng, h = np.random.default_rng(3), 1e-5
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), (G, mu))
    ends = [loss(jax.tree.map(lambda a, d, s=s: a + s * h * d, (G, mu), direction))[0] for s in (1, -1)]
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    slope = sum(float(jnp.vdot(g, d)) for g, d in pairs)
    assert abs(slope - float(ends[0] - ends[1]) / (2 * h)) < 1e-6 * max(1, abs(slope))


def test_the_map_of_a_linear_velocity_has_the_norm_of_the_exponential() -> None:
    M = np.array([[0.2, 1.0], [-0.5, 0.1]])
    traj = mf.flow(mf.Linear(M), cloud(), [0.0, 1.0], **SHARP)
    found = mf.local_lipschitz(traj.map(1.0), traj.initial)
    assert abs(found.lower - np.linalg.norm(expm(M), 2)) < 1e-6


def test_single_precision_stays_single() -> None:
    mu = mf.Discrete.uniform(np.asarray(cloud().points, np.float32))
    G = mf.Linear(np.eye(DIM, dtype=np.float32))
    traj = mf.flow(G, mu, [0.0, 0.5, 1.0])
    assert traj.points.dtype == traj.map(1.0)(mu, np.ones(DIM, np.float32)).dtype == np.float32
    assert largest(traj.points[-1] - np.e * np.asarray(mu.points)) < 1e-3


def test_a_concrete_flow_inside_jit_is_computed_at_once() -> None:
    traj = mf.flow(mf.Linear(np.eye(DIM)), cloud(), [0.0, 1.0])
    inside = jax.jit(lambda s: s * mf.flow(mf.Linear(np.eye(DIM)), cloud(), [0.0, 1.0]).points[-1])(1.0)
    np.testing.assert_array_equal(inside, traj.points[-1])
    value = jax.jit(lambda s: s * traj.map(1.0)(traj.initial, np.ones(DIM)))(1.0)
    assert largest(value - np.e) < 1e-5


REFUSED = {
    "times out of order": (lambda: mf.flow(head(), cloud(), [0.0, 2.0, 1.0]), errors.TimeError, "each later"),
    "one time": (lambda: mf.flow(head(), cloud(), [0.0]), errors.TimeError, "at least two"),
    "another dimension": (
        lambda: mf.flow(mf.Linear(np.ones((3, DIM))), cloud(), [0.0, 1.0]),
        errors.DimensionMismatchError,
        r"values in R\^3 for tokens in R\^2",
    ),
    "a kernel with another dimension": (
        lambda: mf.flow(mf.flows.Interaction(lambda x, y: x[:1]), cloud(), [0.0, 1.0]),
        errors.DimensionMismatchError,
        r"values in R\^1",
    ),
    "not a map": (lambda: mf.flow(np.sin, cloud(), [0.0, 1.0]), errors.DtypeError, "Interaction"),
    "layers of two forms": (
        lambda: mf.flow([head(), mf.Identity()], cloud(), [0.0, 1.0]),
        errors.OptionError,
        "different forms",
    ),
    "a control that is none": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0], steps=diffrax.ConstantStepSize()),  # pyright: ignore[reportCallIssue, reportArgumentType]
        errors.DtypeError,
        "a number of equal steps",
    ),
    "another norm": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0], steps=diffrax.PIDController(1e-6, 1e-6, norm=jnp.max)),
        errors.OptionError,
        "leave norm out".capitalize(),
    ),
    "an implicit method": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0], solver=diffrax.Kvaerno5()),
        errors.OptionError,
        "an explicit Runge",
    ),
    "an unknown solver": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0], solver="magic"),  # pyright: ignore[reportArgumentType]
        errors.OptionError,
        "one of tsit5",
    ),
    "Euler without steps": (lambda: mf.flow(head(), cloud(), [0.0, 1.0], solver="euler"), errors.OptionError, "steps"),
    "no tolerance": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0], steps=diffrax.PIDController(rtol=0.0, atol=1e-6)),
        errors.OptionError,
        "rtol",
    ),
    "a layer that changes inside a step": (
        lambda: mf.flow([head(), head(1)], cloud(), [0.0, 1.0], solver="euler", steps=3),
        errors.OptionError,
        "multiple of the number of layers, 2",
    ),
    "causal on an unordered measure": (
        lambda: mf.flow(mf.Causal(head()), cloud(), [0.0, 1.0]),
        errors.TimeError,
        "SpaceTime",
    ),
    "after the last time": (
        lambda: mf.flow(head(), cloud(), [0.0, 1.0]).map(1.5),
        errors.TimeError,
        "from 0 to 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    act, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        act()


SQUARE = mf.flows.Interaction(lambda x, y: x * x)


def test_blow_up_is_reported_with_the_last_valid_state() -> None:
    # x' = x² from 1: x = 1 / (1 − t)
    start = mf.Discrete.uniform([[1.0], [0.5]])
    with pytest.raises(errors.BlowUpError, match="soon after t = 1") as caught:
        mf.flow(SQUARE, start, [0.0, 0.5, 2.0], **SHARP)
    assert caught.value.last is not None
    time, measure = caught.value.last
    assert 1 - 1e-6 < time < 1 + 1e-6
    assert abs(float(measure.points[1, 0]) - 1 / (2 - time)) < 1e-6
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.last[0] == time


def test_the_map_reports_a_passive_token_that_blows_up() -> None:
    traj = mf.flow(SQUARE, mf.Discrete.dirac([0.1]), [0.0, 2.0])
    with pytest.raises(errors.BlowUpError, match="soon after t = 1") as caught:
        traj.map(2.0)(traj.initial, [1.0])
    assert caught.value.last is not None
    assert abs(float(caught.value.last[1].points[0, 0]) - 1 / 9) < 1e-4


def test_overflow_in_equal_steps_is_reported_with_the_last_time_before() -> None:
    growth = mf.Linear([[1e150]])
    with pytest.raises(errors.BlowUpError) as caught:
        mf.flow(growth, mf.Discrete.dirac([1.0]), [0.0, 1.0, 2.0, 3.0], solver="euler", steps=1)
    assert caught.value.last is not None
    time, measure = caught.value.last
    assert time == 2
    assert abs(float(measure.points[0, 0]) / 1e300 - 1) < 1e-12


def test_the_step_limit_is_reported_with_the_last_valid_state() -> None:
    turn = 1e5 * np.array([[0.0, -1.0], [1.0, 0.0]])
    with pytest.raises(errors.StepLimitError, match="4096 steps of tsit5") as caught:
        mf.flow(mf.Linear(turn), cloud(), [0.0, 1.0])
    assert caught.value.last is not None
    time, measure = caught.value.last
    assert 0 < time < 1
    assert largest(measure.points - np.asarray(cloud().points) @ expm(turn * time).T) < 0.1
