"""Causal linear attention: Σ over visible keys of a_j ⟨q, k_j⟩ v_j. (Without a mask a moment matrix does it.)"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import BLOCK, Keys, Queries, fold, over_blocks


def masked_linear(q: Array, k: Array, v: Array, weights: Array, *, times: tuple[Array, Array]) -> Array:
    """Σ_{j: s_j ≤ t} a_j ⟨q, k_j⟩ v_j for one head, values (m, c); not divided by any mass. Linear memory."""
    zeros = jnp.zeros_like(weights)
    return over_blocks(_sums, Queries(q, times[0]), Keys(k, v * weights[:, None], zeros, times[1]), BLOCK)


def _sums(qs: Queries, blocks: Keys) -> Array:
    @jax.checkpoint
    def body(sums: Array, ks: Keys) -> Array:
        visible = (ks.times[:, None] <= qs.times[None, :]) & (ks.log_weights > -jnp.inf)[:, None]
        return sums + ks.v.T @ jnp.where(visible, ks.k @ qs.q.T, 0)

    start = jnp.zeros((blocks.v.shape[2], qs.q.shape[0]), qs.q.dtype)
    return fold(body, start, blocks).T
