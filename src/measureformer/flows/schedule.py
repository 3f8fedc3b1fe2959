"""When a flow is solved and looked at: times, changes of layer, and segments of equal steps. Made on the host."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import equinox as eqx
import numpy as np

from measureformer.errors import OptionError, ShapeError, TimeError, TracedError
from measureformer.numerics.arrays import finite, floats, is_traced
from measureformer.numerics.types import ArrayLike


class Schedule(eqx.Module):
    """A start, times after it at which the state is wanted, and what lies between.

    Times are scalars and not one array: an array of float64 would turn a flow in float32 into one in float64.
    """

    start: Any
    times: tuple[Any, ...]
    jumps: tuple[Any, ...]
    """Times at which the piece changes."""
    steps: tuple[Any, ...] = ()
    """Size of the equal steps in each segment. A segment ends where the piece changes or output is requested."""
    counts: tuple[Any, ...] = ()
    """Number of steps in each segment."""
    pieces: tuple[Any, ...] = ()
    """Piece of each segment."""
    ends: tuple[Any, ...] = ()
    """Number of the segment that ends at each time."""
    most: int = eqx.field(static=True, default=0)
    """At least the steps in a segment; 0 where steps are adaptive."""

    @property
    def moments(self) -> np.ndarray:
        """The start and the times, (t,)."""
        return np.array([float(t) for t in (self.start, *self.times)])

    def padded(self, least: int = 1) -> Schedule:
        """With the last time repeated, so that another number of times compiles nothing. (Equal steps: as it is.)"""
        if self.most:
            return self
        size = max(least, 1 << (len(self.times) - 1).bit_length())
        times = self.times + self.times[-1:] * (size - len(self.times))
        return Schedule(self.start, times, self.jumps)

    def until(self, t: float) -> Schedule:
        """From the start to t, looked at only there. For equal steps t is one of the times, or the start."""
        if not self.most:
            return Schedule(self.start, (np.asarray(t),), self.jumps)
        known = [float(time) for time in self.times]
        used = int(self.ends[known.index(t)]) + 1 if t in known else 0
        runs: list[list[Any]] = []
        for step, count, piece in zip(self.steps[:used], self.counts, self.pieces, strict=False):
            if runs and (runs[-1][0], runs[-1][2]) == (float(step), int(piece)):
                runs[-1][1] += int(count)
            else:
                runs.append([float(step), int(count), int(piece)])
        return _with_segments(self.start, (np.asarray(t),), self.jumps, runs or [[0.0, 0, 0]])

    def cut(self, count: int) -> Schedule:
        """The same schedule with the first `count` of its times only."""
        if not self.most:
            return Schedule(self.start, self.times[:count], self.jumps)
        used = int(self.ends[count - 1]) + 1
        runs = self.steps[:used], self.counts[:used], self.pieces[:used]
        return Schedule(self.start, self.times[:count], self.jumps, *runs, self.ends[:count], self.most)


def checked_times(times: ArrayLike) -> np.ndarray:
    """Times of a flow as a NumPy array (t,), strictly increasing; the first is that of the given measure."""
    moments = floats(times, "times")
    if moments.ndim != 1:
        raise ShapeError(
            got=f"times of shape {moments.shape}",
            need="one axis: the time of the given measure, and later ones",
            do="To flow until T pass [0.0, T].",
        )
    if is_traced(moments):
        raise TracedError(
            got="traced times",
            need="concrete numbers",
            do="Close over the times of a flow; rescale the velocity instead.",
        )
    finite(moments, "times")
    moments = np.asarray(moments, np.float64)
    if len(moments) < 2 or (np.diff(moments) <= 0).any():
        raise TimeError(
            got=f"times {np.array2string(moments, threshold=6)}",
            need="at least two, each later than the one before",
            do="The flow starts at the first: [0.0, 1.0]. To go back in time, change the sign of the velocity.",
        )
    return moments


def scheduled(times: np.ndarray, pieces: int, steps: int | None) -> Schedule:
    """The schedule for increasing times, with `pieces` layers that share the time equally."""
    first, last = float(times[0]), float(times[-1])
    edges = [first + (last - first) * i / pieces for i in range(1, pieces)]
    later, jumps = tuple(np.asarray(t) for t in times[1:]), tuple(map(np.asarray, edges))
    if steps is None:
        return Schedule(np.asarray(first), later, jumps)
    gaps = np.diff(times)
    if np.allclose(gaps, gaps.mean(), rtol=1e-12, atol=0):
        # one step for all intervals, as in a network: differences of rounded times are not equal
        gaps = np.full(len(gaps), (last - first) / len(gaps))
    runs: list[list[Any]] = []
    ends: list[int] = []
    for begin, gap in zip(times[:-1], gaps, strict=True):
        runs += _segments(float(begin), float(gap), steps, edges)
        ends.append(len(runs) - 1)
    return _with_segments(np.asarray(first), later, jumps, runs, ends)


def _segments(begin: float, gap: float, steps: int, edges: list[float]) -> list[list[Any]]:
    """(step, count, piece) within one interval, cut where the piece changes."""
    step = gap / steps
    places = [(edge - begin) / step for edge in edges]
    cuts = [place for place in places if 1e-6 < place < steps - 1e-6]
    off = [place for place in cuts if abs(place - round(place)) > 1e-6]
    if off:
        raise OptionError(
            got=f"{steps} steps between two times, and a layer that changes {off[0] - int(off[0]):.3g} of a step later",
            need="layers that change between steps",
            do=f"Take a multiple of the number of layers, {len(edges) + 1}, as the number of steps.",
        )
    stops = [0, *(round(cut) for cut in cuts), steps]
    return [[step, stop - start, sum(place < start + 0.5 for place in places)] for start, stop in pairwise(stops)]


def _with_segments(
    start: Any, times: Any, jumps: Any, runs: list[list[Any]], ends: list[int] | None = None
) -> Schedule:
    steps, counts, pieces = zip(*runs, strict=True)
    most = 256
    while most < max(counts):
        most *= 16
    return Schedule(
        start,
        times,
        jumps,
        tuple(map(np.asarray, steps)),
        tuple(map(np.asarray, counts)),
        tuple(map(np.asarray, pieces)),
        tuple(map(np.asarray, [len(runs) - 1] if ends is None else ends)),
        most,
    )
