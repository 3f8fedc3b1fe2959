"""Which point lies in which cell, and rows of points of one cell side by side: made on the host, in NumPy.

Points are sorted by cell with a radix sort of 8- or 16-bit numbers, and every cell is filled up to whole chunks, so
that sums over cells become products of small matrices of one shape.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

RUN = 32
"""Chunks that are added up one after the other; then runs are. Keeps rounding small where one cell holds everything."""

OVERLAP = 1 + 1e-9
"""Cells overlap by this factor, so that no rounding puts a point outside its own."""


class Cut(NamedTuple):
    """An axis-parallel box cut into equal cells, `counts` of them along each axis."""

    centre: np.ndarray
    half: np.ndarray
    counts: tuple[int, ...]
    margin: float = 0.0
    """By which part of its half-width a cell reaches beyond what is now in it."""
    fuzz: Any = 0.0
    """How far rounding can move a point, per axis: coordinates are computed here and again where they are used."""

    @property
    def cell_half(self) -> np.ndarray:
        return self.half / np.array(self.counts) * (OVERLAP * (1 + self.margin)) + self.fuzz

    @property
    def extent(self) -> np.ndarray:
        """Half-widths of the union of all cells."""
        return self.half * (1 - 1 / np.array(self.counts)) + self.cell_half

    def centres(self, axis: int) -> np.ndarray:
        """Centres of the cells along one axis, relative to the centre of the box."""
        count = self.counts[axis]
        return (2 * np.arange(count) + 1 - count) * (self.half[axis] / count)


class Rows(NamedTuple):
    """Chunks of points: row numbers (−1 where there is none), the run of each chunk, the cell of each run."""

    rows: np.ndarray
    run: np.ndarray
    cell_of_run: np.ndarray
    cell: np.ndarray
    fullest: int
    """Chunks in a run plus runs in a cell, at most."""


def bounding(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half-widths of the smallest box around points in columns, (d, n)."""
    low, high = points.min(axis=1), points.max(axis=1)
    centre = low + (high - low) / 2
    return centre, np.maximum(high - centre, centre - low) * (1 + 8 * 2.0**-53)


def cell_numbers(points: np.ndarray, cut: Cut) -> np.ndarray:
    """The number of the cell of every point in columns, in the smallest unsigned type that holds all."""
    total = int(np.prod(cut.counts))
    # the number of cells itself must fit too
    kind = np.uint8 if total < 1 << 8 else np.uint16 if total < 1 << 16 else np.uint32
    numbers = np.zeros(points.shape[1], kind)
    for i, count in enumerate(cut.counts):
        if count == 1:
            continue
        numbers *= kind(count)
        if cut.half[i] == 0:
            continue
        place = points[i] - (cut.centre[i] - cut.half[i])
        place *= count / (2 * cut.half[i])
        np.clip(place, 0, count - 1, out=place)
        numbers += place.astype(kind)
    return numbers


def ordered(numbers: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the order of their cells, and how many there are in each."""
    if total == 1:
        return np.arange(len(numbers)), np.array([len(numbers)])
    counts = np.bincount(numbers, minlength=total)
    return np.argsort(numbers, kind="stable"), counts


def chunk_size(n: int, cells: int) -> int:
    """Points in a chunk: long ones make faster products, short ones leave less empty."""
    mean = max(n / max(cells, 1), 1)
    return int(min(256, max(8, 2 ** round(np.log2(max(mean / 2, 8))))))


def chunked(order: np.ndarray, counts: np.ndarray, chunk: int) -> Rows:
    """Rows of equal cells side by side, every cell filled up to whole chunks."""
    chunks = -(-counts // chunk)
    starts = np.concatenate([[0], np.cumsum(chunks)])
    before = np.concatenate([[0], np.cumsum(counts)])
    index = np.full(int(starts[-1]) * chunk, -1, np.int32)
    filled = np.arange(len(order))
    filled += np.repeat(starts[:-1] * chunk - before[:-1], counts)
    index[filled] = order
    cell = np.repeat(np.arange(len(counts)), chunks)
    within = np.arange(len(cell)) - starts[:-1][cell]
    new = within % RUN == 0
    runs = -(-chunks // RUN)
    fullest = int(min(RUN, chunks.max()) + runs.max())
    return Rows(index.reshape(-1, chunk), np.cumsum(new) - 1, cell[new], cell, fullest)


def ladder(count: Any) -> Any:
    """The least number of cells ≥ count among 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …: few shapes to compile."""
    count = np.maximum(np.ceil(np.asarray(count, float) - 1e-9), 1)
    step = 2.0 ** np.maximum(np.floor(np.log2(count)) - 2, 0)
    return (np.ceil(count / step) * step).astype(int)
