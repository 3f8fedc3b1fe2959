"""Causal sums in linear time: blocks of keys in order of time, moments of all blocks before, and one block exactly.

A query that sees c keys, counted in order of time, sees c // B whole blocks, whose moments are a running sum, and c % B
keys of the next one, which are summed one by one. So ties in time need no care, and every prefix is a positive measure,
for which the certificate holds as it stands. The running sum is kept in two parts, the last blocks and those before:
rounding then grows like the square root of the number of blocks.

With a window, what a query sees is cut at an anchor (`windows.halved`): a prefix of the keys from there on, and one of
those before, read backwards. Both are running sums that begin anew at every anchor, and nothing is ever subtracted,
which would destroy a relative bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from measureformer.attention.grid.layout import OVERLAP
from measureformer.attention.grid.sums import Points, polynomials
from measureformer.attention.windows import halved, ranks
from measureformer.errors import OptionError
from measureformer.numerics.arrays import on_device
from measureformer.numerics.buckets import bucket

BLOCK = {1: 128, 2: 256}
"""Keys in a block, per dimension: what was fastest."""

FOLD = 64
"""Blocks after which the younger part of the running sum is added to the older."""


class Prefix(eqx.Module):
    """The order of time: blocks of keys, and steps, each with queries that see the same number of whole blocks."""

    keys: Int[Array, "blocks points"]
    """Rows in order of time; −1 fills up."""
    queries: Int[Array, "steps points"]
    seen: Int[Array, "steps points"]
    """How many keys of the step's block a query sees."""
    block: Int[Array, " steps"]
    moves_on: Bool[Array, " steps"]
    """Whether after this step the block joins the moments."""
    folds: Bool[Array, " steps"]
    begins: Bool[Array, " steps"] | None
    """Whether the sum begins anew; None if it never does."""
    place: Int[Array, " m"]
    """In which row of all steps a query's answer is."""
    query_half: Float[Array, " d"]
    key_half: Float[Array, " d"]
    matrices: tuple[Float[Array, "_ _"], ...]
    query_times: Float[Array, "m ..."]
    key_times: Float[Array, " n"]
    cells: tuple[int, ...] = eqx.field(static=True)
    nodes: tuple[int, ...] = eqx.field(static=True)


class Segments(NamedTuple):
    """Ranges of keys in order of time, over each of which a sum runs, and how far in which of them a query sees."""

    starts: np.ndarray
    stops: np.ndarray
    of_query: np.ndarray
    counts: np.ndarray


