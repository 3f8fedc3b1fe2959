"""Boxes of queries, each with the cells of keys that matter to it: a tree, searched from the bottom for the cheapest cut.

All decisions are made on cells, not on points: what is left out is bounded from mass, mean and ends of a cell of keys
(Theorem 3 of `certificate`), and the search costs the same for a thousand points and for ten million.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from measureformer.attention.grid.build import Box
from measureformer.attention.grid.layout import Cut, bounding, cell_numbers, ordered
from measureformer.attention.grid.shapes import Demand, Shape, cheapest

KEY_CELLS = 12
"""Binary digits of the number of cells of keys."""
DEPTH = 10
"""Levels of the tree of queries; each halves the boxes along one axis."""
AT_ONCE = 1 << 22
"""Pairs of a box and a cell in memory at once."""


class Summary(NamedTuple):
    """Cells that have points in them: how many, between which ends, and for keys log-mass and mean."""

    number: np.ndarray
    count: np.ndarray
    low: np.ndarray
    high: np.ndarray
    order: np.ndarray
    start: np.ndarray


class Keys(NamedTuple):
    cells: Summary
    log_mass: np.ndarray
    mean: np.ndarray
    of_key: np.ndarray


class Level(NamedTuple):
    """The boxes of one level: which fine cells of queries they hold, what they keep, what they cost."""

    of_cell: np.ndarray
    kept: np.ndarray
    shape: Shape
    seconds: np.ndarray


def digits(sizes: np.ndarray, total: int) -> list[int]:
    """The axes in the order in which to halve them: always the one along which a cell is largest."""
    left, axes = sizes.astype(float).copy(), []
    for _ in range(total):
        axis = int(np.argmax(left))
        if left[axis] <= 0:
            break
        axes.append(axis)
        left[axis] /= 2
    return axes


def summary(points: np.ndarray, cut: Cut) -> Summary:
    total = int(np.prod(cut.count))
    order, counts = ordered(cell_numbers(points, cut), total)
    number = np.flatnonzero(counts)
    start = np.concatenate([[0], np.cumsum(counts[number])])
    low, high = (np.stack([f.reduceat(axis[order], start[:-1]) for axis in points], 1) for f in (np.minimum, np.maximum))
    return Summary(number, counts[number], low, high, order, start)


def summary_of_keys(y: np.ndarray, log_weights: np.ndarray, sizes: np.ndarray) -> Keys:
    axes = digits(sizes, min(KEY_CELLS, max(0, int(np.log2(max(y.shape[1] / 8, 1))))))
    count = tuple(2 ** axes.count(i) for i in range(len(y)))
    cells = summary(y, Cut(*bounding(y), count))
    sorted_weights = log_weights[cells.order]
    top = sorted_weights.max()
    weights = np.exp(sorted_weights - top)
    mass = np.add.reduceat(weights, cells.start[:-1])
    sums = np.stack([np.add.reduceat(weights * axis[cells.order], cells.start[:-1]) for axis in y], 1)
    of_key = np.empty(y.shape[1], np.int32)
    of_key[cells.order] = np.repeat(np.arange(len(cells.number)), cells.count)
    some = mass > 0
    log_mass = np.where(some, np.log(np.where(some, mass, 1)) + top, -np.inf)
    return Keys(cells, log_mass, sums / np.where(some, mass, 1)[:, None], of_key)


def keeping(keys: Keys, b: np.ndarray, r: np.ndarray, dropped: float) -> np.ndarray:
    """Which cells of keys each box keeps: all that could have more than an even part of what may be left out."""
    kept = np.empty((len(b), len(keys.log_mass)), bool)
    threshold = np.log(dropped / len(keys.log_mass))
    size = max(1, AT_ONCE // len(keys.log_mass))
    for i in range(0, len(b), size):
        part = slice(i, i + size)
        tilted = keys.log_mass + b[part] @ keys.mean.T
        top = tilted.max(1, keepdims=True)
        weights = np.exp(tilted - top)
        total = weights.sum(1, keepdims=True)
        gradient = weights @ keys.mean / total
        bound = keys.log_mass - top - np.log(total)
        for axis in range(b.shape[1]):
            own, half, at = b[part, axis, None], r[part, axis, None], gradient[:, axis, None]
            ends = [own * end + half * np.abs(end - at) for end in (keys.cells.low[:, axis], keys.cells.high[:, axis])]
            bound = bound + np.maximum(*ends)
        kept[part] = bound > threshold
    return kept


def level_of(of_cell: np.ndarray, queries: Summary, keys: Keys, demand: Demand) -> Level:
    """The boxes that hold these fine cells of queries, `of_cell` in ascending order, and what they would cost."""
    first = np.flatnonzero(np.diff(of_cell, prepend=-1))
    low, high = np.minimum.reduceat(queries.low, first), np.maximum.reduceat(queries.high, first)
    m = np.add.reduceat(queries.count, first)
    r = (high - low) / 2 * (1 + demand.margin)
    kept = keeping(keys, (low + high) / 2, r, demand.dropped)
    n = kept @ keys.cells.count
    ends = [
        np.stack([np.where(kept, end[:, i], fill).T.min(0) * sign for i in range(low.shape[1])], 1)
        for end, fill, sign in ((keys.cells.low, np.inf, 1), (-keys.cells.high, np.inf, -1))
    ]
    s = (ends[1] - ends[0]) / 2
    shape = cheapest(r, s, m, n, demand)
    direct = demand.costs.pair * m * n * 2 + demand.costs.box / 3
    return Level(np.cumsum(np.diff(of_cell, prepend=-1) > 0) - 1, kept, shape, np.minimum(shape.seconds, direct))


def search(x: np.ndarray, keys: Keys, sizes: np.ndarray, demand: Demand) -> tuple[float, list[tuple[Box, np.ndarray]]]:
    """Seconds of the cheapest cut into boxes, and the boxes with the cells of keys that they keep."""
    axes = digits(sizes, min(DEPTH, max(0, int(np.log2(max(x.shape[1] / 32, 1))))))
    queries, codes = _in_tree_order(x, axes)
    step, levels = 2 if len(x) > 1 else 1, []
    for depth in range(0, len(axes) + 1, step):
        levels.append(level_of(codes >> (len(axes) - depth), queries, keys, demand))
        if depth > 2 * step and levels[-1].seconds.sum() > 3 * min(level.seconds.sum() for level in levels):
            break
    return _cheapest_cut(queries, keys, levels)


def _in_tree_order(x: np.ndarray, axes: list[int]) -> tuple[Summary, np.ndarray]:
    """Fine cells of queries in the order of the tree, and their codes: the digits of their places, largest halves first."""
    count = tuple(2 ** axes.count(i) for i in range(len(x)))
    fine = summary(x, Cut(*bounding(x), count))
    places = np.stack(np.unravel_index(fine.number, count))
    code, seen = np.zeros(len(fine.number), np.int64), [0] * len(x)
    for axis in axes:
        seen[axis] += 1
        digit = places[axis] >> (int(np.log2(count[axis])) - seen[axis]) & 1
        code = 2 * code + digit
    by_code = np.argsort(code, kind="stable")
    # rows of the queries, cell after cell in the new order
    pieces = [fine.order[fine.start[i] : fine.start[i + 1]] for i in by_code]
    start = np.concatenate([[0], np.cumsum(fine.count[by_code])])
    moved = Summary(fine.number[by_code], fine.count[by_code], fine.low[by_code], fine.high[by_code], np.concatenate(pieces), start)
    return moved, code[by_code]


def _cheapest_cut(queries: Summary, keys: Keys, levels: list[Level]) -> tuple[float, list[tuple[Box, np.ndarray]]]:
    """From the bottom: a box is split if its parts together cost less than it does."""
    best = levels[-1].seconds
    choices = [np.ones(len(best), bool)]
    for upper, lower in zip(levels[-2::-1], levels[:0:-1], strict=True):
        parent = np.zeros(len(best), int)
        parent[lower.of_cell] = upper.of_cell
        parts = np.bincount(parent, best, len(upper.seconds))
        whole = upper.seconds <= parts
        choices.append(whole)
        best = np.where(whole, upper.seconds, parts)
    seconds, boxes = float(best.sum()), []
    done = np.zeros(len(queries.number), bool)
    for level, whole in zip(levels, choices[::-1], strict=True):
        for number in np.flatnonzero(whole):
            cells = np.flatnonzero(level.of_cell == number)
            if done[cells[0]]:
                continue
            done[cells] = True
            boxes.append((_box(queries, keys, level, number, cells), level.kept[number]))
    return seconds, boxes


def _box(queries: Summary, keys: Keys, level: Level, number: int, cells: np.ndarray) -> Box:
    rows = queries.order[queries.start[cells[0]] : queries.start[cells[-1] + 1]]
    cell = np.flatnonzero(level.kept[number])
    starts, counts = keys.cells.start[cell], keys.cells.count[cell]
    place = np.repeat(starts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
    own = keys.cells.order[place]
    if level.shape.seconds[number] > level.seconds[number] or not np.isfinite(level.shape.seconds[number]):
        return Box(rows, own, None, None)
    shape = (tuple(int(c) for c in counted[number]) for counted in (level.shape.cells, level.shape.nodes))
    return Box(rows, own, *shape)
