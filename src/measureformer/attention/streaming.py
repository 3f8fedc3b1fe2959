"""Exact softmax attention by streaming: blocks of keys pass by, a running maximum keeps the exponentials in range.

    values(q) = Σ_j a_j e^{⟨q,k_j⟩} v_j / Z(q),     log_normalizer(q) = log Z(q) = log Σ_j a_j e^{⟨q,k_j⟩}

Memory is linear in the number of queries and keys, in the forward pass and in every derivative.
Ref         milakov2018; rabe2021.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.blocks import BLOCK, Keys, Queries, fold, logits, ones_below, over_blocks
from measureformer.errors import OptionError


class Streaming(eqx.Module):
    """Settings of the streaming method: how many queries and keys are in one block.

    >>> import measureformer as mf
    >>> out = mf.attend([[0.0]], [[0.0], [1.0]], [[2.0], [4.0]], method=mf.Streaming(block=(64, 64)))
    >>> out.values.tolist()
    [[3.0]]
    """

    block: tuple[int, int] = eqx.field(static=True, default=BLOCK)

    def __post_init__(self) -> None:
        if len(self.block) != 2 or any(not isinstance(size, int) or size < 1 for size in self.block):
            raise OptionError(
                got=f"block = {self.block!r}",
                need="two positive integers (queries, keys)",
                do="Leave it out for the measured best.",
            )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def stream(block: tuple[int, int], queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """Values (m, c) and log-normaliser (m,); zeros and −inf where a query sees no mass."""

    def one(qs: Queries, blocks: Keys) -> tuple[Array, Array]:
        def body(carry: tuple[Array, Array], ks: Keys) -> tuple[Array, Array]:
            top, sums = carry
            scores = logits(qs, ks)
            new = jnp.maximum(top, jnp.max(scores, axis=0))
            # while everything seen so far has zero mass the maximum is −inf, and −inf − (−inf) would be NaN
            base = jnp.where(new == -jnp.inf, 0, new)
            p = jnp.exp(scores - base[None, :])
            return new, sums * jnp.exp(top - base) + ones_below(ks.v) @ p

        size = qs.q.shape[0]
        start = (jnp.full(size, -jnp.inf, qs.q.dtype), jnp.zeros((keys.v.shape[1] + 1, size), qs.q.dtype))
        top, sums = fold(body, start, blocks)
        total = sums[-1]
        some = total > 0
        total = jnp.where(some, total, 1)
        log_z = jnp.where(some, top + jnp.log(total), -jnp.inf)
        return (sums[:-1] / total).T, log_z

    return over_blocks(one, queries, keys, block)


@stream.defjvp
def _stream_jvp(block: tuple[int, int], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """d log Z = Σ p dl,  d values = Σ p (dl v + dv) − d log Z · values, with p recomputed from the stored log Z."""
    queries, keys = primals
    dqueries, dkeys = tangents
    out, log_z = stream(block, queries, keys)
    tangent_queries = Queries(queries.q, queries.times, extra=(log_z, dqueries.q))
    # the derivative's blocks travel with the keys': stacked next to them, they are cut and padded in the same way
    tangent_keys = Keys(keys.k, (keys.v, dkeys.k, dkeys.v, dkeys.log_weights), keys.log_weights, keys.times)
    dlog_z, mixed = over_blocks(_tangent, tangent_queries, tangent_keys, block)
    return (out, log_z), (mixed - dlog_z[:, None] * out, dlog_z)


def _tangent(qs: Queries, blocks: Keys) -> tuple[Array, Array]:
    log_z, dq = qs.extra
    base = jnp.where(log_z == -jnp.inf, 0, log_z)

    # without the checkpoint, reverse mode would keep every block of p: quadratic memory
    @jax.checkpoint
    def body(sums: Array, ks: Keys) -> Array:
        v, dk, dv, dlog_weights = ks.v
        p = jnp.exp(logits(qs, ks) - base[None, :])
        dl = ks.k @ dq.T + dk @ qs.q.T + dlog_weights[:, None]
        # the last row collects d log Z = Σ p dl next to Σ p dl v
        return sums + ones_below(v) @ (p * dl) + jnp.pad(dv.T, ((0, 1), (0, 0))) @ p

    start = jnp.zeros((blocks.v[0].shape[2] + 1, log_z.shape[0]), log_z.dtype)
    sums = fold(body, start, blocks)
    return sums[-1], sums[:-1].T
