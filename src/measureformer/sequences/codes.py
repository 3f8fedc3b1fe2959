"""Cells of the cube, their ids, and the codes that selective shifts make of them: whole numbers in units of delta."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from measureformer.errors import ConstructionError, DtypeError, OptionError
from measureformer.sequences.activation import power_of_two_below

LARGEST = 1 << 18
"""Most value layers that are built."""

HALVES, ROUNDED = 52, 48
"""Bits of a code below which float64 is exact: one is needed for half units, and a few more where delta is rounded."""


@dataclass(frozen=True)
class CellCodes:
    """n tokens in [0, 1)^d, each coordinate in one of `cells` cells; `places` are positions, None if there are none.

    The id of a token in cell (c_1, …, c_d) at place e is Σ_i (c_i + e·cells)·cells^i.

    Statement   ids l_1 < … < l_n become L_1 = l_1 + K(l_n − l_1), L_j = l_j + K(L_{j−1} − l_j), and codes
                q_j = L_j + K^{n+1} L_n; with `steps`, K^{n+1} L_n is replaced by what that many layers of maxima give
    Ref         yun2020, Lemma 6; yun2020b.
    """

    d: int
    n: int
    cells: int
    places: tuple[int, ...] | None = None
    steps: int | None = None

    @cached_property
    def u(self) -> np.ndarray:
        return np.array([self.cells**i for i in range(self.d)])

    @property
    def tokens(self) -> int:
        """N, the number of different cells of a token."""
        return self.cells**self.d

    @property
    def offsets(self) -> tuple[int, ...]:
        """What the place of each token adds to its id."""
        places = self.places or (0,) * self.n
        return tuple(place * self.cells * int(self.u.sum()) for place in places)

    @property
    def base(self) -> int:
        """K, the end of the range of ids: then a shifted id lies beyond it, and no token is shifted twice."""
        return max(self.offsets) + self.tokens

    @property
    def spread(self) -> int:
        """C, the scale of a layer of maxima: a larger code wins whatever follows."""
        return 2 ** ((self.steps or 0) + 1) * self.base**self.n

    @property
    def most(self) -> int:
        """A bound of all codes."""
        K, n = self.base, self.n
        if self.steps is None:
            return K ** (2 * n + 1) * (K - 1) + K ** (n + 1)
        return K**n * (1 + self.spread) ** self.steps

    @property
    def contexts(self) -> int:
        """How many contexts there are: sets of cells, or sequences if tokens have places."""
        return math.comb(self.tokens, self.n) if self.places is None else self.tokens**self.n

    @property
    def exact(self) -> bool:
        """Whether float64 holds all codes and half units."""
        return bits(self.most) <= (HALVES if self.cells & (self.cells - 1) == 0 else ROUNDED)

    @property
    def dtype(self) -> Any:
        """int64 where everything fits, tokens outside of the cube included; Python's own integers otherwise."""
        return np.int64 if bits(self.outside) <= 60 else object

    @property
    def outside(self) -> int:
        """A bound of what is met anywhere, tokens outside of the cube included."""
        return max(8 * self.base ** (3 * self.n + 1), 4 * self.most)

    def enumerate(self) -> np.ndarray:
        """Cells (contexts, n, d) of every context: increasing ids, or all sequences if tokens have places."""
        cells = np.stack(np.unravel_index(np.arange(self.tokens), (self.cells,) * self.d, order="F"), axis=-1)
        if self.places is None:
            chosen = np.array(list(itertools.combinations(range(self.tokens), self.n)))
        else:
            chosen = np.stack(np.unravel_index(np.arange(self.contexts), (self.tokens,) * self.n), axis=-1)
        return cells[chosen]

    def placed(self, cells: np.ndarray) -> np.ndarray:
        """Whole numbers (…, n, d) after the quantiser: cells, moved to the places of their tokens."""
        moves = np.array(self.places or (0,) * self.n)[:, None] * self.cells
        return (cells + moves).astype(self.dtype)

    def unpack(self, code: Any) -> tuple[Any, Any]:
        """From codes to the id of the token and to all ids of its context (…, n), sorted; exact, no table."""
        K, n = self.base, self.n
        if self.steps is None:
            last, own = code // K ** (n + 1), code % K ** (n + 1)
        else:
            last, own = code // self.spread**self.steps, code % self.spread
        seen: list[Any] = []
        for _ in range(n - 1):
            digit = last % K
            seen.append(digit)
            last = digit + (last - digit) // K
        return own % K, np.sort(np.stack([*seen, last % K], axis=-1), axis=-1)

    def cell_of(self, ids: Any) -> np.ndarray:
        """Corners (…, d) of the cells with these ids, at their places, in the units of the tokens."""
        # at place e every digit is larger by e·cells: take it off first
        step = self.cells * int(self.u.sum())
        place = ids // step if self.places is not None else 0 * ids
        rest = ids - place * step
        digits = np.stack([rest // int(unit) % self.cells for unit in self.u], axis=-1)
        return digits.astype(float) / self.cells


def bits(number: int) -> int:
    """Bits of the whole numbers below this one."""
    return (number - 1).bit_length()


def cells_of(delta: float) -> int:
    """1/delta, or a refusal.

    >>> cells_of(0.25), cells_of(1 / 3)
    (4, 3)
    """
    try:
        value = float(delta)
    except (TypeError, ValueError):
        raise DtypeError(
            got=f"delta of type {type(delta).__name__}", need="a number", do="Pass delta = 1/4, for instance."
        ) from None
    cells = round(1 / value) if 0 < value <= 1 else 0
    if cells < 2 or abs(cells * value - 1) > 1e-9:
        near = max(cells, 2)
        raise OptionError(
            got=f"delta = {value:g}",
            need="1 divided by a whole number ≥ 2, since cells must fill the cube",
            do=f"Take delta = 1/{near}.",
        )
    return cells


def checked_ramp(ramp: float, grid: CellCodes) -> float:
    """The largest power of two that is at most `ramp`, or a refusal."""
    if not (isinstance(ramp, (int, float)) and 0 < ramp <= 0.25 / grid.cells):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(got=f"ramp = {ramp!r}", need="0 < ramp ≤ delta/4", do="Leave it out for 1e-3.")
    return power_of_two_below(float(ramp))


def checked_size(grid: CellCodes) -> None:
    """Refuse what has no contexts, and what would be too large, and say how large."""
    count = grid.n * grid.contexts
    if count == 0:
        raise ConstructionError(
            got=f"n = {grid.n} tokens and only {grid.tokens} cells",
            need="at least n cells: tokens in one cell are not told apart, and are sent to 0",
            do=f"Take a delta of at most 1/{math.ceil(grid.n ** (1 / grid.d))}, or positions=True.",
        )
    if count > LARGEST:
        formula = "n·C(N, n)" if grid.places is None else "n·N^n"
        raise ConstructionError(
            got=f"d = {grid.d}, n = {grid.n}, delta = 1/{grid.cells}: N = {grid.tokens} cells of a token, hence "
            f"{formula} = {count:,} value layers",
            need=f"at most {LARGEST:,}",
            do=_feasible(grid, lambda g: 0 < g.n * g.contexts <= LARGEST),
        )


def finest(grid: CellCodes) -> str:
    """Advice: the finest delta whose codes float64 holds."""
    return _feasible(grid, lambda g: g.exact)


def _feasible(grid: CellCodes, good: Callable[[CellCodes], bool]) -> str:
    for cells in range(grid.cells - 1, 1, -1):
        if good(CellCodes(grid.d, grid.n, cells, grid.places, grid.steps)):
            return f"The finest delta that is feasible is 1/{cells}."
    return "No delta is feasible: take fewer tokens or dimensions."
