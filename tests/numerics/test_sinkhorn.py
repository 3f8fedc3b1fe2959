"""Sinkhorn potentials: marginals, closed form for two atoms, implicit derivatives, an honest residual."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.scipy.special import logsumexp

from measureformer.numerics.sinkhorn import Potentials, sinkhorn_potentials, symmetric_potentials

TOL = 1e-13
N, M = 5, 4
seeds = st.integers(0, 2**32 - 1)


compiled = partial(jax.jit, static_argnames=("tol", "max_iterations"))


@compiled
def potentials(c: Any, log_a: Any, log_b: Any, tol: float = TOL, max_iterations: int = 2000) -> Potentials:
    """The potentials of a dense kernel (…, n, m)."""
    weights = jnp.broadcast_to(jnp.exp(log_b), (*c.shape[:-2], c.shape[-1]))
    return sinkhorn_potentials(
        lambda g: -logsumexp(c + (g + log_b)[..., None, :], axis=-1),
        lambda f: -logsumexp(c + (f + log_a)[..., :, None], axis=-2),
        weights,
        tol=tol,
        max_iterations=max_iterations,
    )


def solve(*problem: Any, **options: Any) -> Any:
    """The potentials as NumPy arrays, which may be sliced without compiling."""
    return jax.tree.map(np.asarray, potentials(*problem, **options))


@compiled
def coupling(c: Any, log_a: Any, log_b: Any, tol: float = TOL, max_iterations: int = 2000) -> Any:
    found = potentials(c, log_a, log_b, tol=tol, max_iterations=max_iterations)
    return jnp.exp(found.f[..., :, None] + c + found.g[..., None, :] + log_a[:, None] + log_b)


def problem(seed: int, n: int = N, m: int = M) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel with entries in [−1, 1] and two random probability vectors, as logarithms.

    Cross ratios are at most e⁴, so each step contracts Hilbert's distance by q = tanh(4/4)² < 0.6 (Birkhoff): a last
    change of TOL leaves an error below TOL·q/(1−q) < 2·TOL.
    """
    rng = np.random.default_rng(seed)
    c, log_a, log_b = rng.uniform(-1, 1, (n, m)), rng.normal(size=n), rng.normal(size=m)
    return c, log_a - np.log(np.exp(log_a).sum()), log_b - np.log(np.exp(log_b).sum())


def scaled(c: np.ndarray, log_a: np.ndarray, log_b: np.ndarray) -> np.ndarray:
    """Brute force: rows and columns of the matrix scaled in turn, until nothing changes."""
    plan, a, b = np.exp(c), np.exp(log_a), np.exp(log_b)
    for _ in range(2000):
        plan *= (a / plan.sum(1))[:, None]
        plan *= b / plan.sum(0)
    return plan


def corner(ratio: Any, a: Any, b: Any) -> Any:
    """Two atoms each: p(1−a−b+p)/((a−p)(b−p)) = ratio determines the plan [[p, a−p], [b−p, 1−a−b+p]]."""
    half = (1 + (a + b) * (ratio - 1)) / 2
    return (half - jnp.sqrt(half**2 - ratio * (ratio - 1) * a * b)) / (ratio - 1)


@settings(max_examples=20)
@given(seeds)
def test_marginals_and_brute_force(seed: int) -> None:
    # kills: the potentials interchanged, a weight left out of one soft minimum, the iteration stopped early
    c, log_a, log_b = problem(seed)
    plan = np.asarray(coupling(c, log_a, log_b))
    # rows are exact up to rounding; the change of g before the last step was ≤ TOL, and e^g moves by as much
    np.testing.assert_allclose(plan.sum(1), np.exp(log_a), rtol=1e-14)
    np.testing.assert_allclose(plan.sum(0), np.exp(log_b), rtol=10 * TOL)
    np.testing.assert_allclose(plan, scaled(c, log_a, log_b), rtol=10 * TOL)


@settings(max_examples=20)
@given(seeds)
def test_functions_of_one_point_are_absorbed(seed: int) -> None:
    # kills: a kernel read along the wrong axis, potentials that are not a fixed point
    c, log_a, log_b = problem(seed)
    u, v = np.random.default_rng(seed + 1).normal(size=(2, N))
    left, right = solve(c, log_a, log_b), solve(c + u[:, None] + v[:M], log_a, log_b)
    # g is centred, so that it is determined: the constant goes to f
    b, atol = np.exp(log_b), 10 * TOL
    np.testing.assert_allclose(b @ np.asarray(left.g), 0, atol=1e-14)
    np.testing.assert_allclose(right.g, left.g - (v[:M] - b @ v[:M]), atol=atol, rtol=0)
    np.testing.assert_allclose(right.f, left.f - u - b @ v[:M], atol=atol, rtol=0)


