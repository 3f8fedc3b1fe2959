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
from measureformer.attention.windows import halved
from measureformer.errors import NothingVisibleError, OptionError, PlanError


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


@pytest.mark.parametrize("d", [1, 2])
def test_windows_are_masked_dense_sums(d: int) -> None:
    # kills: halves that overlap or leave a key out, sums that go on over an anchor, prefixes that are subtracted
    size = BLOCK[d]
    # on the line more pairs than one block of streaming has
    m, n = 4200 if d == 1 else 900, 4 * size + 5
    q, k, v, log_weights = problem(d, m, n, d)
    rng = np.random.default_rng(2)
    s = rng.integers(0, 300, n) / 4  # ties, irregular, not in order
    t = np.concatenate([s[:300], rng.uniform(20.0, 90.0, m - 300)])
    log_weights[rng.uniform(size=n) < 0.2] = -np.inf
    # what has left the window was heavier by e^{80}: a difference of prefixes would have no digit left
    log_weights -= 80 * s / 75
    window = 21.25
    seen = (s[None, :] <= t[:, None]) & (s[None, :] > t[:, None] - window)
    alone = seen & (log_weights > -np.inf)
    keep = alone.any(axis=1)
    q, t, seen = q[keep], t[keep], seen[keep]
    out = mf.attend(q, k, v, log_weights, times=(t, s), window=window, method="grid", tol=1e-7)
    values, log_z = exact(q, k, v, log_weights, seen)
    assert max(shares(out, values, log_z)) <= 1
    assert max(float(out.error_bound.max()), float(out.log_normalizer_error.max())) <= 1e-7
    streamed = mf.attend(q, k, v, log_weights, times=(t, s), window=window)
    np.testing.assert_allclose(streamed.log_normalizer, log_z.astype(float), rtol=0, atol=1e-11)
    assert max(shares(streamed, values, log_z)) <= 1


def test_halves_of_windows_meet_at_one_anchor() -> None:
    rng = np.random.default_rng(0)
    for n, m, longest in ((1, 3, 1), (50, 80, 7), (200, 60, 90), (200, 300, 1)):
        low, high = (np.sort(a) for a in (rng.integers(0, n, m), rng.integers(1, n + 1, m)))
        low, high = np.maximum(low, np.sort(high - longest)).clip(0), high
        low = np.minimum(low, high)
        anchors, own = halved(low, high)
        at, before = anchors[own], np.append(0, anchors)[own]
        after = np.append(anchors, n)[own + 1]
        assert (np.diff(anchors) > 0).all()
        assert ((before <= low) & (low <= at) & (at <= high) & (high <= after)).all()


def test_derivatives_in_a_window() -> None:
    n = 3 * BLOCK[1] + 3
    arrays, t = tuple(map(jnp.asarray, problem(5, n, n, 1))), np.arange(float(n))
    plan = mf.GridPlan.make(*arrays[:2], arrays[3], tol=1e-10, times=(t, t), window=100)
    seen = (t[None, :] <= t[:, None]) & (t[None, :] > t[:, None] - 100)

    def ours(method: Any) -> Any:
        return lambda *a: jnp.sum(jnp.sin(mf.attend(*a, times=(t, t), window=100, method=method).values))

    def dense(q: Any, k: Any, v: Any, log_weights: Any) -> Any:
        logits = jnp.where(seen, q @ k.T + log_weights, -jnp.inf)
        return jnp.sum(jnp.sin(jax.nn.softmax(logits, axis=1) @ v))

    right = jax.jit(jax.grad(dense, (0, 1, 2, 3)))(*arrays)
    for method in (mf.Grid(plan=plan), mf.Streaming(block=(64, 50))):
        for a, b in zip(jax.jit(jax.grad(ours(method), (0, 1, 2, 3)))(*arrays), right, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


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
    plan = mf.GridPlan.make(*arrays[:2], arrays[3], tol=1e-10, times=(t, t))

    def ours(*a: Any) -> Any:
        return jnp.sum(jnp.sin(mf.attend(*a, times=(t, t), method=mf.Grid(plan=plan)).values))

    def dense(q: Any, k: Any, v: Any, log_weights: Any) -> Any:
        logits = jnp.where(t[None, :] <= t[:, None], q @ k.T + log_weights, -jnp.inf)
        return jnp.sum(jnp.sin(jax.nn.softmax(logits, axis=1) @ v))

    for a, b in zip(*(jax.jit(jax.grad(f, (0, 1, 2, 3)))(*arrays) for f in (ours, dense)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_refusals_of_windows() -> None:
    q, k, v, log_weights = problem(6, 5, 7, 1)
    t, s = np.arange(5.0), np.arange(7.0)
    for window, times in ((0, (t, s)), (-1.0, (t, s)), (np.nan, (t, s)), ("4", (t, s)), (4, None)):
        with pytest.raises(OptionError, match="window = "):
            mf.attend(q, k, v, log_weights, times=times, window=window)
    with pytest.raises(NothingVisibleError, match=r"query 4, in whose window \(8.5, 9\] there is no key"):
        mf.attend(q, k, v, log_weights, times=(np.append(t[:4], 9.0), s), window=0.5)
    with pytest.raises(OptionError, match=r"windows with 1\.8 keys on average"):
        mf.attend(q, k, v, log_weights, times=(t, s), window=2, method="grid")
    mesh = jax.make_mesh((1,), ("tokens",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(OptionError, match="keys that are spread over devices"):
        mf.attend(q, k, v, log_weights, times=(t, s), window=2, method=mf.Sharded(mesh=mesh))


def test_refusals() -> None:
    q, k, v, log_weights = problem(6, 5, 7, 1)
    t, s = np.full(5, 9.0), np.arange(7.0)
    plan = mf.GridPlan.make(q, k, log_weights, times=(t, s), tol=1e-6)
    for times in (None, (t, s + 1)):
        with pytest.raises(PlanError, match="times that are not those of the plan"):
            mf.attend(q, k, v, log_weights, times=times, method=mf.Grid(plan=plan))
    cube = np.zeros((5, 3))
    with pytest.raises(OptionError, match="dimension 3"):
        mf.attend(cube, cube, cube, times=(t, t), method="grid")
