"""Causal linear attention: Σ over visible keys of a_j ⟨q, k_j⟩ v_j. (Without a mask a moment matrix does it.)"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries, fold, hidden, over_blocks, shape_of


def masked_linear(q: Array, k: Array, v: Array, weights: Array, *, times: tuple[Array, Array]) -> Array:
    """Σ_{j: s_j ≤ t} a_j ⟨q, k_j⟩ v_j for one head, values (m, c); not divided by any mass. Linear memory."""
    # no mass means that a key was added to fill a block
    keys = Keys(k, v * weights[:, None], jnp.zeros_like(weights), times[1])
    return over_blocks(_sums, Queries(q, times[0]), keys, shape_of(None, q.shape[0], k.shape[0], masked=True))


def _sums(qs: Queries, blocks: Keys) -> Array:
    @jax.checkpoint
    def body(sums: Array, ks: Keys, visible: Array | None) -> Array:
        counted = jnp.where((ks.log_weights > -jnp.inf)[:, None], ks.k @ qs.q.T, 0)
        return sums + ks.v.T @ hidden(counted, visible, fill=0.0)

    start = jnp.zeros((blocks.v.shape[2], qs.q.shape[0]), qs.q.dtype)
    return fold(body, start, qs, blocks).T