def found_corner(ratio: Any, a: Any, b: Any) -> Any:
    c = jnp.stack([jnp.stack([jnp.log(ratio), 0.0]), jnp.zeros(2)])
    return coupling(c, jnp.log(jnp.stack([a, 1 - a])), jnp.log(jnp.stack([b, 1 - b])))[0, 0]


EVERYTHING = (0, 1, 2)
corner_and_gradient = jax.jit(jax.value_and_grad(corner, EVERYTHING))
found_and_gradient = jax.jit(jax.value_and_grad(found_corner, EVERYTHING))
forward_gradient = jax.jit(jax.jacfwd(found_corner, EVERYTHING))


@pytest.mark.parametrize(("a", "b", "ratio"), [(0.5, 0.5, 3.0), (0.3, 0.6, 0.2), (0.9, 0.2, 7.0)])
def test_two_atoms(a: float, b: float, ratio: float) -> None:
    """The quadratic equation of the odds ratio, and its derivatives in the kernel and in the weights."""
    expected, derivatives = corner_and_gradient(ratio, a, b)
    found, reverse = found_and_gradient(ratio, a, b)
    np.testing.assert_allclose(found, expected, rtol=10 * TOL)
    # the linear equation is solved to TOL as well, by an operator with the same q; 1/b multiplies it in the weights
    np.testing.assert_allclose(reverse, derivatives, rtol=100 * TOL)
    np.testing.assert_allclose(forward_gradient(ratio, a, b), derivatives, rtol=100 * TOL)


@jax.jit
def value(c: Any, log_a: Any, log_b: Any) -> Any:
    """A number that depends on the whole coupling in no symmetric way."""
    return jnp.sum(coupling(c, log_a, log_b) * jnp.sin(jnp.arange(N * M)).reshape(N, M))


value_gradient = jax.jit(jax.grad(value, EVERYTHING))
value_derivative = jax.jit(lambda *pair: jax.jvp(value, *pair)[1])


@pytest.mark.parametrize("seed", range(2))
def test_derivatives_by_finite_differences(seed: int) -> None:
    # kills: derivatives of the iterations cut off, the transpose solve with the operator untransposed
    arguments = problem(seed)
    rng = np.random.default_rng(seed + 1)
    directions = tuple(rng.normal(size=argument.shape) for argument in arguments)
    # weights stay normalised to first order: the derivative is only claimed for probability vectors
    directions = (directions[0], *(d - np.exp(p) @ d for d, p in zip(directions[1:], arguments[1:], strict=True)))
    step = 1e-4

    def moved(size: float) -> float:
        c, *logs = (x + size * d for x, d in zip(arguments, directions, strict=True))
        return float(value(c, *(log - np.log(np.exp(log).sum()) for log in logs)))

    difference = (moved(step) - moved(-step)) / (2 * step)
    forward = float(value_derivative(arguments, directions))
    gradient = value_gradient(*arguments)
    reverse = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(gradient, directions, strict=True))
    # both are implicit and solved to TOL; the difference quotient errs by h² times a third derivative of order 10
    assert forward == pytest.approx(reverse, abs=100 * TOL)
    assert forward == pytest.approx(difference, abs=10 * step**2)
    assert abs(forward) > 1e3 * step**2


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_residual_is_honest_when_stopped_early(steps: int) -> None:
    # kills: the last change of g reported instead of the violation, half of it, or the rows'
    c, log_a, log_b = problem(0)
    c = 5 * c  # slow enough to be far from done
    found = solve(c, log_a, log_b, max_iterations=steps)
    plan = np.asarray(coupling(c, log_a, log_b, max_iterations=steps))
    violation = np.abs(plan.sum(0) - np.exp(log_b)).sum() + np.abs(plan.sum(1) - np.exp(log_a)).sum()
    assert float(found.iterations) == steps
    assert float(found.residual) == pytest.approx(violation, rel=1e-12)
    assert violation > 1e-4


