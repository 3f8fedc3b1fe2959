"""The ring on one device: a mapped axis has the same exchanges as a mesh."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.ring import Ring, finished, merged, nothing, ring_bounds, ring_stream


def problem(seed: int, n: int, spread: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(n, 3)) * spread, rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    return q, k, v, rng.normal(size=n), rng.permutation(n) / n


@partial(jax.jit, static_argnums=(0, 1))
def around(devices: int, block: int, q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> Any:
    """Values, log-normaliser and their bounds from a ring of that many devices; causal if there are times."""
    ring = Ring("devices", devices, (block, block))
    parts = Queries(q, times), Keys(k, v, log_weights, times)
    shards = jax.tree.map(lambda a: a.reshape(devices, -1, *a.shape[1:]), parts)
    out = jax.vmap(partial(ring_stream, ring), axis_name="devices")(*shards)
    values, log_z, worst = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)
    largest_v = jnp.max(jnp.where(log_weights > -jnp.inf, jnp.linalg.norm(v, axis=1), 0))
    return values, log_z, ring_bounds(worst, log_z, largest_v, devices)


def exact(q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> tuple[np.ndarray, np.ndarray]:
    """The definition, in long double."""
    seen = True if times is None else times[None, :] <= times[:, None]
    q, k, v, log_weights = (np.asarray(a).astype(np.longdouble) for a in (q, k, v, log_weights))
    logits = np.where(seen, q @ k.T + log_weights, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    p = np.exp(logits - top)
    return p @ v / p.sum(axis=1, keepdims=True), (top + np.log(p.sum(axis=1, keepdims=True)))[:, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("devices", "block"), [(2, 64), (6, 8)])
def test_the_bound_holds_against_long_double(devices: int, block: int, dtype: Any) -> None:
    # kills: a merge that forgets to rescale, shards without mass that become NaN, and a bound without the shards' own
    for seed, spread in enumerate((0.0, 1.0, 30.0, 1e4)):
        q, k, v, log_weights = (a.astype(dtype) for a in problem(seed, 96, spread)[:4])
        log_weights[:20] = -np.inf
        log_weights *= dtype(1 + 30 * (seed % 2))
        values, log_z, (bound, log_bound) = around(devices, block, q, k, v, log_weights, None)
        assert {a.dtype for a in (values, log_z, bound, log_bound)} == {np.dtype(dtype)}
        truth, log_truth = exact(q, k, v, log_weights, None)
        assert (np.linalg.norm(np.asarray(values) - truth, axis=1) <= np.asarray(bound)).all()
        assert (np.abs(np.asarray(log_z) - log_truth) <= np.asarray(log_bound)).all()
        # a bound that says nothing would hold too
        if spread <= 1:
            assert float(bound.max()) < 1e5 * np.finfo(dtype).eps


def test_causal_queries_see_their_prefix_wherever_it_lies() -> None:
    q, k, v, log_weights, times = problem(3, 60)
    values, log_z, _ = around(5, 4, q, k, v, log_weights, times)
    truth, log_truth = exact(q, k, v, log_weights, times)
    np.testing.assert_allclose(values, truth.astype(float), atol=1e-14)
    np.testing.assert_allclose(log_z, log_truth.astype(float), atol=1e-13)


def test_queries_that_see_nothing_get_zeros() -> None:
    q, k, v, log_weights, times = problem(4, 24)
    values, log_z, bounds = around(3, 8, q, k, v, np.where(times < 0.3, -np.inf, log_weights), times)
    blind = times < times[times >= 0.3].min()
    assert blind.any()
    assert not np.asarray(values)[blind].any()
    assert np.isneginf(np.asarray(log_z)[blind]).all()
    assert np.isfinite(np.asarray(values)).all()
    assert np.isfinite(np.asarray(bounds)).all()


def test_the_order_of_the_shards_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(4, 2)), np.array([1e3, -1e3, -np.inf, 0.0]) * rng.uniform(size=4)) for _ in range(5)]
    answers = []
    for order in (range(5), reversed(range(5))):
        known = nothing(4, 2, np.float64)
        for i in order:
            known = merged(known, *map(jnp.asarray, parts[i]))
        answers.append(finished(known))
    np.testing.assert_allclose(answers[0][0], answers[1][0], rtol=1e-14)
    np.testing.assert_allclose(answers[0][1], answers[1][1], rtol=1e-14)


def dense(q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> tuple[Any, Any]:
    logits = jnp.where(times[None, :] <= times[:, None], q @ k.T + log_weights, -jnp.inf)
    return jax.nn.softmax(logits, axis=1) @ v, jax.nn.logsumexp(logits, axis=1)


def ring_of_three(q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> tuple[Any, Any]:
    """On one of three devices: the answers of its own queries. One block each: blocks have tests of their own."""
    ring = Ring("devices", 3, (8, 8))
    return ring_stream(ring, Queries(q, times), Keys(k, v, log_weights, times))[:2]


@pytest.mark.parametrize("mode", ["jvp", pytest.param("jvp of grad", marks=pytest.mark.slow)])
def test_derivatives_agree_with_dense_ones(mode: str) -> None:
    *arrays, times = map(jnp.asarray, problem(5, 18))
    *directions, _ = map(jnp.asarray, problem(6, 18))
    # a first shard without mass; the earliest key has mass, so every query sees some
    arrays[3] = jnp.where((jnp.arange(18) < 6) & (times > times.min()), -jnp.inf, arrays[3])

    def derivative(function: Any, given: Any) -> Any:
        *primals, tangents, times = given

        def gradient(*arrays: Any) -> Any:
            # what a device feels of the sum over all devices comes back to it through the exchanges
            answers, back = jax.vjp(lambda *a: function(*a, times), *arrays)
            return back(jax.tree.map(jnp.cos, answers))

        if mode == "jvp":
            return jax.jvp(lambda *a: function(*a, times), tuple(primals), tuple(tangents))
        return jax.jvp(gradient, tuple(primals), tuple(tangents))

    given = (*arrays, directions, times)
    shards = jax.tree.map(lambda a: a.reshape(3, 6, *a.shape[1:]), given)
    ours = jax.jit(jax.vmap(partial(derivative, ring_of_three), axis_name="devices"))(shards)
    theirs = jax.jit(partial(derivative, dense))(given)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-11, atol=1e-12)
