"""Plans: reuse, re-planning without compilation, coverage, derivatives, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from grid_examples import exact, shares
from measureformer.attention.grid import Costs
from measureformer.errors import (
    DimensionMismatchError,
    NotFiniteError,
    OptionError,
    PlanError,
    ShapeError,
    ToleranceError,
    TracedError,
)

GRID = Costs(pair=1e-3)


def problem(seed: int, m: int = 100, n: int = 400, d: int = 2) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    q, k = rng.uniform(-1, 1, (m, d)), rng.uniform(-1, 1, (n, d))
    return q, k, rng.uniform(-0.5, 0.5, (n, 2)), rng.normal(size=n)


def dense(q: Any, k: Any, v: Any, log_weights: Any) -> tuple[Any, Any]:
    logits = q @ k.T + log_weights
    return jax.nn.softmax(logits, axis=1) @ v, jax.nn.logsumexp(logits, axis=1)


def on_grid(plan: Any) -> Any:
    def run(*arrays: Any) -> tuple[Any, Any]:
        out = mf.attend(*arrays, method=mf.Grid(plan=plan))
        return out.values, out.log_normalizer

    return run


def test_a_plan_serves_other_values_and_weights_and_points_that_moved_a_little() -> None:
    q, k, v, log_weights = problem(0)
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-8, margin=0.2, costs=GRID)
    rng = np.random.default_rng(1)
    for size in (0.0, 0.01):
        moved = q + size * rng.uniform(-1, 1, q.shape), k + size * rng.uniform(-1, 1, k.shape)
        assert bool(plan.covers(*moved))
        arrays = (*moved, v[::-1] * 3, log_weights[::-1])
        assert max(shares(mf.attend(*arrays, method=mf.Grid(plan=plan)), *exact(*arrays))) <= 1
    far = q, k + 1.0
    assert not bool(plan.covers(*far))
    assert bool(jax.jit(lambda q, k: plan.covers(q, k))(q, k))
    with pytest.raises(PlanError, match="outside the cells"):
        mf.attend(*far, v, log_weights, method=mf.Grid(plan=plan))


def test_uncovered_points_get_an_infinite_bound_under_a_trace() -> None:
    q, k, v, log_weights = problem(0)
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-8, costs=GRID)
    run = jax.jit(lambda q: mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan)).error_bound)
    assert np.isfinite(run(q)).all()
    assert np.isinf(run(q + 1)).all()


def test_planning_again_compiles_nothing() -> None:
    def run(seed: int, m: int, n: int) -> None:
        q, k, v, log_weights = problem(seed, m, n)
        # the corners fix the sizes of the boxes
        q[:2], k[:2] = [[-1, -1], [1, 1]], [[-1, -1], [1, 1]]
        plan = mf.GridPlan.make(q, k, log_weights, tol=1e-8, margin=0.1, costs=GRID)
        mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))

    run(0, 1000, 2000)
    assert count_compilations(lambda: [run(seed, 1000 - seed, 2010 + seed) for seed in (1, 2, 3)]) == 0


@pytest.mark.parametrize("mode", ["grad", "jvp", "jvp of grad"])
def test_derivatives_are_those_of_dense_attention(mode: str) -> None:
    # closed forms lose nothing; an interpolant that is differentiated loses p²/h
    arguments, directions = (tuple(map(jnp.asarray, problem(seed, 30, 50))) for seed in (3, 4))
    plan = mf.GridPlan.make(*arguments[:2], tol=1e-11, costs=GRID)

    def scalar(function: Any) -> Any:
        return lambda *args: sum(jnp.sum(jnp.sin(part)) for part in function(*args))

    def derivative(function: Any) -> Any:
        gradient = jax.grad(scalar(function), (0, 1, 2, 3))
        if mode == "grad":
            return gradient(*arguments)
        if mode == "jvp":
            return jax.jvp(function, arguments, directions)
        return jax.jvp(gradient, arguments, directions)

    ours, theirs = (jax.tree.leaves(jax.jit(lambda f=f: derivative(f))()) for f in (on_grid(plan), dense))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_derivatives_at_keys_without_mass_are_zero_and_finite() -> None:
    q, k, v, log_weights = problem(5, 30, 50)
    log_weights[:20] = -np.inf
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-8, costs=GRID)
    slope = jax.jit(jax.grad(lambda *a: jnp.sum(on_grid(plan)(*a)[0] ** 2), (0, 1, 2, 3)))
    gradient = slope(q, k, v, log_weights)
    assert all(np.isfinite(g).all() for g in gradient)
    assert not np.asarray(gradient[1][:20]).any()
    assert np.asarray(gradient[1][20:]).any()


def test_heads_have_plans_of_their_own_and_float32_stays() -> None:
    rng = np.random.default_rng(6)
    q, k, v = rng.uniform(-1, 1, (2, 50, 1)), rng.uniform(-1, 1, (2, 60, 1)), rng.uniform(-0.5, 0.5, (2, 60, 2))
    out = mf.attend(q, k, v, method="grid", tol=1e-6)
    for h in range(2):
        np.testing.assert_allclose(out.values[h], exact(q[h], k[h], v[h], np.zeros(60))[0].astype(float), atol=1e-6)
    single = [a[0].astype(np.float32) for a in (q, k, v)]
    out = mf.attend(*single, method="grid", tol=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {np.dtype(np.float32)}
    assert max(shares(out, *exact(*single, np.zeros(60)))) <= 1
    # under a trace too rounding to float32 is part of the error
    plan = mf.GridPlan.make(*single[:2], tol=1e-9, costs=GRID)
    traced = jax.jit(lambda *arrays: mf.attend(*arrays, method=mf.Grid(plan=plan)))(*single)
    assert max(shares(traced, *exact(*single, np.zeros(60)))) <= 1


@pytest.mark.parametrize("case", ["m = n = 1", "one point", "zero width", "passive keys"])
def test_degenerate_clouds(case: str) -> None:
    q, k, v, log_weights = problem(7, 20, 40)
    if case == "m = n = 1":
        q, k, v, log_weights = q[:1], k[:1], v[:1], log_weights[:1]
    if case == "one point":
        q, k = np.full_like(q, 0.3), np.full_like(k, 1 / 3)
    if case == "zero width":
        q[:, 0], k[:, 1] = 0.7, 0.1
    if case == "passive keys":
        log_weights[1:] = -np.inf
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-9, costs=Costs(pair=1e-2))
    assert plan.direct is None
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    assert max(shares(out, *exact(q, k, v, log_weights))) <= 1


Q, K, V, LW = problem(0, 3, 4)
HIGH = np.zeros((3, 4))
REFUSALS: dict[str, tuple[type[Exception], Any, str]] = {
    "dimension 4": (OptionError, lambda: mf.attend(HIGH, HIGH, HIGH, method="grid"), "dimension 4"),
    "plan in dimension 4": (OptionError, lambda: mf.GridPlan.make(HIGH, HIGH), "dimension 4"),
    "two dimensions": (DimensionMismatchError, lambda: mf.GridPlan.make(Q, K[:, :1]), "R\\^1"),
    "NaN": (NotFiniteError, lambda: mf.attend(Q * np.nan, K, V, method="grid"), "q with"),
    "NaN in a plan": (NotFiniteError, lambda: mf.GridPlan.make(Q, K * np.nan), "k with"),
    "tolerance": (ToleranceError, lambda: mf.attend(Q, K, V, method="grid", tol=1e-18), "at least"),
    "tol of a plan": (OptionError, lambda: mf.GridPlan.make(Q, K, tol=0.0), "tol = 0.0"),
    "trace without a plan": (
        TracedError,
        lambda: jax.jit(lambda q: mf.attend(q, K, V, method="grid").values)(Q),
        "Make plan",
    ),
    "plan under a trace": (TracedError, lambda: jax.jit(lambda q: mf.GridPlan.make(q, K).place)(Q), "outside"),
    "one plan for heads": (
        ShapeError,
        lambda: mf.attend(Q[None], K[None], V[None], method=mf.Grid(plan=mf.GridPlan.make(Q, K))),
        "each head",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, message = REFUSALS[case]
    with pytest.raises(error, match=message):
        call()
