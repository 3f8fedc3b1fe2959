"""Walking over queries and keys in blocks, so that no m × n array ever exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

BLOCK = (512, 2048)
"""Queries and keys in one block: 4 MB of float32 logits, measured best on two cores."""


class Keys(NamedTuple):
    """Everything that goes with a block of keys; None where there is nothing (`times` without a mask)."""

    k: Any
    v: Any
    log_weights: Any
    times: Any


class Queries(NamedTuple):
    """Everything that goes with a block of queries."""

    q: Any
    times: Any
    extra: Any = None
    """Per-query arrays that a second pass needs (the normaliser of the first)."""


class Tiles(NamedTuple):
    """One side of the products, laid out for them: as rows, then as blocks.

    `main` takes part in the product of keys and queries, `side` in the sums over keys (values) or in neither. In a
    block, queries are columns of `main` (width, rows) and values columns of `side` (width, columns): with the
    exponentials on the left of a product, transposed, XLA's CPU kernels take three times as long.
    """

    main: Any
    times: Any
    side: Any
    tangents: Any = ()
    """Rows of what a derivative is linear in."""


def filled(keys: Keys, block: tuple[int, int], *, fill: float = -jnp.inf) -> Keys:
    """Keys up to a whole number of blocks, by copies of row 0 without mass; for tangents, `fill` is 0."""
    n = keys.k.shape[0]
    missing = -n % min(block[1], n)
    if missing == 0:
        return keys
    rows = jax.tree.map(lambda a: jnp.concatenate([a, jnp.broadcast_to(a[:1], (missing, *a.shape[1:]))]), keys)
    return rows._replace(log_weights=rows.log_weights.at[n:].set(fill))


def over_tiles(one: Callable[[Tiles, Tiles], Any], left: Tiles, right: Tiles, block: tuple[int, int]) -> Any:
    """`one(block of queries, all blocks of keys)` for every block of queries; the answers in order.

    `right` has a whole number of blocks: see `filled`. Queries are filled up here, and their answers cut off.
    """
    m, n = left.main.shape[0], right.main.shape[0]
    rows, columns = min(block[0], m), min(block[1], n)
    k = split(right, n, columns)
    k = k._replace(side=jnp.swapaxes(k.side, 1, 2))
    q = split(left, m, rows)
    q = q._replace(main=jnp.swapaxes(q.main, 1, 2), side=jax.tree.map(lambda a: jnp.swapaxes(a, 1, 2), q.side))
    if rows == m:
        # small problems are one block: a loop around it would only cost compilation
        return one(jax.tree.map(lambda a: a[0], q), k)
    answers = jax.lax.map(lambda q: one(q, k), q)
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])[:m], answers)


def fold_tiles(body: Callable[[Any, Tiles], Any], start: Any, q: Tiles, k: Tiles) -> Any:
    """body over all blocks of keys; blocks that lie entirely in the future of the queries are skipped."""
    if k.main.shape[0] == 1:
        return body(start, jax.tree.map(lambda a: a[0], k))

    def step(state: Any, k: Tiles) -> tuple[Any, None]:
        if k.times is None:
            return body(state, k), None
        some = jnp.min(k.times) <= jnp.max(q.times)
        return jax.lax.cond(some, lambda: body(state, k), lambda: state), None

    return jax.lax.scan(step, start, k)[0]


def split(tree: Any, rows: int, size: int) -> Any:
    """Every array cut into blocks of `size` rows, the last one filled up with copies of the array's row 0."""

    def cut(array: Array) -> Array:
        count = -(-rows // size)
        fill = jnp.broadcast_to(array[:1], (count * size - rows, *array.shape[1:]))
        return jnp.concatenate([array, fill]).reshape(count, size, *array.shape[1:])

    return jax.tree.map(cut, tree)


def split_keys(keys: Keys, size: int) -> Keys:
    """Blocks of keys; the rows that fill up the last block have no mass."""
    n = keys.k.shape[0]
    padded = -n % size
    blocks = split(keys._replace(log_weights=None), n, size)
    mass = jnp.concatenate([keys.log_weights, jnp.full(padded, -jnp.inf, keys.log_weights.dtype)])
    return blocks._replace(log_weights=mass.reshape(-1, size))


def over_blocks(one: Callable[[Queries, Keys], Any], queries: Queries, keys: Keys, block: tuple[int, int]) -> Any:
    """`one(query block, all key blocks)` for every block of queries; the answers in order, fill cut off."""
    m, n = queries.q.shape[0], keys.k.shape[0]
    rows, columns = min(block[0], m), min(block[1], n)
    key_blocks = split_keys(keys, columns)
    if rows == m:
        # small problems are one block: a loop around it would only cost compilation
        return one(queries, key_blocks)
    answers = jax.lax.map(lambda qs: one(qs, key_blocks), split(queries, m, rows))
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])[:m], answers)


def fold(body: Callable[[Any, Keys], Any], start: Any, blocks: Keys) -> Any:
    """start, body(start, block 0), body(that, block 1), …: the last state, by a scan if there are several blocks."""
    if blocks.k.shape[0] == 1:
        return body(start, jax.tree.map(lambda a: a[0], blocks))
    return jax.lax.scan(lambda state, ks: (body(state, ks), None), start, blocks)[0]


def logits(queries: Queries, keys: Keys) -> Array:
    """Transposed block of logits with log-weights, keys in rows; −inf where the query may not look."""
    scores = keys.k @ queries.q.T + keys.log_weights[:, None]
    if keys.times is None:
        return scores
    return jnp.where(keys.times[:, None] <= queries.times[None, :], scores, -jnp.inf)


def ones_below(v: Array) -> Array:
    """Values in columns with a row of ones below: sums of p become part of the same matrix product, p on the right.

    (With p transposed on the left instead, XLA's CPU product takes three times as long.)
    """
    return jnp.concatenate([v.T, jnp.ones((1, v.shape[0]), v.dtype)])
