"""Walking over queries and keys in blocks, so that no m × n array ever exists.

In a block keys are rows and queries columns: with the exponentials transposed on the left of a product, XLA's CPU
kernels take three times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

LOGITS = 1 << 21
"""Logits in one block, 8 MB of float32."""

LEAST = 512
"""Keys in one block at least."""

SHORT, PIECES = 128, 4
"""Queries in a short block, and pieces of the keys, of which the last are left out where none of these is seen."""


class Keys(NamedTuple):
    """Everything that goes with a block of keys; None where there is nothing (`times` without a mask)."""

    k: Any
    v: Any
    log_weights: Any
    times: Any
    extra: Any = None
    """Further arrays with a row per key, such as tangents."""


class Queries(NamedTuple):
    """Everything that goes with a block of queries."""

    q: Any
    times: Any
    """Latest times (m,) of keys that are seen, or with a window pairs (m, 2): seen is what is later than the first, and
    not later than the second."""
    extra: Any = None
    """Further arrays with a row per query, such as the normaliser of a first pass."""


def shape_of(block: tuple[int, int] | None, m: int, n: int, *, masked: bool) -> tuple[int, int]:
    """Queries and keys in one block: what was asked for, or the measured best for m queries and n keys.

    Long blocks of queries and short ones of keys make the products fastest. Behind a mask shorter ones waste less work
    on pairs that do not see each other.
    """
    if block is None:
        rows = min(1024 if masked else 4096, m)
        block = rows, LEAST if masked and m * n > LOGITS else max(LEAST, LOGITS // rows)
    return min(block[0], m), min(block[1], n)


def over_blocks(one: Callable[[Queries, Keys], Any], queries: Queries, keys: Keys, block: tuple[int, int]) -> Any:
    """`one(block of queries, all blocks of keys)` for every block of queries; the answers in order, fill cut off."""
    m, n = queries.q.shape[0], keys.k.shape[0]
    key_blocks = _split_keys(keys, n, block[1])
    if block[0] >= m:
        # small problems are one block: a loop around it would only cost compilation
        return one(queries, key_blocks)
    answers = jax.lax.map(lambda qs: one(qs, key_blocks), _split(queries, m, block[0]))
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])[:m], answers)


def over_short_blocks(one: Callable[[Queries, Keys], Any], queries: Queries, keys: Keys) -> Any:
    """`one(block of queries, all keys as one block)` for every short block of queries, in order.

    The last keys are left out if no query of a block sees mass there: in the order of time that is nearly half of them.
    A program for each number of keys is worth its compilation for values, but not for derivatives.
    """
    m, n = queries.q.shape[0], keys.k.shape[0]
    sizes = [-(-n * i // PIECES) for i in range(1, PIECES + 1)]

    def few(queries: Queries, blocks: Keys) -> Any:
        _, until = spans(queries.times)
        seen = (blocks.times[0] <= jnp.max(until)) & (blocks.log_weights[0] > -jnp.inf)
        needed = jnp.max(jnp.where(seen, jnp.arange(1, n + 1), 0))
        ways = [lambda size=size: one(queries, jax.tree.map(lambda a: a[:, :size], blocks)) for size in sizes]
        return jax.lax.switch(jnp.sum(needed > jnp.array(sizes[:-1])), ways)

    return over_blocks(few, queries, keys, (min(SHORT, m), n))


def fold(body: Callable[[Any, Keys, Any], Any], start: Any, queries: Queries, blocks: Keys) -> Any:
    """state ← body(state, block of keys, visible) over all blocks of keys.

    `visible` says which pairs see each other, keys in rows, and is None where all do. Blocks entirely in the future of
    the queries, or before their windows, are left out.
    """

    def seen(ks: Keys) -> Array:
        since, until = spans(queries.times)
        visible = ks.times[:, None] <= until[None, :]
        return visible if since is None else visible & (ks.times[:, None] > since[None, :])

    if blocks.k.shape[0] == 1:
        ks = jax.tree.map(lambda a: a[0], blocks)
        return body(start, ks, None if ks.times is None else seen(ks))

    def step(state: Any, ks: Keys) -> tuple[Any, None]:
        if ks.times is None:
            return body(state, ks, None), None
        since, until = spans(queries.times)
        first, last = jnp.min(ks.times), jnp.max(ks.times)
        nothing, everything = first > jnp.max(until), last <= jnp.min(until)
        if since is not None:
            nothing, everything = nothing | (last <= jnp.min(since)), everything & (first > jnp.max(since))
        ways = [lambda: body(state, ks, seen(ks)), lambda: body(state, ks, None), lambda: state]
        return jax.lax.switch(jnp.where(nothing, 2, everything), ways), None

    return jax.lax.scan(step, start, blocks)[0]


def spans(times: Any) -> tuple[Any, Any]:
    """After which times, or None, and up to which times queries see keys."""
    return (None, times) if times.ndim == 1 else (times[:, 0], times[:, 1])


def hidden(scores: Array, visible: Array | None, fill: float = -jnp.inf) -> Array:
    """The block with `fill` where a query may not look; `visible` is what `fold` hands to its body."""
    return scores if visible is None else jnp.where(visible, scores, fill)


def _split(tree: Any, rows: int, size: int) -> Any:
    """Every array cut into blocks of `size` rows, the last one filled up with copies of the array's row 0."""

    def cut(array: Array) -> Array:
        count = -(-rows // size)
        fill = jnp.broadcast_to(array[:1], (count * size - rows, *array.shape[1:]))
        return jnp.concatenate([array, fill]).reshape(count, size, *array.shape[1:])

    return jax.tree.map(cut, tree)


def _split_keys(keys: Keys, n: int, size: int) -> Keys:
    """Blocks of keys; the rows that fill up the last block have no mass."""
    blocks = _split(keys._replace(log_weights=None), n, size)
    mass = jnp.concatenate([keys.log_weights, jnp.full(-n % size, -jnp.inf, keys.log_weights.dtype)])
    return blocks._replace(log_weights=mass.reshape(-1, size))
