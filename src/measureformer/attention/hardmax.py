"""Hard attention: the average of the values over the keys with the largest logit, ties shared in proportion to mass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import BLOCK, Keys, Queries, fold, logits, ones_below, over_blocks


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
    queries, keys = Queries(q, query_times), Keys(k, (v, mass), present, key_times)
    highest = jax.lax.stop_gradient(over_blocks(_highest, queries, keys, BLOCK))
    unit = float(jnp.finfo(q.dtype).eps) * (q.shape[1] + 2)
    slack = jax.lax.stop_gradient(unit * _norms(q) * jnp.max(jnp.where(present > -jnp.inf, _norms(k), 0)))
    return over_blocks(_average, queries._replace(extra=highest - slack), keys, BLOCK)


def _norms(rows: Array) -> Array:
    return jnp.sqrt(jnp.sum(rows * rows, axis=1))


def _highest(qs: Queries, blocks: Keys) -> Array:
    def body(top: Array, ks: Keys) -> Array:
        return jnp.maximum(top, jnp.max(logits(qs, ks), axis=0))

    return fold(body, jnp.full(qs.q.shape[0], -jnp.inf, qs.q.dtype), blocks)


def _average(qs: Queries, blocks: Keys) -> Array:
    @jax.checkpoint
    def body(sums: Array, ks: Keys) -> Array:
        v, mass = ks.v
        scores = logits(qs, ks)
        chosen = (scores >= qs.extra[None, :]) & (scores > -jnp.inf)
        return sums + ones_below(v) @ jnp.where(chosen, mass[:, None], 0)

    sums = fold(body, jnp.zeros((blocks.v[0].shape[2] + 1, qs.q.shape[0]), qs.q.dtype), blocks)
    total = sums[-1]
    return (sums[:-1] / jnp.where(total > 0, total, 1)).T
