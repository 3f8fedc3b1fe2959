"""Bucket sizes: arrays are padded to a few sizes at the edge, so that a new number of atoms compiles nothing.

Pad rows are copies of row 0. As atoms they get log-weight −inf, which leaves the measure as it was; as queries their
answers are cut off. (Rows of zeros would not do: a map that divides by the norm has no value there.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from measureformer.errors import OptionError


def bucket(n: int) -> int:
    """The smallest bucket that holds n rows: 16·2^k up to 1024, then steps of at most 12.5 %.

    >>> bucket(1), bucket(17), bucket(1000), bucket(1025), bucket(5000)
    (16, 32, 1024, 1152, 5120)
    """
    if n <= 1024:
        return max(16, 1 << (max(n, 1) - 1).bit_length())
    step = 1 << ((n - 1).bit_length() - 4)
    return -(-n // step) * step


def pad_rows(array: Any, size: int) -> np.ndarray:
    """The concrete array as NumPy, with copies of row 0 appended up to `size` rows."""
    rows = np.asarray(array)
    if len(rows) == size:
        return rows
    if size < len(rows):
        raise OptionError(
            got=f"size = {size} for {len(rows)} rows",
            need="a size that holds them",
            do="Padding only appends: leave the size out for the smallest bucket that fits.",
        )
    return np.concatenate([rows, np.broadcast_to(rows[:1], (size - len(rows), *rows.shape[1:]))])


def pad_axis(array: Any, size: int, axis: int, fill: float | None = None) -> Any:
    """The concrete array as NumPy, with copies of its first slice along `axis`, or with `fill`, appended up to `size`.

    An array of that size stays what it is.
    """
    count = array.shape[axis]
    if count == size:
        return array
    entries = np.asarray(array)
    if axis == 0 or axis == -entries.ndim:
        padded = np.empty((size, *entries.shape[1:]), entries.dtype)
        padded[:count] = entries
        padded[count:] = entries[0] if fill is None else fill
        return padded
    shape = list(entries.shape)
    shape[axis] = size
    padded = np.empty(shape, entries.dtype)
    before = (slice(None),) * (axis % len(shape))
    padded[(*before, slice(count))] = entries
    padded[(*before, slice(count, None))] = entries[(*before, slice(1))] if fill is None else fill
    return padded


def pad_log_weights(log_weights: Any, size: int) -> Any:
    """Log-weights along the last axis, with −inf appended up to `size`."""
    return pad_axis(log_weights, size, -1, -np.inf)


def pad_all(
    atoms: Sequence[Any], axes: Sequence[int], masses: Sequence[int], queries: Sequence[Any], query_axes: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """Atoms and queries padded to their buckets along these axes; `masses` are the places of log-weights.

    Without log-weights atoms are not rows, and stay as they are; so do queries that are None, and those without an
    axis. Two measures are padded to one size, that of the larger one.
    """
    rows, asked = list(atoms), list(queries)
    if masses:
        largest = masses if len(masses) > 1 else (0,)
        size = bucket(max(rows[i].shape[axes[i]] for i in largest))
        for i, row in enumerate(rows):
            rows[i] = pad_axis(row, size, axes[i], -np.inf if i in masses else None)
    if query_axes and asked[0] is not None:
        size = bucket(asked[0].shape[query_axes[0]])
        for i, axis in enumerate(query_axes):
            if asked[i] is not None:
                asked[i] = pad_axis(asked[i], size, axis)
    return rows, asked
