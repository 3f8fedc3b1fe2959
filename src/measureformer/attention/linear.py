"""Sums over keys without a softmax, Σ over visible keys of a_j κ(⟨q, k_j⟩) v_j. Linear memory.

For κ(s) = s a moment matrix does it where nothing is masked.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries, fold, hidden, over_blocks, shape_of


def kernel_sums(
    kernel: Callable[[Array], Array],
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    *,
    times: tuple[Array, Array] | None = None,
) -> Array:
    """Σ_{j: s_j ≤ t} a_j κ(⟨q, k_j⟩) v_j for one head, values (m, c); not divided by any mass."""
    query_times, key_times = (None, None) if times is None else times

    def sums(qs: Queries, blocks: Keys) -> Array:
        @jax.checkpoint
        def body(total: Array, ks: Keys, visible: Array | None) -> Array:
            felt = jnp.where((ks.log_weights > -jnp.inf)[:, None], kernel(ks.k @ qs.q.T), 0)
            return total + ks.v.T @ hidden(felt, visible, fill=0.0)

        return fold(body, jnp.zeros((blocks.v.shape[2], qs.q.shape[0]), qs.q.dtype), qs, blocks).T

    # no mass means that a key was added to fill a block
    keys = Keys(k, v * weights[:, None], jnp.zeros_like(weights), key_times)
    block = shape_of(None, q.shape[0], k.shape[0], masked=times is not None)
    return over_blocks(sums, Queries(q, query_times), keys, block)
