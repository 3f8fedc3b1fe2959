"""Bucket sizes: arrays are padded to a few sizes at the edge, so that a new number of atoms compiles nothing.

Pad rows are copies of row 0. As atoms they get log-weight −inf, which leaves the measure as it was; as queries their
answers are cut off. (Rows of zeros would not do: a map that divides by the norm has no value there.)
"""

from __future__ import annotations

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


def pad_axis(array: Any, size: int, axis: int) -> np.ndarray:
    """The concrete array as NumPy, with copies of its first slice along `axis` appended up to `size`."""
    entries = np.asarray(array)
    fill = np.repeat(np.take(entries, [0], axis), size - entries.shape[axis], axis)
    return np.concatenate([entries, fill], axis) if fill.size else entries


def pad_log_weights(log_weights: Any, size: int) -> np.ndarray:
    """Log-weights along the last axis, with −inf appended up to `size`."""
    entries = np.asarray(log_weights)
    widths = [(0, 0)] * (entries.ndim - 1) + [(0, size - entries.shape[-1])]
    return np.pad(entries, widths, constant_values=-np.inf)