def in_time(order: np.ndarray, segments: Segments, size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The arrays of `Prefix` that depend on times only, and which steps begin a segment.

    `order` are the rows of keys in order of time.
    """
    lengths = segments.stops - segments.starts
    blocks_of = np.maximum(-(-lengths // size), 1)
    opening = np.concatenate([[0], np.cumsum(blocks_of)])
    blocks = int(opening[-1])
    keys = np.full(bucket(blocks) * size, -1, np.int32)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keys[opening[owner] * size + within] = order[segments.starts[owner] + within]
    local = np.minimum(segments.counts // size, blocks_of[segments.of_query] - 1)
    whole = opening[segments.of_query] + local
    by_block = np.argsort(whole, kind="stable")
    # every block is a step at least, and one more for every further `size` queries that stand there
    counts = np.bincount(whole, minlength=blocks)
    steps = np.maximum(-(-counts // size), 1)
    first = np.concatenate([[0], np.cumsum(steps)])
    start = np.concatenate([[0], np.cumsum(counts)])
    rows = bucket(int(first[-1]))
    queries, seen = np.full(rows * size, -1, np.int32), np.zeros(rows * size, np.int32)
    place = np.arange(len(by_block)) - start[whole[by_block]] + first[whole[by_block]] * size
    queries[place], seen[place] = by_block, (segments.counts - local * size)[by_block]
    block, last, begins = np.repeat(np.arange(blocks), steps), np.zeros(rows, bool), np.zeros(rows, bool)
    last[first[1:] - 1] = True
    begins[first[opening[:-1]]] = True
    block = np.concatenate([block, np.full(rows - len(block), blocks - 1)])
    # rows that fill up get the answer of some query
    answers = np.full(bucket(len(whole)), place[0], np.int32)
    answers[by_block] = place
    arrays = {
        "keys": keys.reshape(-1, size),
        "queries": queries.reshape(-1, size),
        "seen": seen.reshape(-1, size),
        "block": block.astype(np.int32),
        "moves_on": last,
        "folds": last & (block % FOLD == FOLD - 1),
        "place": answers,
    }
    return arrays, begins


def both_ways(spans: np.ndarray, ordered: np.ndarray, size: int) -> tuple[Segments, Segments]:
    """From anchors on, and from anchors backwards; the second counts keys from the last to the first."""
    low, high = ranks(spans, ordered)
    if (high - low).mean() < size / 4:
        raise OptionError(
            got=f"windows with {(high - low).mean():.3g} keys on average",
            need=f"{size // 4} at least, which is less than one block of the grid",
            do='Use method="streaming", which leaves out what is far away, and is faster there.',
        )
    n, (anchors, own) = len(ordered), halved(low, high)
    on = Segments(anchors, np.append(anchors[1:], n), own, high - anchors[own])
    before = np.append(0, anchors[:-1])
    back = Segments(n - anchors[::-1], n - before[::-1], len(anchors) - 1 - own, anchors[own] - low)
    return on, back


def basis(place: Array, half: Array, cells: int, nodes: int) -> Array:
    """Polynomials of the cell in which a point lies, (points, cells · nodes), zero in all others."""
    width = half / cells
    cell = jnp.clip(jnp.floor((place + half) / (2 * width)), 0, cells - 1)
    t = (place - (2 * cell + 1 - cells) * width) / (width * OVERLAP)
    made = jnp.swapaxes(polynomials(t, nodes), 0, 1)
    own = jax.nn.one_hot(cell.astype(jnp.int32), cells, dtype=place.dtype)
    return (own[:, :, None] * made[:, None, :]).reshape(len(place), -1)


def along(prefix: Prefix, places: Array, half: Array) -> list[Array]:
    return [basis(places[:, i], half[i], c, p) for i, (c, p) in enumerate(zip(prefix.cells, prefix.nodes, strict=True))]


def on_prefix(prefix: Prefix, level: Array, x: Array, points: Points) -> Array:
    """Sums over visible keys, in the order of the queries."""
    r, dtype = points.columns.shape[1], x.dtype
    nodes = [c * p for c, p in zip(prefix.cells, prefix.nodes, strict=True)]

    @jax.checkpoint
    def step(state: Any, parts: Any) -> tuple[Any, Array]:
        older, younger = state
        rows, seen, block, moves_on, folds, begins = parts
        if begins is not None:
            older, younger = (jnp.where(begins, 0, part) for part in (older, younger))
        own = prefix.keys[block]
        y, q = points.place[jnp.maximum(own, 0)], x[jnp.maximum(rows, 0)]
        log_weights = jnp.where(own >= 0, points.log_weights[jnp.maximum(own, 0)], -jnp.inf) - level
        columns = points.columns[jnp.maximum(own, 0)]
        # whole blocks
        left = [b @ matrix for b, matrix in zip(along(prefix, q, prefix.query_half), prefix.matrices, strict=True)]
        found = (left[0] @ (older + younger).reshape(nodes[0], -1)).reshape(len(q), *nodes[1:], r)
        if len(nodes) == 2:
            found = jnp.einsum("bj,bjr->br", left[1], found)
        # and a part of the next
        visible = jnp.arange(len(own))[None, :] < seen[:, None]
        logits = jnp.where(visible, q @ y.T + log_weights[None, :], -jnp.inf)
        found = found + jnp.exp(logits) @ columns
        weighted = columns * jnp.where(moves_on, jnp.exp(log_weights), 0)[:, None]
        right = along(prefix, y, prefix.key_half)
        if len(nodes) == 2:
            weighted = (right[1][:, :, None] * weighted[:, None, :]).reshape(len(own), -1)
        younger = younger + (right[0].T @ weighted).reshape(younger.shape)
        return (older + jnp.where(folds, younger, 0), jnp.where(folds, 0, younger)), found

    zero = jnp.zeros((*nodes, r), dtype)
    parts = prefix.queries, prefix.seen, prefix.block, prefix.moves_on, prefix.folds, prefix.begins
    return jax.lax.scan(step, (zero, zero), parts)[1].reshape(-1, r)[prefix.place]


def make_prefixes(
    times: tuple[np.ndarray, np.ndarray],
    kept: np.ndarray,
    halves: tuple[np.ndarray, np.ndarray],
    shape: Any,
    matrices: Any,
) -> tuple[Prefix, ...]:
    """The running sums for these times, of the rows `kept` of keys, which have mass: one, or two with a window."""
    size = BLOCK[len(halves[0])]
    order = kept[np.argsort(times[1][kept], kind="stable")]
    ordered = times[1][order]
    if times[0].ndim == 1:
        visible = np.searchsorted(ordered, times[0], side="right")
        whole = Segments(np.array([0]), np.array([len(order)]), np.zeros(len(visible), np.int64), visible)
        made = [in_time(order, whole, size)]
    else:
        on, back = both_ways(times[0], ordered, size)
        made = [in_time(order, on, size), in_time(order[::-1], back, size)]
    padded = [np.concatenate([t, np.broadcast_to(t[:1], (bucket(len(t)) - len(t), *t.shape[1:]))]) for t in times]
    (cells, nodes), anew = shape, times[0].ndim == 2
    return tuple(
        Prefix(
            **{name: on_device(array) for name, array in arrays.items()},
            begins=on_device(begins) if anew else None,
            query_half=on_device(halves[0]),
            key_half=on_device(halves[1]),
            matrices=tuple(map(on_device, matrices)),
            query_times=on_device(padded[0]),
            key_times=on_device(padded[1]),
            cells=cells,
            nodes=nodes,
        )
        for arrays, begins in made
    )
