"""`compile_one_layer`: a function of sequences in one layer of attention, between two perceptrons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from measureformer.errors import ShapeError
from measureformer.numerics.arrays import finite, floats, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Side
from measureformer.sequences.boltzmann.memory import Memory, remembered
from measureformer.sequences.budget import distance
from measureformer.sequences.codes import CellCodes, cells_of, checked_ramp, checked_size
from measureformer.sequences.function import SequenceFunction, refuse_not_equivariant

if TYPE_CHECKING:
    from measureformer.maps.compose import Compose


@dataclass(frozen=True, eq=False)
class OneLayer:
    """A staircase from tokens to the centres of their cells, one softmax head of rank 1, and a look-up.

    >>> import measureformer as mf
    >>> net = mf.sequences.compile_one_layer(lambda X: X, d=1, n=2, delta=1 / 4)
    >>> net.run([[0.3], [0.9]]).tolist(), net.attention
    ([[0.375], [0.875]], 1)
    """

    function: SequenceFunction
    grid: CellCodes
    ramp: float
    memory: Memory
    attention: int = 1

    @property
    def parameters(self) -> int:
        """Of the staircase, with two ReLUs for each step and coordinate, the head and the look-up."""
        steps = 2 * self.grid.d * (self.grid.cells - 1)
        return steps * (2 * self.grid.d + 1) + self.grid.d + self.memory.parameters

    def quantised(self, X: np.ndarray) -> np.ndarray:
        """Centres of cells, interpolated on the ramps [k δ − ramp, k δ).

        Arguments:
            X: sequences (…, n, d).
        """
        D = self.grid.cells
        knots = np.arange(1, D) / D
        above = np.searchsorted(knots, X, side="right")
        ahead = np.minimum(above, D - 2)
        rise = np.clip((X - knots[ahead] + self.ramp) / self.ramp, 0, 1) * (above < D - 1)
        return (above + rise + 0.5) / D

    def run(self, X: ArrayLike) -> np.ndarray:
        """The network's values on sequences.

        Arguments:
            X: sequences (batch, n, d) in the cube, or one (n, d).
        """
        X = np.asarray(floats(X, "X"), float)
        if X.ndim not in (2, 3) or X.shape[-2:] != (self.grid.n, self.grid.d):
            need = f"(batch, {self.grid.n}, {self.grid.d}) or ({self.grid.n}, {self.grid.d})"
            raise ShapeError(got=f"X of shape {X.shape}", need=need, do="Tokens are rows.")
        finite(X, "X")
        return self.memory.run(self.quantised(X))

    def error(self, p: float = 2.0, *, points: int = 4000) -> float:
        """The L^p distance to f over the cube, measured at the points that `Construction.error_budget` uses.

        Arguments:
            p: exponent, 1 ≤ p < ∞.
            points: number of random sequences.
        """
        from measureformer.sequences.budget import SEED

        X = np.random.default_rng(SEED).uniform(size=(points, self.grid.n, self.grid.d))
        return distance(self.run(X), self.function(X), p)

    def as_map(self) -> Compose:
        """The network as ordinary maps: MLP ⋄ Residual(Attention) ⋄ MLP."""
        from measureformer.maps import MLP

        D, d, e = self.grid.cells, self.grid.d, self.ramp
        knots = np.tile(np.arange(1, D) / D, d)
        W1 = np.repeat(np.eye(d), D - 1, axis=0)
        W1, b1 = np.concatenate([W1, W1]), np.concatenate([e - knots, -knots])
        W2 = np.concatenate([W1[: len(knots)].T, -W1[: len(knots)].T], axis=1) / (e * D)
        return self.memory.as_map() @ MLP(W1, b1, W2, np.full(d, 0.5 / D))


@checked
def compile_one_layer(
    f: Callable[[np.ndarray], ArrayLike], *, d: int, n: int, delta: Side, ramp: float = 1e-3
) -> OneLayer:
    """Compile f into a network with one softmax head, close to it on sequences of n tokens in the cube [0, 1]^d.

    Compared with `compile_yun`, it trades depth for the width of a look-up with n·C(N, n) values. Sequences with two
    tokens in one cell are sent to 0.

    Arguments:
        f: permutation-equivariant function from (n, d) to (n, d), or from (batch, n, d) to the same shape.
        d: dimension of the tokens.
        n: number of tokens.
        delta: side of a cell, 1 over a whole number ≥ 2.
        ramp: width over which ReLUs replace a jump, at most delta/4; rounded down to a power of two.

    Statement   for f continuous and permutation equivariant and ε > 0 there are two perceptrons and one softmax head of
                rank 1 with d_p(f, FF ∘ SA ∘ FF) < ε
    Hypotheses  checked: f finite on cells, equivariant on random sequences, contexts apart in float64.
    Ref         kajitsuka2024, Theorem 3.

    >>> import numpy as np, measureformer as mf
    >>> f = lambda X: X + X.mean(axis=-2, keepdims=True)
    >>> net = mf.sequences.compile_one_layer(f, d=1, n=2, delta=1 / 8)
    >>> float(np.abs(net.run([[0.3125], [0.9375]]) - f(np.array([[0.3125], [0.9375]]))).max()) < 1e-9
    True
    """
    d, n, cells = positive_int(d, "d"), positive_int(n, "n"), cells_of(delta)
    grid = CellCodes(d, n, cells)
    checked_size(grid)
    ramp = checked_ramp(ramp, grid)
    function = SequenceFunction(f, d, n)
    refuse_not_equivariant(function)
    vocabulary = (np.stack(np.unravel_index(np.arange(grid.tokens), (cells,) * d, order="F"), axis=-1) + 0.5) / cells
    contexts = grid.enumerate()
    ids = contexts @ grid.u
    values = function((contexts + 0.5) / cells)
    twice = _with_repetitions(grid)
    everything = np.concatenate([ids, twice]), np.concatenate([values, np.zeros((len(twice), n, d))])
    return OneLayer(function, grid, ramp, remembered(vocabulary, *everything, "practical"))


def _with_repetitions(grid: CellCodes) -> np.ndarray:
    """Contexts (m, n) in which a token occurs twice: their value is 0, so they need codes of their own."""
    import itertools

    every = np.array(list(itertools.combinations_with_replacement(range(grid.tokens), grid.n)))
    return every[(np.diff(every, axis=1) == 0).any(axis=1)]
