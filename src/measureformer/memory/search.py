"""The key with the largest score for each query, in linear memory: for separations and nearest patterns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries, fold, over_blocks, shape_of
from measureformer.numerics import edge
from measureformer.numerics.types import ArrayLike


def best_key(
    q: np.ndarray, k: np.ndarray, offsets: np.ndarray, own: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """max_j ⟨q_i, k_j⟩ + offset_j and where it is attained; `own` (m,) is a key that each query leaves out.

    An offset of −inf hides a key. Concrete arrays; −inf where nothing is left.
    """
    own = np.full(len(q), -1) if own is None else np.asarray(own)
    top, index = edge.run(_NOTHING, _best, (_KEYS, (k, offsets)), (q, own), _ROWS)
    return np.asarray(top)[: len(q)], np.asarray(index)[: len(q)]


_NOTHING, _KEYS, _ROWS = edge.Layer(()), jax.tree.structure((0, 0)), edge.Layout((0, 0), (1,))


def _best(_: Any, atoms: tuple[Array, Array], q: Array, own: Array) -> tuple[Array, Array]:
    k, offsets = atoms
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
