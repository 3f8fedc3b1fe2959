"""Patterns of sparse attention: boolean arrays, by name or from whatever describes a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from measureformer.errors import DtypeError, OptionError, ShapeError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

SEED = 2020
Family = Literal["dense", "causal", "window", "strided", "fixed", "star", "longformer", "bigbird", "block-diagonal"]
Pattern: TypeAlias = ArrayLike | Callable[[Any, Any], Any]
"""A boolean array (n, n) or (p, n, n), or a function of query and token, called with arrays if it takes them."""


@checked
def sparse_pattern(
    name: Family, n: int, *, width: int | None = None, globals: int | None = None, random: int | None = None
) -> np.ndarray:
    """A named family of patterns for n tokens: a boolean array (p, n, n), p patterns that layers take in turn.

    Entry [l, k, j] says whether the query k sees the token j. All but "causal" see in both directions:

    - "dense", "causal"
    - "window": |j − k| ≤ width (1 unless given)
    - "strided": that with width √n, then all j that differ from k by multiples of √n
    - "fixed": the block of k, of √n tokens, then the last token of every block
    - "star": neighbours and the last token, which sees all
    - "longformer": a window (2 unless given) and `globals` tokens (1) that see all and are seen by all
    - "bigbird": that and `random` more tokens (2) for each query, always the same ones
    - "block-diagonal": the block of k alone, of width √n unless given

    Arguments:
        name: the family.
        n: number of tokens.
        width: reach of a window, stride, or size of a block; the default depends on the family.
        globals: number of tokens that see all and are seen by all ("longformer", "bigbird").
        random: number of further tokens for each query ("bigbird").

    Ref         child2019; guo2019; beltagy2020; zaheer2020; yun2020b.

    >>> import measureformer as mf
    >>> mf.sequences.sparse_pattern("star", 5)[0].astype(int).tolist()[1]
    [1, 1, 1, 0, 1]
    >>> int(mf.sequences.sparse_pattern("window", 64, width=4).sum())
    556
    """
    n = positive_int(n, "n")
    families: dict[str, Callable[[], list[np.ndarray]]] = {
        "dense": lambda: [np.ones((n, n), bool)],
        "causal": lambda: [np.tri(n, dtype=bool)],
        "window": lambda: [_window(n, _size(width, 1, "width"))],
        "strided": lambda: _strided(n, _size(width, _root(n), "width")),
        "fixed": lambda: _fixed(n, _size(width, _root(n), "width")),
        "star": lambda: [_with_globals(_window(n, 1), [n - 1])],
        "longformer": lambda: [_longformer(n, width, globals)],
        "bigbird": lambda: [_longformer(n, width, globals) | _drawn(n, _size(random, 2, "random"))],
        "block-diagonal": lambda: [_blocks(n, _size(width, _root(n), "width"))],
    }
    used = {"width": ("window", "strided", "fixed", "longformer", "bigbird", "block-diagonal")}
    used |= {"globals": ("longformer", "bigbird"), "random": ("bigbird",)}
    for option, value in (("width", width), ("globals", globals), ("random", random)):
        if value is not None and name not in used[option]:
            raise OptionError(
                got=f"{option} = {value} for the pattern {name!r}",
                need=f"no such option: {option} belongs to {', '.join(used[option])}",
                do="Leave it out.",
            )
    return np.stack(families[name]())


def as_pattern(given: Pattern, n: int | None = None) -> np.ndarray:
    """A boolean array (p, n, n) from an array (n, n) or (p, n, n), or from a function of two index arrays."""
    if callable(given):
        if n is None:
            raise OptionError(
                got="a pattern that is a function, without n",
                need="the number of tokens",
                do="Pass n: check_pattern(lambda k, j: abs(k - j) < 3, n=64).",
            )
        k, j = np.indices((positive_int(n, "n"), n))
        try:
            given = np.broadcast_to(np.asarray(given(k, j)), (n, n))
        except (ValueError, TypeError):
            # a function of two numbers, with `if` or `and` in it
            given = np.array([[bool(given(a, b)) for b in range(n)] for a in range(n)])
    try:
        array = np.asarray(given)
    except ValueError:
        raise ShapeError(
            got="a ragged pattern", need="a square array", do="Give each query one entry per token."
        ) from None
    if array.dtype != bool:
        raise DtypeError(
            got=f"a pattern of dtype {array.dtype}",
            need="booleans: [k, j] says whether the query k sees the token j",
            do="Write mask == 1, or mask == 0 if yours adds −inf where it hides, so that it is clear which is meant.",
        )
    array = array[None] if array.ndim == 2 else array
    if (
        array.ndim != 3
        or array.shape[1] != array.shape[2]
        or 0 in array.shape
        or (n is not None and array.shape[1] != n)
    ):
        raise ShapeError(
            got=f"a pattern of shape {np.shape(given)}" + ("" if n is None else f" for n = {n}"),
            need="(n, n), or (p, n, n) for p patterns that layers take in turn",
            do="Queries are rows: one entry per query and token.",
        )
    return array


def _size(value: int | None, default: int, name: str) -> int:
    return default if value is None else positive_int(value, name)


def _root(n: int) -> int:
    return max(1, math.isqrt(n))


def _distance(n: int) -> np.ndarray:
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def _window(n: int, width: int) -> np.ndarray:
    return _distance(n) <= width


def _strided(n: int, width: int) -> list[np.ndarray]:
    return [_window(n, width), _distance(n) % width == 0]


def _fixed(n: int, width: int) -> list[np.ndarray]:
    j = np.arange(n)
    # the last block may be a short one
    return [_blocks(n, width), np.eye(n, dtype=bool) | (j % width == width - 1) | (j == n - 1)]


def _blocks(n: int, width: int) -> np.ndarray:
    block = np.arange(n) // width
    return block[:, None] == block[None, :]


def _with_globals(seen: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    seen = seen.copy()
    seen[tokens, :] = True
    seen[:, tokens] = True
    return seen


def _longformer(n: int, width: int | None, count: int | None) -> np.ndarray:
    tokens = range(min(n, _size(count, 1, "globals")))
    return _with_globals(_window(n, _size(width, 2, "width")), tokens)


def _drawn(n: int, count: int) -> np.ndarray:
    rng, seen = np.random.default_rng(SEED), np.zeros((n, n), bool)
    chosen = rng.random((n, n)).argsort(axis=1)[:, : min(n, count)]
    np.put_along_axis(seen, chosen, True, axis=1)
    return seen
