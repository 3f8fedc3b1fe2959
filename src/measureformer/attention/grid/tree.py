"""Boxes of queries, each with the cells of keys that matter to it: the cheapest cut of a tree, found from its bottom.

All decisions are made on cells, not on points: what is left out is bounded from mass, mean and ends of a cell of keys
(Theorem 3 of `certificate`), and the search costs the same for a thousand points and for ten million.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from measureformer.attention.grid.build import Box
from measureformer.attention.grid.costs import Costs
from measureformer.attention.grid.layout import Cut, bounding, cell_numbers, ordered
from measureformer.attention.grid.shapes import TRIALS, Demand, Shape, Trial, common_nodes, shaped_by

KEY_CELLS = 12
"""Binary digits of the number of cells of keys."""
DEPTH = 10
"""Levels of the tree of queries; each halves the boxes along one axis."""
KINDS = 8
"""Different numbers of cells among the boxes of a plan."""
AT_ONCE = 1 << 20
"""Pairs of a box and a cell in memory at once."""


class Summary(NamedTuple):
    """Cells that have points in them: how many, between which ends, and for keys log-mass and mean."""

    number: np.ndarray
    sizes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    order: np.ndarray
    start: np.ndarray


class Keys(NamedTuple):
    cells: Summary
    log_mass: np.ndarray
    mean: np.ndarray


class Found(NamedTuple):
    """The cheapest cut: seconds, boxes, cells of keys that each keeps, and the order of rows that boxes refer to."""

    seconds: float
    boxes: list[Box]
    kept: np.ndarray
    queries: np.ndarray


class Level(NamedTuple):
    """The boxes of one level: which one holds each fine cell of queries, which cells of keys they keep, their sizes."""

    of_cell: np.ndarray
    kept: np.ndarray
    boxes: tuple[np.ndarray, ...]


class Priced(NamedTuple):
    """A level with the shapes of its grids, and the seconds of each box, direct or not."""

    level: Level
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
    total = int(np.prod(cut.counts))
    order, counts = ordered(cell_numbers(points, cut), total)
    number = np.flatnonzero(counts)
    start = np.concatenate([[0], np.cumsum(counts[number])])
    low, high = (
        np.stack([f.reduceat(axis[order], start[:-1]) for axis in points], 1) for f in (np.minimum, np.maximum)
    )
    return Summary(number, counts[number], low, high, order, start)


def summary_of_keys(y: np.ndarray, log_weights: np.ndarray, sizes: np.ndarray) -> Keys:
    axes = digits(sizes, min(KEY_CELLS, max(0, int(np.log2(max(y.shape[1] / 8, 1))))))
    count = tuple(2 ** axes.count(i) for i in range(len(y)))
    cells = summary(y, Cut(*bounding(y), count))
    sorted_weights = log_weights[cells.order]
    # relative to the heaviest of each cell: what is light here may be heavy after a tilt
    top = np.maximum.reduceat(sorted_weights, cells.start[:-1])
    weights = np.exp(sorted_weights - np.repeat(top, cells.sizes))
    mass = np.add.reduceat(weights, cells.start[:-1])
    sums = np.stack([np.add.reduceat(weights * axis[cells.order], cells.start[:-1]) for axis in y], 1)
    return Keys(cells, np.log(mass) + top, sums / mass[:, None])


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
    """The boxes that hold these fine cells of queries, `of_cell` in ascending order."""
    first = np.flatnonzero(np.diff(of_cell, prepend=-1))
    low, high = np.minimum.reduceat(queries.low, first), np.maximum.reduceat(queries.high, first)
    m = np.add.reduceat(queries.sizes, first)
    r = (high - low) / 2 * (1 + demand.margin)
    kept = keeping(keys, (low + high) / 2, r, demand.dropped)
    s = np.empty_like(r)
    for axis in range(r.shape[1]):
        least = np.where(kept, keys.cells.low[:, axis], np.inf).min(1)
        s[:, axis] = (np.where(kept, keys.cells.high[:, axis], -np.inf).max(1) - least) / 2
    return Level(np.cumsum(np.diff(of_cell, prepend=-1) > 0) - 1, kept, (r, s, m, kept @ keys.cells.sizes))


def search(x: np.ndarray, keys: Keys, sizes: np.ndarray, demand: Demand) -> Found:
    """The cheapest cut into boxes. Rows are numbered in the order of the tree, and of the cells of keys."""
    axes = digits(sizes, min(DEPTH, max(0, int(np.log2(max(x.shape[1] / 32, 1))))))
    queries, codes = _in_tree_order(x, axes)
    levels, best = [], None
    for depth in range(0, len(axes) + 1, 2 if len(x) > 1 else 1):
        levels.append(level_of(codes >> (len(axes) - depth), queries, keys, demand))
        found = min((_cheapest_cut(levels, trial, sizes, demand) for trial in TRIALS), key=lambda cut: cut[0])
        if best is not None and found[0] > 0.97 * best[0] and depth > 4:
            break
        best = found if best is None or found[0] < best[0] else best
    assert best is not None  # the root is always there
    seconds, priced, choices = best
    boxes, kept = _chosen(queries, keys, priced, choices)
    return Found(seconds, boxes, kept, queries.order)


def _priced(level: Level, trial: Trial, sizes: np.ndarray, demand: Demand) -> Priced:
    nodes, (_, _, m, n) = common_nodes(trial.sigma, sizes, demand), level.boxes
    shape = shaped_by(trial, nodes, level.boxes, demand)
    if nodes is None:
        shape.seconds[:] = np.inf
    direct = 2 * demand.costs.pair * m * n + demand.costs.box / 3
    return Priced(level, shape, np.minimum(shape.seconds, direct))


def _in_tree_order(x: np.ndarray, axes: list[int]) -> tuple[Summary, np.ndarray]:
    """Fine cells of queries in the order of the tree, and their codes: digits of their places, largest halves first."""
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
    start = np.concatenate([[0], np.cumsum(fine.sizes[by_code])])
    moved = Summary(
        fine.number[by_code], fine.sizes[by_code], fine.low[by_code], fine.high[by_code], np.concatenate(pieces), start
    )
    return moved, code[by_code]


def _cheapest_cut(
    levels: list[Level], trial: Trial, sizes: np.ndarray, demand: Demand
) -> tuple[float, list[Priced], list[np.ndarray]]:
    """From the bottom: a box is split if its parts together cost less than it does. Which are not, level by level."""
    priced = [_priced(level, trial, sizes, demand) for level in levels]
    best = priced[-1].seconds
    choices = [np.ones(len(best), bool)]
    for upper, lower in zip(priced[-2::-1], priced[:0:-1], strict=True):
        parent = np.zeros(len(best), int)
        parent[lower.level.of_cell] = upper.level.of_cell
        parts = np.bincount(parent, best, len(upper.seconds))
        choices.append(upper.seconds <= parts)
        best = np.minimum(upper.seconds, parts)
    return float(best.sum()), priced, choices[::-1]


def _chosen(
    queries: Summary, keys: Keys, priced: list[Priced], choices: list[np.ndarray]
) -> tuple[list[Box], np.ndarray]:
    boxes, kept, done = [], [], np.zeros(len(queries.number), bool)
    for one, whole in zip(priced, choices, strict=True):
        starts = np.searchsorted(one.level.of_cell, np.arange(len(whole) + 1))
        for number in map(int, np.flatnonzero(whole)):
            cells = slice(starts[number], starts[number + 1])
            if not done[cells.start]:
                done[cells] = True
                boxes.append(_box(queries, keys, one, number, cells))
                kept.append(one.level.kept[number])
    return boxes, np.stack(kept)


def _box(queries: Summary, keys: Keys, one: Priced, number: int, cells: slice) -> Box:
    rows = np.arange(int(queries.start[cells.start]), int(queries.start[cells.stop]))
    cell = np.flatnonzero(one.level.kept[number])
    starts, counts = keys.cells.start[cell], keys.cells.sizes[cell]
    own = np.repeat(starts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
    if one.shape.seconds[number] > one.seconds[number] or not np.isfinite(one.shape.seconds[number]):
        return Box(rows, own)
    counts, nodes = (tuple(int(c) for c in counted[number]) for counted in (one.shape.cells, one.shape.nodes))
    return Box(rows, own, counts, nodes)


def merged(boxes: list[Box], costs: Costs) -> list[Box]:
    """The same boxes with few different numbers of cells: each kind is a program of its own to compile."""
    count = Counter(box.cells for box in boxes if box.cells)
    nodes = next((box.nodes for box in boxes if box.nodes), ())
    becomes = {kind: kind for kind in count}

    def price(kind: tuple[int, ...], number: int) -> float:
        on_axis = [c * p for c, p in zip(kind, nodes, strict=True)]
        return number * math.prod(on_axis) * (costs.product * sum(on_axis) + 3 * costs.node)

    def dearer(pair: tuple[Any, Any]) -> float:
        both = tuple(map(max, *pair))
        return price(both, count[pair[0]] + count[pair[1]]) - sum(price(kind, count[kind]) for kind in pair)

    while len(count) > KINDS:
        a, b = min(combinations(count, 2), key=dearer)
        both = tuple(map(max, a, b))
        total = count.pop(a) + count.pop(b)
        count[both] += total
        becomes = {kind: both if to in (a, b) else to for kind, to in becomes.items()}
    return [box if not box.cells else box._replace(cells=becomes[box.cells]) for box in boxes]
