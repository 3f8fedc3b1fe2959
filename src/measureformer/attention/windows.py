"""Windows in time: a query sees keys that are not later than itself, and less than a given time earlier."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from measureformer.errors import NothingVisibleError, OptionError, ShapeError
from measureformer.numerics.arrays import floats, host, namespace


def pair_of_times(times: Any, m: int, n: int) -> Any:
    """Times of m queries and n keys as arrays; refuse anything else."""
    if times is None:
        return None
    if not isinstance(times, (tuple, list)) or len(times) != 2:
        raise ShapeError(
            got=f"times of type {type(times).__name__}",
            need="a pair (query times, key times)",
            do="For self-attention pass times=(t, t).",
        )
    pair = floats(times[0], "query times"), floats(times[1], "key times")
    if pair[0].shape != (m,) or pair[1].shape != (n,):
        raise ShapeError(
            got=f"times of shapes {pair[0].shape} and {pair[1].shape} for {m} queries and {n} keys",
            need=f"({m},) and ({n},)",
            do="Give one time per query and one per key.",
        )
    return pair


def windowed(times: Any, window: Any) -> Any:
    """Times (m,) of queries as pairs (t − window, t), (m, 2); as they are without a window."""
    if window is None:
        return times
    if times is None or not isinstance(window, (int, float, np.number)) or not 0 < window < np.inf:
        raise OptionError(
            got=f"window = {window!r}" + (" without times" if times is None else ""),
            need="a positive number, the length of the past that a query sees, and times of queries and keys",
            do="Pass times=(t, t) as well; t = arange(n) counts tokens. Leave the window out to see all of the past.",
        )
    xp = namespace(times)
    return xp.stack([times[0] - window, times[0]], axis=1), times[1]


def check_windows(times: Any, mass: np.ndarray) -> None:
    """Refuse windows without mass; `mass` are log-weights (…, n)."""
    spans, key_times = (np.asarray(host(part)) for part in times)
    for row in np.asarray(mass).reshape(-1, len(key_times)):
        low, high = ranks(spans, np.sort(key_times[row > -np.inf]))
        if (low >= high).any():
            i = int((low >= high).argmax())
            raise NothingVisibleError(
                got=f"query {i}, in whose window ({spans[i, 0]:g}, {spans[i, 1]:g}] there is no key with mass",
                need="a key with mass in every window",
                do="Choose a longer window, or ask at other times.",
            )


def ranks(spans: np.ndarray, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each query sees keys low, …, high − 1 in the order of time."""
    since, until = spans.T
    return np.searchsorted(ordered, since, side="right"), np.searchsorted(ordered, until, side="right")


class Halves(NamedTuple):
    """Ranges low, …, high − 1 cut at anchors: what is before belongs to the segment that ends there."""

    anchors: np.ndarray
    """In increasing order; segments are what lies between."""
    own: np.ndarray
    """The anchor of each range, by its number."""


def halved(low: np.ndarray, high: np.ndarray) -> Halves:
    """Anchors such that every range contains one and reaches over no other, as for a queue that is made of two stacks.

    Sums over ranges are then a sum up to an anchor and one from there on: nothing is subtracted. Both ends must
    increase together. The next anchor is the end of the first range that begins after the last one.
    """
    order = np.lexsort((low, high))
    begins, ends = low[order], high[order]
    anchors, first = [int(ends[0])], [0]
    while (at := int(np.searchsorted(begins, anchors[-1], side="right"))) < len(begins):
        anchors.append(int(ends[at]))
        first.append(at)
    own = np.zeros(len(low), np.int64)
    own[order] = np.searchsorted(np.array(first), np.arange(len(low)), side="right") - 1
    return Halves(np.array(anchors), own)