def test_iterations_stop_when_converged() -> None:
    found = solve(*problem(0), tol=1e-6)
    assert 1 < float(found.iterations) < 100
    assert float(found.residual) < 1e-6
    assert float(solve(*problem(0)).iterations) > float(found.iterations)


def test_heads_are_solved_one_by_one() -> None:
    # kills: centring or residuals summed over the heads
    c, log_a, log_b = problem(0)
    both = solve(np.stack([c, -c[::-1]]), log_a, log_b)
    assert both.residual.shape == (2,)
    for head, kernel in enumerate([c, -c[::-1]]):
        alone = solve(kernel, log_a, log_b)
        # the loop ends when the slower one is done, so the faster one is closer
        np.testing.assert_allclose(both.g[head], alone.g, atol=10 * TOL)
        np.testing.assert_allclose(both.f[head], alone.f, atol=10 * TOL)


def test_atoms_without_mass_follow_and_decide_nothing() -> None:
    # kills: 0·inf in the residual or the centring, a passive atom far away that keeps the loop running
    c, log_a, log_b = problem(0)
    log_a, log_b = (np.append(p, -np.inf) for p in (log_a, log_b))
    padded = np.pad(c, ((0, 1), (0, 1)), constant_values=-50.0)
    padded[-1, 0] = padded[0, -1] = 50.0
    alone, found = solve(c, log_a[:-1], log_b[:-1]), solve(padded, log_a, log_b)
    assert float(found.iterations) == float(alone.iterations)
    np.testing.assert_allclose(found.f[:-1], alone.f, atol=1e-14)
    np.testing.assert_allclose(found.g[:-1], alone.g, atol=1e-14)
    # its own potential is the soft minimum, as for any point off the support
    assert float(found.f[-1]) == pytest.approx(-50 - float(alone.g[0]) - log_b[0], abs=1e-12)
    corner_gradient = jax.jit(jax.grad(lambda *problem: coupling(*problem)[0, 0]))
    gradient = np.asarray(corner_gradient(padded, log_a, log_b))
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient[:-1, :-1], corner_gradient(c, log_a[:-1], log_b[:-1]), atol=100 * TOL)


def test_float32_stays_float32() -> None:
    arguments = (np.asarray(argument, np.float32) for argument in problem(0))
    with jax.numpy_dtype_promotion("strict"):
        found = solve(*arguments, tol=1e-6)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}
    assert float(found.residual) < 1e-5


@compiled
def own_potentials(x: Any, log_a: Any, tol: float = TOL, max_iterations: int = 200) -> Potentials:
    """The problem of a measure with itself for the kernel e^{−(x−y)²}."""
    c = -((x[:, None] - x) ** 2)
    return symmetric_potentials(
        lambda g: -logsumexp(c + g + log_a, axis=-1), jnp.exp(log_a), tol=tol, max_iterations=max_iterations
    )


@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_the_problem_of_a_measure_with_itself(spread: float) -> None:
    # kills: alternating steps, which need thousands for a plan close to the identity; a plan with one marginal only
    x, log_a = spread * np.random.default_rng(0).normal(size=N), problem(0)[1]
    found = jax.tree.map(np.asarray, own_potentials(x, log_a))
    c = -((x[:, None] - x) ** 2)
    plan = np.exp(found.f[:, None] + c + found.g + log_a[:, None] + log_a)
    # a scaled kernel with the right marginals is the plan: there is only one
    np.testing.assert_allclose(plan.sum(0), np.exp(log_a), rtol=10 * TOL)
    np.testing.assert_allclose(plan.sum(1), np.exp(log_a), rtol=10 * TOL)
    assert float(found.residual) < 10 * TOL
    # a factor of at least 2 per step near the solution
    assert float(found.iterations) < 60


def test_a_start_is_used() -> None:
    c, log_a, log_b = problem(0)
    rows, cols = (
        (lambda g: -logsumexp(c + g + log_b, axis=-1)),
        (lambda f: -logsumexp(c + (f + log_a)[:, None], axis=-2)),
    )
    limits = {"tol": 1e-10, "max_iterations": 100}
    first = sinkhorn_potentials(rows, cols, jnp.exp(log_b), **limits)
    again = sinkhorn_potentials(rows, cols, jnp.exp(log_b), start=first.g, **limits)
    assert float(again.iterations) == 1
    assert float(first.iterations) > 3
