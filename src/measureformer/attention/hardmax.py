"""Hard attention: the average of the values over the keys with the largest logit, ties shared in proportion to mass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries, fold, hidden, over_blocks, shape_of
from measureformer.numerics.norms import norms


def hardmax(q: Array, k: Array, v: Array, log_weights: Array, *, times: tuple[Array, Array] | None = None) -> Array:
    """Values (m, c) of hard attention for one head; zeros where a query sees no mass. Under a trace, linear memory.

    Two passes: the largest logit, then the mass-weighted average over the keys that reach it. Logits that differ by
    less than their rounding errors count as equal, otherwise the two halves of a split atom could be told apart.
    """
    query_times, key_times = (None, None) if times is None else times
    # the mass decides shares, not the winner: only its being zero counts in the logits
    present = jnp.where(log_weights > -jnp.inf, jnp.zeros_like(log_weights), -jnp.inf)
    scale = jnp.max(log_weights)
    mass = jnp.exp(log_weights - jnp.where(scale == -jnp.inf, 0, scale))
    queries, keys = Queries(q, query_times), Keys(k, _with_mass(v, mass), present, key_times)
    block = shape_of(None, q.shape[0], k.shape[0], masked=times is not None)
    highest = jax.lax.stop_gradient(over_blocks(_highest, queries, keys, block))
    unit = float(jnp.finfo(q.dtype).eps) * (q.shape[1] + 2)
    slack = jax.lax.stop_gradient(unit * norms(q) * jnp.max(jnp.where(present > -jnp.inf, norms(k), 0)))
    return over_blocks(_average, queries._replace(extra=highest - slack), keys, block)


def _with_mass(v: Array, mass: Array) -> Array:
    """Values times mass, and a column of masses, whose sum is what to divide by."""
    return jnp.concatenate([v * mass[:, None], mass[:, None]], axis=1)


def _logits(qs: Queries, ks: Keys, visible: Array | None) -> Array:
    return hidden(ks.k @ qs.q.T + ks.log_weights[:, None], visible)


def _highest(qs: Queries, blocks: Keys) -> Array:
    def body(top: Array, ks: Keys, visible: Array | None) -> Array:
        return jnp.maximum(top, jnp.max(_logits(qs, ks, visible), axis=0))

    return fold(body, jnp.full(qs.q.shape[0], -jnp.inf, qs.q.dtype), qs, blocks)


def _average(qs: Queries, blocks: Keys) -> Array:
    @jax.checkpoint
    def body(sums: Array, ks: Keys, visible: Array | None) -> Array:
        scores = _logits(qs, ks, visible)
        chosen = (scores >= qs.extra[None, :]) & (scores > -jnp.inf)
        return sums + ks.v.T @ chosen.astype(scores.dtype)

    sums = fold(body, jnp.zeros((blocks.v.shape[2], qs.q.shape[0]), qs.q.dtype), qs, blocks)
    total = sums[-1]
    return (sums[:-1] / jnp.where(total > 0, total, 1)).T
