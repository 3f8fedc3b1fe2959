"""Exact softmax attention by streaming: blocks of keys pass by, and no m × n array ever exists.

    values(q) = Σ_j a_j e^{⟨q,k_j⟩} v_j / Z(q),     log_normalizer(q) = log Z(q) = log Σ_j a_j e^{⟨q,k_j⟩}

The sums are carried from block to block relative to a level that only rises. The level need not be the largest logit:
an upper bound of a block's logits does as well, if it is so close that nothing is lost. With c the centre of the keys
and r their radius, ⟨q,c⟩ + |q| r + max log a is one, at most 2|q| r too high, known before any logit is computed. The
largest logit is looked for only where that is too much, where a mask hides part of the block, and where there is only
one block, which XLA computes as fast as the dense formula.

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

from measureformer.attention.blocks import (
    SHORT,
    Keys,
    Queries,
    fold,
    hidden,
    over_blocks,
    over_short_blocks,
    shape_of,
    spans,
)
from measureformer.errors import OptionError
from measureformer.numerics.checked import check_fields
from measureformer.numerics.norms import norms

NO_MASS = -1e30

WHOLE, ROWS, MOST = 1 << 20, 256, 4096
"""In float64: logits up to which there is one block; queries in a block that has all keys, and how many it may have."""

FEW, NARROW = 1 << 15, 128
"""In float64, of derivatives: logits up to which there is one block, and queries in a block that has all keys."""


def reach(dtype: Any) -> float:
    """How far above the largest logit the level may lie: e^{−reach} is far above underflow, even summed n times."""
    return 500.0 if dtype == jnp.float64 else 50.0


class Streaming(eqx.Module):
    """Exact attention block by block, as a `method` of `attend`.

    Arguments:
        block: numbers of queries and of keys in one block; by default the fastest measured for the sizes at hand.

    >>> import measureformer as mf
    >>> out = mf.attend([[0.0]], [[0.0], [1.0]], [[2.0], [4.0]], method=mf.Streaming(block=(64, 64)))
    >>> out.values.tolist()
    [[3.0]]
    """

    block: tuple[int, int] | None = eqx.field(static=True, default=None)

    def __post_init__(self) -> None:
        check_fields(self)
        block = self.block
        # users pass anything
        sizes: tuple[Any, ...] = () if block is None else block
        if block is not None and (len(sizes) != 2 or any(not isinstance(size, int) or size < 1 for size in sizes)):
            raise OptionError(
                got=f"block = {block!r}",
                need="two positive integers (queries, keys)",
                do="Leave it out for the measured best.",
            )


STREAMING = Streaming()
"""The default, made once: making a module takes as long as a small product."""


def block_of(block: tuple[int, int] | None, queries: Queries, keys: Keys) -> tuple[int, int]:
    """The block in which these queries and keys are streamed.

    In float64, up to MOST keys are one block for few queries: it stays in the cache, and its memory is not fetched anew
    from the system in every call. In float32 that makes values faster by a tenth, but derivatives slower.
    """
    m, n = queries.q.shape[0], keys.k.shape[0]
    double = queries.q.dtype == jnp.float64
    if block is None and keys.times is None and double and n <= MOST and m * n > WHOLE:
        block = ROWS, n
    return shape_of(block, m, n, masked=keys.times is not None)


def narrow_block(block: tuple[int, int] | None, queries: Queries, keys: Keys) -> tuple[int, int]:
    """The block in which a derivative is streamed: it holds several arrays of logits, so fewer fit in the cache."""
    m, n = queries.q.shape[0], keys.k.shape[0]
    double = queries.q.dtype == jnp.float64
    if block is None and keys.times is None and double and n <= MOST and m * n > FEW:
        return min(NARROW, m), n
    return block_of(block, queries, keys)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def stream(block: tuple[int, int] | None, queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """Values (m, c) and log-normaliser (m,); zeros and −inf where a query sees no mass."""

    def one(qs: Queries, blocks: Keys) -> tuple[Array, Array]:
        several = blocks.k.shape[0] > 1
        if not several and blocks.times is None:
            return _at_once(qs, jax.tree.map(lambda a: a[0], blocks))
        q, dtype = qs.q.T, qs.q.dtype
        level = jnp.full(qs.q.shape[0], -jnp.inf, dtype)
        blocks = blocks._replace(v=jnp.swapaxes(_with_ones(blocks.v), 1, 2))
        if several:
            level, close = _foreseen(qs, blocks)
            blocks = blocks._replace(extra=(close, jnp.all(close, axis=1)))

        def body(carry: tuple[Array, Array], ks: Keys, visible: Array | None) -> tuple[Array, Array]:
            level, sums = carry

            def scores() -> Array:
                return hidden(ks.k @ q + ks.log_weights[:, None], visible)

            def rising(foreseen: Array | None) -> tuple[Array, Array]:
                top = jnp.max(scores(), axis=0)
                # a query looks only where its own level was not foreseen: its rounding errors are its own affair
                new = jnp.maximum(level, top if foreseen is None else jnp.where(foreseen, -jnp.inf, top))
                base = _finite(new)
                return new, sums * jnp.exp(level - base) + ks.v @ jnp.exp(scores() - base)

            def staying() -> tuple[Array, Array]:
                return level, sums + ks.v @ jnp.exp(scores() - _finite(level))

            if not several or visible is not None:
                return rising(None)
            close, all_close = ks.extra
            return jax.lax.cond(all_close, staying, lambda: rising(close))

        level, sums = fold(body, (level, jnp.zeros((keys.v.shape[1] + 1, qs.q.shape[0]), dtype)), qs, blocks)
        some = sums[-1] > 0
        total = jnp.where(some, sums[-1], 1)
        return (sums[:-1] / total).T, jnp.where(some, level + jnp.log(total), -jnp.inf)

    shape = block_of(block, queries, keys)
    m, n = queries.q.shape[0], keys.k.shape[0]
    if block is None and keys.times is not None and shape[1] == n and min(m, n) >= 2 * SHORT:
        return over_short_blocks(one, queries, keys)
    return over_blocks(one, queries, keys, shape)


def _at_once(queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """One block that is seen in full, queries in rows, relative to the largest logit.

    XLA's CPU compiler fuses product, maximum and exponential into one kernel if nothing stands in between and nothing
    else needs the maximum, that is, if only the values are used. So NaN from −inf − (−inf) is replaced at the end.
    """
    logits = queries.q @ keys.k.T + keys.log_weights
    level = jnp.max(logits, axis=1)
    p = jnp.exp(logits - level[:, None])
    total = jnp.sum(p, axis=1)
    massive = jnp.max(keys.log_weights) > -jnp.inf
    values = jnp.where(massive, (p @ keys.v) / total[:, None], 0)
    return values, jnp.where(massive, level + jnp.log(total), -jnp.inf)


def _foreseen(queries: Queries, blocks: Keys) -> tuple[Array, Array]:
    """The level that is known in advance, per query, and from which blocks: those that it sees in full, close enough.

    A block behind a mask that hides part of it from some of the queries is not looked at, since a level may not depend
    on keys that a query does not see.
    """
    centre, radius, heaviest = jax.vmap(_ball)(blocks.k, blocks.log_weights)
    spread = radius[:, None] * norms(queries.q)[None, :]
    close = 2 * spread < reach(queries.q.dtype)
    if blocks.times is not None:
        since, until = spans(queries.times)
        close &= (jnp.max(blocks.times, axis=1) <= jnp.min(until))[:, None]
        if since is not None:
            close &= (jnp.min(blocks.times, axis=1) > jnp.max(since))[:, None]
    bounds = centre @ queries.q.T + spread + heaviest[:, None]
    return jnp.max(jnp.where(close, bounds, -jnp.inf), axis=0), close


def _ball(k: Array, log_weights: Array) -> tuple[Array, Array, Array]:
    """Centre and radius of a ball around the keys with mass, and the largest log-weight."""
    massive = log_weights > -jnp.inf
    count = jnp.maximum(jnp.sum(massive), 1).astype(k.dtype)
    centre = jnp.sum(jnp.where(massive[:, None], k, 0), axis=0) / count
    return centre, jnp.max(jnp.where(massive, norms(k - centre), 0)), jnp.max(log_weights)


def _finite(level: Array) -> Array:
    """Where nothing with mass was seen the level is −inf, and −inf − (−inf) would be NaN."""
    return jnp.where(level == -jnp.inf, 0, level)


def _summed(rows: Array, p: Array) -> Array:
    """Σ_j p_j row_j, in columns: the product in which the large block p stands on the right as it is."""
    return jnp.einsum("jc,jb->cb", rows, p)


def _with_ones(v: Array) -> Array:
    """A column of ones makes the sums of the exponentials part of the same matrix product."""
    return jnp.concatenate([v, jnp.ones_like(v, shape=(*v.shape[:-1], 1))], axis=-1)


@stream.defjvp
def _stream_jvp(block: tuple[int, int] | None, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """d log Z = Σ p dl,  d values = Σ p (dl v + dv) − d log Z · values, with p recomputed from the stored log Z."""
    queries, keys = primals
    dqueries, dkeys = tangents
    # of what is computed once for many derivatives, one program is enough
    out, log_z = stream(block_of(block, queries, keys), queries, keys)
    narrow = narrow_block(block, queries, keys)
    dlog_z, mixed = _tangent(narrow, queries, keys, dqueries, dkeys, log_z)
    return (out, log_z), (mixed - dlog_z[:, None] * out, dlog_z)


def _tangent(
    block: tuple[int, int], queries: Queries, keys: Keys, dqueries: Queries, dkeys: Keys, log_z: Array
) -> tuple[Array, Array]:
    """Σ p dl and Σ p (dl v + dv), streamed; p = e^{l − log Z} and dl = ⟨dq,k⟩ + ⟨q,dk⟩ + d log a are matrix products.

    What is linear in the tangents is kept in arrays of its own, so that JAX can transpose it for reverse mode.
    """
    dvalues = jnp.concatenate([dkeys.v, jnp.zeros_like(dkeys.v, shape=(dkeys.v.shape[0], 1))], axis=1)
    left = queries._replace(extra=(_finite(log_z), dqueries.q))
    right = keys._replace(v=_with_ones(keys.v), extra=(dkeys.k, dkeys.log_weights, dvalues))

    def one(qs: Queries, blocks: Keys) -> tuple[Array, Array]:
        base, dq = qs.extra
        q, dq = qs.q.T, dq.T
        # finite, because a second derivative multiplies it by 0; low enough that the exponential is exactly 0
        blocks = blocks._replace(log_weights=jnp.maximum(blocks.log_weights, NO_MASS))

        # without the checkpoint, reverse mode would keep every block of p: quadratic memory
        @jax.checkpoint
        def body(sums: Array, ks: Keys, visible: Array | None) -> Array:
            dk, dlog_weights, dvalues = ks.extra
            p = jnp.exp(hidden(ks.k @ q + ks.log_weights[:, None], visible) - base)
            dl = ks.k @ dq + dk @ q + dlog_weights[:, None]
            return sums + _summed(ks.v, p * dl) + _summed(dvalues, p)

        start = jnp.zeros((keys.v.shape[1] + 1, qs.q.shape[0]), q.dtype)
        sums = fold(body, start, qs, blocks)
        return sums[-1], sums[:-1].T

    return over_blocks(one, left, right, block)
