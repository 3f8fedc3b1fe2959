"""Exact softmax attention by streaming: blocks of keys pass by, and no m × n array ever exists.

    values(q) = Σ_j a_j e^{⟨q,k_j⟩} v_j / Z(q),     log_normalizer(q) = log Z(q) = log Σ_j a_j e^{⟨q,k_j⟩}

Two ways to keep the exponentials in range. The online one carries a running maximum and rescales. The other subtracts a
bound of the logits that is known beforehand, |q| max|k−k̄| + max log a, which is allowed where the bound is so close to
the true maximum that nothing is lost; it saves a pass over every block. Log-weights and the bound are extra columns of
the matrix products, and so are the sums of the exponentials.

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

from measureformer.attention.blocks import BLOCK, Keys, Queries, Tiles, filled, fold_tiles, over_tiles
from measureformer.errors import OptionError

LARGE = 1 << 22
"""Logits from which on the program contains both ways and chooses at run time; below, compiling two costs more."""

NO_MASS = -1e30


def reach(dtype: Any) -> float:
    """How far below its bound the largest logit may lie: e^{−reach} is far above underflow, even summed n times."""
    return 500.0 if dtype == jnp.float64 else 50.0


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
    keys = filled(keys, block)
    # behind a mask not even the rounding may depend on keys that a query does not see, as a bound over all keys would
    if queries.q.shape[0] * keys.k.shape[0] < LARGE or keys.times is not None:
        return _online(block, queries, keys)
    massive = keys.log_weights > -jnp.inf
    count = jnp.maximum(jnp.sum(massive), 1).astype(keys.k.dtype)
    centre = jnp.sum(jnp.where(massive[:, None], keys.k, 0), axis=0) / count
    centred = keys._replace(k=keys.k - centre)
    spread = _norms(queries.q) * jnp.max(jnp.where(massive, _norms(centred.k), 0))
    # the heaviest atom has a logit of at least −spread + its log-weight, so the bound is at most 2·spread too high
    bound = spread + jnp.max(keys.log_weights)
    return jax.lax.cond(
        2 * jnp.max(spread) < reach(queries.q.dtype),
        lambda: _bounded(block, queries._replace(extra=bound), centred, queries.q @ centre),
        lambda: _online(block, queries, keys),
    )


def _norms(rows: Array) -> Array:
    return jnp.sqrt(jnp.sum(rows * rows, axis=1))


def _online(block: tuple[int, int], queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """With a running maximum."""

    def one(q: Tiles, k: Tiles) -> tuple[Array, Array]:
        def body(carry: tuple[Array, Array], k: Tiles) -> tuple[Array, Array]:
            top, sums = carry
            scores = _scores(q, k)
            new = jnp.maximum(top, jnp.max(scores, axis=0))
            # while everything seen so far has zero mass the maximum is −inf, and −inf − (−inf) would be NaN
            base = jnp.where(new == -jnp.inf, 0, new)
            return new, sums * jnp.exp(top - base) + k.side @ jnp.exp(scores - base)

        size = q.main.shape[1]
        start = (jnp.full(size, -jnp.inf, q.main.dtype), jnp.zeros((keys.v.shape[1] + 1, size), q.main.dtype))
        return _finished(*fold_tiles(body, start, q, k))

    ones = jnp.ones_like(queries.q[:, :1])
    left = Tiles(jnp.concatenate([queries.q, ones], axis=1), queries.times, None)
    right = Tiles(jnp.concatenate([keys.k, keys.log_weights[:, None]], axis=1), keys.times, _with_ones(keys.v))
    return over_tiles(one, left, right, block)


def _bounded(block: tuple[int, int], queries: Queries, keys: Keys, shift: Array) -> tuple[Array, Array]:
    """With the bound `queries.extra` of the logits in place of their maximum; `shift` was taken out of the logits."""

    def one(q: Tiles, k: Tiles) -> tuple[Array, Array]:
        def body(sums: Array, k: Tiles) -> Array:
            return sums + k.side @ jnp.exp(_scores(q, k))

        start = jnp.zeros((keys.v.shape[1] + 1, q.main.shape[1]), q.main.dtype)
        return _finished(q.side[0] + q.side[1], fold_tiles(body, start, q, k))

    ones, bound = jnp.ones_like(queries.q[:, :1]), queries.extra
    left = Tiles(jnp.concatenate([queries.q, ones, -bound[:, None]], axis=1), None, jnp.stack([bound, shift], axis=1))
    columns = [keys.k, keys.log_weights[:, None], jnp.ones_like(keys.k[:, :1])]
    right = Tiles(jnp.concatenate(columns, axis=1), keys.times, _with_ones(keys.v))
    return over_tiles(one, left, right, block)


def _scores(q: Tiles, k: Tiles) -> Array:
    """A block of exponents, keys in rows; −inf where the query may not look."""
    scores = k.main @ q.main
    if k.times is None:
        return scores
    return jnp.where(k.times[:, None] <= q.times[None, :], scores, -jnp.inf)


def _finished(base: Array, sums: Array) -> tuple[Array, Array]:
    total = sums[-1]
    some = total > 0
    total = jnp.where(some, total, 1)
    return (sums[:-1] / total).T, jnp.where(some, base + jnp.log(total), -jnp.inf)


def _with_ones(v: Array) -> Array:
    """A column of ones makes the sums of the exponentials part of the same matrix product."""
    return jnp.concatenate([v, jnp.ones_like(v, shape=(v.shape[0], 1))], axis=1)


@stream.defjvp
def _stream_jvp(block: tuple[int, int], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """d log Z = Σ p dl,  d values = Σ p (dl v + dv) − d log Z · values, with p recomputed from the stored log Z."""
    queries, keys = primals
    dqueries, dkeys = tangents
    out, log_z = stream(block, queries, keys)
    dlog_z, mixed = _tangent(block, queries, filled(keys, block), dqueries, filled(dkeys, block, fill=0.0), log_z)
    return (out, log_z), (mixed - dlog_z[:, None] * out, dlog_z)


def _tangent(
    block: tuple[int, int], queries: Queries, keys: Keys, dqueries: Queries, dkeys: Keys, log_z: Array
) -> tuple[Array, Array]:
    """Σ p dl and Σ p (dl v + dv), streamed; p = e^{l − log Z} and dl = ⟨dq,k⟩ + ⟨q,dk⟩ + d log a are matrix products.

    What is linear in the tangents is kept in arrays of its own, so that JAX can transpose it for reverse mode.
    """
    dim = queries.q.shape[1]
    ones, base = jnp.ones_like(queries.q[:, :1]), jnp.where(log_z == -jnp.inf, 0, log_z)
    left = Tiles(jnp.concatenate([queries.q, ones, -base[:, None]], axis=1), queries.times, None, [dqueries.q])
    # finite, because a second derivative multiplies it by 0; low enough that the exponential is exactly 0
    log_weights = jnp.maximum(keys.log_weights, NO_MASS)
    columns = [keys.k, log_weights[:, None], jnp.ones_like(keys.k[:, :1])]
    dlogits = jnp.concatenate([dkeys.k, dkeys.log_weights[:, None]], axis=1)
    dvalues = jnp.concatenate([dkeys.v, jnp.zeros_like(dkeys.v, shape=(dkeys.v.shape[0], 1))], axis=1)
    right = Tiles(jnp.concatenate(columns, axis=1), keys.times, _with_ones(keys.v), [dlogits, dvalues])

    def one(q: Tiles, k: Tiles) -> tuple[Array, Array]:
        # without the checkpoint, reverse mode would keep every block of p: quadratic memory
        @jax.checkpoint
        def body(sums: Array, k: Tiles) -> Array:
            dlogits, dvalues = k.tangents
            p = jnp.exp(_scores(q, k))
            dl = k.main[:, :dim] @ q.tangents[0].T + dlogits @ q.main[: dim + 1]
            return sums + k.side @ (p * dl) + dvalues.T @ p

        start = jnp.zeros((keys.v.shape[1] + 1, q.main.shape[1]), q.main.dtype)
        sums = fold_tiles(body, start, q, k)
        return sums[-1], sums[:-1].T

    return over_tiles(one, left, right, block)
