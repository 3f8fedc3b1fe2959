"""`Construction`: a network as data. Layers with explicit weights and tags, and four ways to run it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from measureformer.errors import DomainError, DtypeError, OptionError, ShapeError, ToleranceError
from measureformer.numerics.arrays import finite, floats
from measureformer.numerics.types import ArrayLike
from measureformer.sequences.codes import CellCodes, bits, finest
from measureformer.sequences.layers import Bumps, Feed, Shift, Tag

if TYPE_CHECKING:
    from measureformer.maps.transformer import Transformer
    from measureformer.sequences.budget import ErrorBudget
    from measureformer.sequences.function import SequenceFunction

Mode = Literal["auto", "integer", "hard", "soft", "clamped"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class LayerCensus:
    """Layers of a construction by tag, and the size of the ordinary transformer made of them.

    >>> import measureformer as mf
    >>> mf.sequences.compile_yun(lambda X: X, d=1, n=2, delta=1 / 4).census
    LayerCensus(quantise=5, sweep=4, global_shift=1, value=14, clamp=1, dim=1)
    """

    quantise: int
    sweep: int
    global_shift: int
    value: int
    clamp: int
    dim: int

    @property
    def attention(self) -> int:
        return self.sweep + self.global_shift

    @property
    def feedforward(self) -> int:
        """Perceptrons, those of the clamp not counted."""
        return self.quantise + self.value

    @property
    def blocks(self) -> int:
        """Blocks of attention and perceptron, clamp included: one half of each is idle, save where the two meet."""
        return self.attention + self.feedforward + self.clamp - 1

    @property
    def parameters(self) -> int:
        """Of these blocks, with two heads of size 1, query biases, and four ReLUs: 17 d + 6 for each."""
        return self.blocks * (17 * self.dim + 6)


@dataclass(frozen=True, eq=False)
class Decoded:
    """The token and the context that a context id stands for.

    >>> import measureformer as mf
    >>> net = mf.sequences.compile_yun(lambda X: X, d=1, n=2, delta=1 / 4)
    >>> found = net.decode(net.context_ids([[[0.3], [0.9]]])[0, 0])
    >>> found.token.tolist(), found.context.tolist()
    ([0.25], [[0.25], [0.75]])
    """

    token: np.ndarray
    """(…, d): the corner of its cell."""
    context: np.ndarray
    """(…, n, d): corners of all cells, by increasing ids."""


@dataclass(frozen=True, eq=False)
class Construction:
    """A function of sequences, compiled to layers: quantise, distinguish contexts, write values.

    Made by `compile_yun` and `compile_sparse`. Modes:

    - "integer": whole numbers in units of delta, exact at any size
    - "hard": float64, hard attention and activations with jumps; exact as long as the codes fit
    - "soft": float64, softmax and four ReLUs per activation, with ramps of width `ramp` where there were jumps
    - "clamped": the same, and then values beyond `bound` are set to 0

    "auto" is "hard" where that is exact, and "integer" elsewhere. Sequences outside the cube are sent to 0; with
    positions they are refused.

    >>> import numpy as np, measureformer as mf
    >>> f = lambda X: X + X.mean(axis=-2, keepdims=True)
    >>> net = mf.sequences.compile_yun(f, d=1, n=2, delta=1 / 8)
    >>> net.run([[0.3], [0.9]], "integer").tolist(), net.bits_required()
    ([[0.9375], [1.5625]], 18)
    >>> print(net)
    76 layers for n = 2 tokens in R^1, delta = 1/8: 9 quantise, 8 sweep, 1 global shift, 58 value; 18 bits
    """

    function: SequenceFunction
    grid: CellCodes
    ramp: float
    bound: float
    """Above the largest value written; the clamp sets larger values to 0."""
    quantise: tuple[Feed, ...]
    shifts: tuple[Shift, ...]
    clear: tuple[Feed, ...]
    bumps: Bumps
    clamp: tuple[Feed, ...]

    @property
    def delta(self) -> float:
        return 1 / self.grid.cells

    @cached_property
    def layers(self) -> tuple[Feed | Shift, ...]:
        """All layers in order; those tagged "clamp" act only in the mode "clamped"."""
        written = tuple(self.bumps.layer(i) for i in range(len(self.bumps)))
        return (*self.quantise, *self.shifts, *self.clear, *written, *self.clamp)

    @property
    def census(self) -> LayerCensus:
        def count(tag: Tag) -> int:
            return sum(layer.tag == tag for layer in self.shifts)

        return LayerCensus(
            quantise=len(self.quantise),
            sweep=count("sweep"),
            global_shift=count("global shift"),
            value=len(self.clear) + len(self.bumps),
            clamp=len(self.clamp),
            dim=self.grid.d,
        )

    def bits_required(self) -> int:
        """Bits of the largest context id; float64 has 53."""
        return bits(int(self.bumps.codes.max()) + 1)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that float64 computes faithfully: it must hold the codes, and for ReLUs the ramp beside them."""
        fits = self.ramp >= 2.0 ** (bits(self.grid.most) - 51)
        return () if not self.grid.exact else ("hard", "soft", "clamped") if fits else ("hard",)

    def run(self, X: ArrayLike, mode: Mode = "auto") -> np.ndarray:
        """The network's values on sequences.

        Arguments:
            X: sequences (batch, n, d), or one (n, d).
            mode: arithmetic and activations; see the class.
        """
        if mode not in MODES:
            raise OptionError(got=f"mode = {mode!r}", need=f"one of {', '.join(MODES)}", do='Leave it out for "auto".')
        sequences, single = self._sequences(X)
        if mode == "auto":
            mode = "hard" if self.grid.exact else "integer"
        if mode == "integer":
            Y = self.bumps.integer(self._shifted(sequences))
        else:
            self._refuse_rounding(mode)
            Y = self._hard(sequences) if mode == "hard" else self._soft(sequences, clamp=mode == "clamped")
        return Y[0] if single else Y

    def context_ids(self, X: ArrayLike) -> np.ndarray:
        """One whole number for each token, which determines the token and its whole context. Exact.

        Arguments:
            X: sequences (batch, n, d), or one (n, d).
        """
        sequences, single = self._sequences(X)
        Z = self._shifted(sequences)
        ids = Z @ self.grid.u.astype(Z.dtype)
        return ids[0] if single else ids

    def decode(self, q: ArrayLike) -> Decoded:
        """The tokens and contexts that context ids stand for; other numbers are refused.

        Arguments:
            q: context ids, one or an array of them.
        """
        given = np.asarray(q)
        if given.dtype != object and not np.issubdtype(given.dtype, np.integer):
            raise DtypeError(
                got=f"context ids of dtype {given.dtype}", need="whole numbers", do="Pass what context_ids returns."
            )
        codes = given.astype(self.grid.dtype)
        order = np.sort(self.bumps.codes)
        place = np.minimum(np.searchsorted(order, codes), len(order) - 1)
        wrong = np.asarray(order[place] != codes)
        if wrong.any():
            raise DomainError(
                got=f"{codes[wrong][0] if codes.ndim else codes}, which is no context id of different tokens",
                need="what context_ids returns for tokens in different cells of the cube",
                do="Tokens in one cell have no context id: take a smaller delta, or positions.",
            )
        own, context = self.grid.unpack(codes)
        return Decoded(self.grid.cell_of(own), self.grid.cell_of(context))

    def error_budget(self, p: float = 2.0, *, points: int = 4000, modulus: float | None = None) -> ErrorBudget:
        """Sources of the L^p distance to f, bounded and measured, for each mode; see `ErrorBudget`.

        Arguments:
            p: exponent, 1 ≤ p < ∞.
            points: random sequences on which errors are measured.
            modulus: bound on how much f changes between the centre and any point of a cell; estimated if left out.
        """
        from measureformer.sequences.budget import budget

        return budget(self, p, points, modulus)

    def as_map(self, mode: Literal["hard", "soft", "clamped"] = "hard") -> Transformer:
        """The network as an ordinary `Transformer`; a constant coordinate of the tokens carries the query biases.

        Arguments:
            mode: arithmetic and activations; see the class.
        """
        from measureformer.sequences.ordinary import network

        return network(self, mode)

    def __str__(self) -> str:
        c, g = self.census, self.grid
        return (
            f"{c.attention + c.feedforward} layers for n = {g.n} tokens in R^{g.d}, delta = 1/{g.cells}: {c.quantise} "
            f"quantise, {c.sweep} sweep, {c.global_shift} global shift, {c.value} value; {self.bits_required()} bits"
        )

    def cells(self, X: np.ndarray) -> np.ndarray:
        """The cell (…, d) of every token, −1 outside of [0, 1)."""
        D = self.grid.cells
        found = np.searchsorted(np.arange(D) / D, X, side="right") - 1
        return np.where((X < 0) | (X >= 1), D - 1 if self.grid.places is not None else -1, found)

    def embedded(self, X: np.ndarray) -> np.ndarray:
        """Tokens at their places: that of position e lies in [e, e + 1)^d."""
        if self.grid.places is None:
            return X
        at = np.array(self.grid.places, float)[:, None]
        return np.minimum(X + at, np.nextafter(at + 1, 0))

    def _shifted(self, X: np.ndarray) -> np.ndarray:
        cells = self.cells(X)
        outside = -(self.grid.base**self.grid.n) * self.grid.cells
        Z = np.where(cells < 0, outside, self.grid.placed(cells)).astype(self.grid.dtype)
        for layer in self.shifts:
            Z = layer.integer(Z)
        return Z

    def _hard(self, X: np.ndarray) -> np.ndarray:
        X = self.embedded(X)
        for layer in (*self.quantise, *self.shifts, *self.clear):
            X = layer.hard(X)
        return self.bumps.hard(X)

    def _soft(self, X: np.ndarray, *, clamp: bool) -> np.ndarray:
        X = self.embedded(X)
        for layer in (*self.quantise, *self.shifts, *self.clear):
            X = layer.soft(X) if isinstance(layer, Shift) else layer.soft(X, self.ramp)
        X = self.bumps.soft(X, self.ramp)
        for layer in self.clamp if clamp else ():
            X = layer.soft(X, self.ramp)
        return X

    def _sequences(self, given: ArrayLike) -> tuple[np.ndarray, bool]:
        X = np.asarray(floats(given, "X"), float)
        n, d = self.grid.n, self.grid.d
        if X.ndim not in (2, 3) or X.shape[-2:] != (n, d):
            raise ShapeError(
                got=f"X of shape {X.shape}",
                need=f"(batch, {n}, {d}) or ({n}, {d})",
                do="Tokens are rows; a construction is made for one number of tokens.",
            )
        finite(X, "X")
        if self.grid.places is not None and ((X < 0) | (X > 1)).any():
            raise DomainError(
                got="a token outside of the cube",
                need="entries in [0, 1]: with positions, a token beyond it would be taken for one at another place",
                do="Scale the sequences to the cube.",
            )
        return (X, False) if X.ndim == 3 else (X[None], True)

    def _refuse_rounding(self, mode: Mode) -> None:
        if mode in self.modes:
            return
        size = bits(self.grid.most)
        if self.grid.exact:
            raise ToleranceError(
                got=f"mode = {mode!r} for codes of up to {size} bits and ramps of width {self.ramp:.2g}",
                need="ramps that float64 holds beside the codes",
                do=f'Use mode="hard" or "integer", or a ramp of at least {2.0 ** (size - 51):.2g}. {finest(self.grid)}',
            )
        raise ToleranceError(
            got=f"mode = {mode!r} for codes of up to {size} bits",
            need="codes that float64 holds exactly",
            do=f'Use mode="integer", which is exact. {finest(self.grid)}',
        )
