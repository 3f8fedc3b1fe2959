"""The key with the largest score for each query, in linear memory: for separations and nearest patterns."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries, fold, over_blocks, shape_of
from measureformer.numerics.arrays import at_once
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.numerics.types import ArrayLike


def best_key(
    q: np.ndarray, k: np.ndarray, offsets: np.ndarray, own: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """max_j ⟨q_i, k_j⟩ + offset_j and where it is attained; `own` (m,) is a key that each query leaves out.

    An offset of −inf hides a key. Concrete arrays; −inf where nothing is left.
    """
    m, n = len(q), len(k)
    own = np.full(m, -1) if own is None else np.asarray(own)
    padded = pad_rows(q, bucket(m)), pad_rows(k, bucket(n)), pad_log_weights(offsets, bucket(n))
    top, index = at_once(_best, *padded, pad_rows(own, bucket(m)))
    return np.asarray(top)[:m], np.asarray(index)[:m]


@eqx.filter_jit
def _best(q: Array, k: Array, offsets: Array, own: Array) -> tuple[Array, Array]:
    queries = Queries(q, None, own)
    keys = Keys(k, jnp.zeros((k.shape[0], 0), k.dtype), offsets, None, jnp.arange(k.shape[0]))

    def one(qs: Queries, blocks: Keys) -> tuple[Array, Array]:
        def body(carry: tuple[Array, Array], ks: Keys, visible: Any) -> tuple[Array, Array]:
            top, index = carry
            scores = ks.k @ qs.q.T + ks.log_weights[:, None]
            scores = jnp.where(ks.extra[:, None] == qs.extra[None, :], -jnp.inf, scores)
            here = jnp.argmax(scores, axis=0)
            highest = jnp.take_along_axis(scores, here[None], axis=0)[0]
            return jnp.maximum(top, highest), jnp.where(highest > top, ks.extra[here], index)

        nothing = jnp.full(qs.q.shape[0], -jnp.inf, q.dtype), jnp.zeros(qs.q.shape[0], keys.extra.dtype)
        return fold(body, nothing, qs, blocks)

    return over_blocks(one, queries, keys, shape_of(None, q.shape[0], k.shape[0], masked=False))
