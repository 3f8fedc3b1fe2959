"""From boxes and shapes to the arrays of a `GridPlan`: sorted, chunked, padded to sizes that few plans differ in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from measureformer.attention.grid.certificate import UNIT, amplification, counting
from measureformer.attention.grid.chebyshev import axis_matrix, both_sides, matrix_error
from measureformer.attention.grid.layout import RUN, Cut, bounding, cell_numbers, chunk_size, chunked, ladder, ordered
from measureformer.attention.grid.plan import Boxes
from measureformer.attention.grid.shapes import Demand
from measureformer.attention.grid.sums import Direct, Group, Side
from measureformer.numerics.arrays import on_device
from measureformer.numerics.buckets import bucket

QUERIES_AT_ONCE = 64
"""In a direct box."""


class Box(NamedTuple):
    """Rows of queries and keys (None: all of them), and the shape of the grid; no cells for a direct box."""

    queries: np.ndarray | None
    keys: np.ndarray | None
    cells: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()


class Certified(NamedTuple):
    """The numbers of `Boxes`, one box in each row."""

    b: np.ndarray
    a: np.ndarray
    middle: np.ndarray
    r: np.ndarray
    tilt: np.ndarray
    reach: np.ndarray
    interpolation: float
    rounding: float
    sigma: float
    lost: float


def taken(points: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    return points if rows is None else points[:, rows]


def make_group(
    boxes: list[Box], first: int, x: np.ndarray, y: np.ndarray, demand: Demand
) -> tuple[Group, list[Certified]]:
    """The group of boxes with equal nodes, sorted by their cells, and their certificates."""
    nodes = boxes[0].nodes
    pairs: list[Any] = [
        tuple(
            Cut(*bounding(taken(points, rows)), box.cells, demand.margin, fuzz)
            for points, rows, fuzz in ((x, box.queries, demand.fuzz[0]), (y, box.keys, demand.fuzz[1]))
        )
        for box in boxes
    ]
    kinds = list(dict.fromkeys(box.cells for box in boxes))
    members = [[i for i, box in enumerate(boxes) if box.cells == kind] for kind in kinds]
    slots, offset = np.zeros(len(boxes), int), 0
    for kind, own in zip(kinds, members, strict=True):
        slots[own] = offset + np.arange(len(own)) * int(np.prod(kind))
        offset += int(ladder(len(own))) * int(np.prod(kind))
    queries, _, _ = _side(x, [b.queries for b in boxes], [p[0] for p in pairs], first, slots, demand.steady)
    keys, fullest, chunk = _side(y, [b.keys for b in boxes], [p[1] for p in pairs], first, slots, demand.steady)
    precision = _precision(pairs, nodes, demand, chunk, fullest)
    matrices = tuple(_matrices([pairs[i] for i in own], nodes, precision) for own in members)
    group = Group(queries, keys, matrices, tuple(kinds), nodes)
    return group, [certificate_of(pair, nodes, precision, chunk, fullest) for pair in pairs]


def _matrices(pairs: list[Any], nodes: tuple[int, ...], precision: Any) -> tuple[Any, ...]:
    """For each axis the matrices of all boxes of one kind, and zeros to fill up."""
    made = []
    for i, p in enumerate(nodes):
        each = [
            axis_matrix(of_q.centres(i), of_q.cell_half[i], of_k.centres(i), of_k.cell_half[i], p, precision)
            for of_q, of_k in pairs
        ]
        each += [np.zeros_like(each[0])] * (int(ladder(len(pairs))) - len(pairs))
        made.append(on_device(np.stack(each)))
    return tuple(made)


def _precision(pairs: list[Any], nodes: tuple[int, ...], demand: Demand, chunk: int, runs: int) -> Any:
    """Matrices in double if that certifies enough, else in long double, which is slow."""
    rounded = max(certificate_of(pair, nodes, np.float64, chunk, runs).rounding for pair in pairs)
    return np.float64 if rounded <= demand.rounding else np.longdouble


def _amplified(of_q: Cut, of_k: Cut) -> tuple[float, np.ndarray]:
    r, s, rho, h = of_q.extent, of_k.extent, of_q.cell_half, of_k.cell_half
    return float(amplification(np, r, s, rho, h)), r * s


def certificate_of(pair: tuple[Cut, Cut], nodes: tuple[int, ...], kind: Any, chunk: int, runs: int) -> Certified:
    of_q, of_k = pair
    r, s, rho, h = of_q.extent, of_k.extent, of_q.cell_half, of_k.cell_half
    of_queries, of_keys = s * rho, r * h
    amplified, extents = _amplified(of_q, of_k)
    eta = [both_sides(p, float(sq), float(sk)) for p, sq, sk in zip(nodes, of_queries, of_keys, strict=True)]
    on_axis = sum(c * p for c, p in zip(of_k.counts, nodes, strict=True))
    sigma = float((of_queries + of_keys).sum())
    count = counting(chunk, runs, on_axis, sum(nodes), len(nodes), sigma)
    with np.errstate(over="ignore"):  # ∞ is a bound as well
        lost = amplified * float(np.exp(extents.sum())) * 4
    matrices = float(sum(matrix_error(p, c, kind) for p, c in zip(nodes, of_queries + of_keys, strict=True)))
    return Certified(
        b=of_q.centre,
        a=of_k.centre,
        middle=of_q.centre,
        r=of_q.extent,
        tilt=np.abs(of_q.centre),
        reach=of_k.extent,
        interpolation=float(np.expm1(np.log1p(eta).sum())) * (1 + 1e-9),
        rounding=amplified * (count + matrices) * 1.01,
        sigma=sigma,
        lost=lost,
    )


def _side(
    points: np.ndarray, rows: list[Any], cuts: list[Cut], first: int, slots: np.ndarray, steady: bool
) -> tuple[Side, int, int]:
    """The points of all boxes in chunks, the most chunks and runs that are added up, and the size of a chunk."""
    numbered = []
    for own, cut in zip(rows, cuts, strict=True):
        order, counts = ordered(cell_numbers(taken(points, own), cut), int(np.prod(cut.counts)))
        numbered.append((order if own is None else own[order], counts))
    chunk = chunk_size(sum(len(order) for order, _ in numbered), sum(len(counts) for _, counts in numbered))
    parts: dict[str, list[np.ndarray]] = {n: [] for n in ("index", "slot", "run", "slots", "box", "centre", "scale")}
    runs, fullest = 0, 0
    for i, ((order, counts), cut) in enumerate(zip(numbered, cuts, strict=True)):
        made = chunked(order, counts, chunk)
        where = np.unravel_index(made.cell, cut.counts)
        centre = np.stack([cut.centres(axis)[w] for axis, w in enumerate(where)], axis=1) + cut.centre
        parts["index"].append(made.rows)
        parts["slot"].append(made.cell + slots[i])
        parts["run"].append(made.run + runs)
        parts["slots"].append(made.cell_of_run + slots[i])
        parts["box"].append(np.full(len(made.cell), first + i))
        parts["centre"].append(centre)
        parts["scale"].append(np.broadcast_to(1 / np.maximum(cut.cell_half, 1e-300), centre.shape))
        runs, fullest = runs + len(made.cell_of_run), max(fullest, made.fullest)
    whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    sizes = len(whole["index"]), len(whole["slots"])
    if steady:
        total, cells = sum(len(order) for order, _ in numbered), sum(len(counts) for _, counts in numbered)
        cells = min(cells, total)
        sizes = total // chunk + cells, total // (chunk * RUN) + cells
    padded = {name: _filled(array, bucket(sizes[name == "slots"]), name) for name, array in whole.items()}
    side = Side(*(on_device(padded[n]) for n in ("index", "slot", "run", "slots", "box", "centre", "scale")))
    return side, fullest, chunk


def _filled(array: np.ndarray, size: int, name: str) -> np.ndarray:
    tail = np.repeat(array[-1:], size - len(array), axis=0)
    if name == "index":
        tail = np.full_like(tail, -1)
    made = np.concatenate([array, tail])
    return made if made.dtype == np.float64 else made.astype(np.int32)


def make_direct(
    boxes: list[Box], first: int, x: np.ndarray, y: np.ndarray, demand: Demand
) -> tuple[Direct, list[Certified], np.ndarray, np.ndarray]:
    """Direct boxes, in pieces with few queries; their certificates; rows of queries, and the box of each row."""
    pieces = []
    for number, box in enumerate(boxes, first):
        queries = np.arange(x.shape[1]) if box.queries is None else box.queries
        keys = np.arange(y.shape[1]) if box.keys is None else box.keys
        pieces += [(queries[i : i + QUERIES_AT_ONCE], keys, number) for i in range(0, len(queries), QUERIES_AT_ONCE)]
    count = bucket(len(pieces)) if len(pieces) > 8 else int(ladder(len(pieces)))
    shapes = [bucket(max(len(piece[side]) for piece in pieces)) for side in (0, 1)]
    index = [np.full((count, shape), -1, np.int32) for shape in shapes]
    owner = np.zeros(count, np.int32)
    for i, (queries, keys, number) in enumerate(pieces):
        index[0][i, : len(queries)], index[1][i, : len(keys)], owner[i] = queries, keys, number
    reach = np.abs(y).max(axis=1) * (1 + demand.margin) + demand.fuzz[1]
    certified = [_direct_certified(box, x, y.shape[1], reach, demand) for box in boxes]
    return Direct(on_device(index[0]), on_device(index[1]), on_device(reach)), certified, index[0], owner


def _direct_certified(box: Box, x: np.ndarray, n: int, reach: np.ndarray, demand: Demand) -> Certified:
    centre, half = bounding(taken(x, box.queries))
    half = half * (1 + demand.margin) + demand.fuzz[0]
    zero = np.zeros_like(centre)
    count = 1.01 * UNIT * ((n if box.keys is None else len(box.keys)) + 2 * len(centre) + 12)
    return Certified(zero, zero, centre, half, np.abs(centre) + half, reach, 0.0, count, 0.0, 4.0)


def make_boxes(certified: list[Certified]) -> Boxes:
    """All certificates as arrays, filled up with copies of the first."""
    size = int(ladder(len(certified)))
    rows = certified + [certified[0]] * (size - len(certified))
    return Boxes(
        *(on_device(np.stack([np.asarray(getattr(c, name), float) for c in rows])) for name in Certified._fields)
    )
