"""Causal sums on the grid: at block edges, with ties, with times of queries and keys that differ, linear in n."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from grid_examples import exact, shares
from measureformer.attention.grid.causal import BLOCK
from measureformer.errors import OptionError, PlanError


def problem(seed: int, m: int, n: int, d: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    q, k = rng.uniform(-1.5, 1.5, (m, d)), rng.uniform(-1.5, 1.5, (n, d))
    return q, k, rng.uniform(-0.5, 0.5, (n, 2)), rng.normal(size=n)


@pytest.mark.parametrize("d", [1, 2])
def test_prefixes_are_masked_dense_sums(d: int) -> None:
    # kills: a block that joins too early or too late (queries around block edges), fill rows that count
    size = BLOCK[d]
    n = 3 * size + 5
    arrays, times = problem(d, n, n, d), np.random.default_rng(0).permutation(n).astype(float)
    out = mf.attend(*arrays, times=(times, times), method="grid", tol=1e-7)
    assert max(float(out.error_bound.max()), float(out.log_normalizer_error.max())) <= 1e-7
    values, log_z = exact(*arrays, times[None, :] <= times[:, None])
    assert max(shares(out, values, log_z)) <= 1
    edges = [np.flatnonzero(times == t)[0] for t in (0, size - 1, size, size + 1, 3 * size, n - 1)]
    np.testing.assert_allclose(np.asarray(out.log_normalizer)[edges], log_z[edges].astype(float), atol=1e-7)


def test_ties_and_other_times_of_queries() -> None:
    # kills: ties cut by the border of a block, and queries that must stand in rank with the keys
    q, k, v, log_weights = problem(3, 700, 3 * BLOCK[1], 1)
    rng = np.random.default_rng(1)
    s = rng.integers(0, 4, len(k)).astype(float)
    t = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0, 9.0], len(q))
    log_weights[rng.uniform(size=len(k)) < 0.3] = -np.inf
    out = mf.attend(q, k, v, log_weights, times=(t, s), method="grid", tol=1e-8)
    assert max(shares(out, *exact(q, k, v, log_weights, s[None, :] <= t[:, None]))) <= 1


def test_light_first_keys_are_certified_too() -> None:
    # early prefixes have a mass of e^{−60} of the whole: kills a certificate relative to all keys
    q, k, v, log_weights = problem(4, 3 * BLOCK[1], 3 * BLOCK[1], 1)
    times = np.arange(float(len(k)))
    log_weights = log_weights + 60 * times / len(times)
    out = mf.attend(q, k, v, log_weights, times=(times, times), method="grid", tol=1e-8)
    assert max(shares(out, *exact(q, k, v, log_weights, times[None, :] <= times[:, None]))) <= 1


def test_causal_derivatives_are_those_of_masked_dense_attention() -> None:
    n = 2 * BLOCK[1] + 3
    arrays, t = tuple(map(jnp.asarray, problem(5, n, n, 1))), np.arange(float(n))
    plan = mf.Plan.make(*arrays[:2], arrays[3], tol=1e-10, times=(t, t))

    def ours(*a: Any) -> Any:
        return jnp.sum(jnp.sin(mf.attend(*a, times=(t, t), method=mf.Grid(plan=plan)).values))

    def dense(q: Any, k: Any, v: Any, log_weights: Any) -> Any:
        logits = jnp.where(t[None, :] <= t[:, None], q @ k.T + log_weights, -jnp.inf)
        return jnp.sum(jnp.sin(jax.nn.softmax(logits, axis=1) @ v))

    for a, b in zip(*(jax.jit(jax.grad(f, (0, 1, 2, 3)))(*arrays) for f in (ours, dense)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_refusals() -> None:
    q, k, v, log_weights = problem(6, 5, 7, 1)
    t, s = np.full(5, 9.0), np.arange(7.0)
    plan = mf.Plan.make(q, k, log_weights, times=(t, s), tol=1e-6)
    for times in (None, (t, s + 1)):
        with pytest.raises(PlanError, match="times that are not those of the plan"):
            mf.attend(q, k, v, log_weights, times=times, method=mf.Grid(plan=plan))
    cube = np.zeros((5, 3))
    with pytest.raises(OptionError, match="dimension 3"):
        mf.attend(cube, cube, cube, times=(t, t), method="grid")
