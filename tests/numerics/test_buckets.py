"""Bucket sizes, and what is appended to reach them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measureformer.errors import OptionError
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows

# all buckets up to 2^24 written out: powers of two to 1024, then eighths of every octave
SIZES = np.array([2**k for k in range(4, 11)] + [2**k * j // 8 for k in range(10, 24) for j in range(9, 17)])
numbers = st.integers(1, 2**23)


def test_bucket_is_the_smallest_listed_size() -> None:
    # every n up to 5000, then both sides of every edge
    edges = np.concatenate([np.arange(1, 5000), SIZES[SIZES > 5000] - 1, SIZES[SIZES > 5000], SIZES[SIZES > 5000] + 1])
    for n in edges[edges < SIZES[-1]].tolist():
        assert bucket(n) == SIZES[np.searchsorted(SIZES, n)]


def test_there_are_few_buckets() -> None:
    # kills: no buckets at all, bucket(n) = n, which obeys every other law
    assert len({bucket(n) for n in range(1, 1025)}) == 7
    assert len({bucket(n) for n in range(1025, 2049)}) == 8


@given(numbers, numbers)
def test_bucket_laws(n: int, m: int) -> None:
    # kills: rounding down, a step taken from the wrong octave, fixed steps (too many buckets or too much waste)
    assert bucket(n) >= n
    assert bucket(bucket(n)) == bucket(n)
    assert bucket(min(n, m)) <= bucket(max(n, m))
    if n > 1024:
        assert 8 * (bucket(n) - n) < n
    else:
        assert bucket(n) < 2 * n or bucket(n) == 16


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)])
def test_pad_rows_are_copies_of_row_0(dtype: type, shape: tuple[int, ...]) -> None:
    # kills: rows of zeros, copies of the last row
    rows = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    padded = pad_rows(rows, 16)
    assert padded.shape == (16, *shape[1:])
    assert padded.dtype == dtype
    np.testing.assert_array_equal(padded[:3], rows)
    np.testing.assert_array_equal(padded[3:], np.stack([rows[0]] * 13))


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_pad_log_weights_are_minus_infinity(shape: tuple[int, ...]) -> None:
    # kills: zeros (that is weight 1), and padding along the heads
    entries = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    padded = pad_log_weights(entries, 5)
    assert padded.shape == (*shape[:-1], 5)
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded[..., :3], entries)
    assert (padded[..., 3:] == -np.inf).all()


def test_nothing_is_cut() -> None:
    rows = np.ones((3, 2))
    np.testing.assert_array_equal(pad_rows(rows, 3), rows)
    with pytest.raises(OptionError, match="size = 2 for 3 rows"):
        pad_rows(rows, 2)
