"""Functions of sequences that users pass: called in batches if they can be, and tested before they are compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from measureformer.errors import DtypeError, NotEquivariantError, NotFiniteError, ShapeError
from measureformer.numerics.types import ArrayLike

SEED, TRIALS = 20191223, 8


class SequenceFunction:
    """f from (n, d) to (n, d) as a function of (batch, n, d), in float64.

    f is called once for a whole batch if a comparison on three sequences shows that it accepts batches.
    """

    def __init__(self, f: Callable[[np.ndarray], ArrayLike], d: int, n: int) -> None:
        if not callable(f):
            raise DtypeError(
                got=f"f of type {type(f).__name__}", need="a function of an (n, d) array", do="Pass a callable."
            )
        self.f, self.d, self.n = f, d, n
        self.batches = False
        X = np.random.default_rng(SEED).uniform(size=(3, n, d))
        singly = self(X)
        try:
            at_once = np.asarray(f(X), float)
        except Exception:  # whatever a function of one sequence does with three of them
            return
        self.batches = at_once.shape == singly.shape and bool(
            np.allclose(at_once, singly, rtol=1e-9, atol=1e-12, equal_nan=True)
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        Y = np.asarray(self.f(X), float) if self.batches else np.stack([self._one(x) for x in X])
        bad = ~np.isfinite(Y)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise NotFiniteError(
                got=f"f that is {Y[where]} at the sequence {X[where[0]].tolist()}",
                need="f finite on the cube",
                do="Change f there: what is compiled must be continuous on all of [0, 1]^(n×d).",
            )
        return Y

    def _one(self, x: np.ndarray) -> np.ndarray:
        y = np.asarray(self.f(x), float)
        if y.shape != x.shape:
            raise ShapeError(
                got=f"f that returns shape {y.shape} for a sequence of shape {x.shape}",
                need="the same shape",
                do="A transformer maps n tokens in R^d to n tokens in R^d: pad tokens with zeros.",
            )
        return y


def refuse_not_equivariant(f: SequenceFunction) -> None:
    """Test f(XP) = f(X)P on random sequences, and refuse with a permutation that violates it."""
    rng = np.random.default_rng(SEED + 1)
    X = rng.uniform(size=(TRIALS, f.n, f.d))
    Y = f(X)
    scale = max(1.0, float(np.abs(Y).max()))
    orders = [np.roll(np.arange(f.n), 1), np.arange(f.n)[::-1], *(rng.permutation(f.n) for _ in range(4))]
    for order in orders:
        error = np.abs(f(X[:, order]) - Y[:, order]).max(axis=(1, 2))
        worst = int(error.argmax())
        if error[worst] > 1e-7 * scale:
            raise NotEquivariantError(
                got=f"f that depends on the order of tokens: with them in the order {order.tolist()}, f(XP) and f(X)P "
                f"differ by {error[worst]:.3g}",
                need="f(XP) = f(X)P for all permutations, as every transformer without positions has it",
                do="Pass positions=True; `error.witness` holds the permutation and the sequence.",
                witness=(tuple(order.tolist()), X[worst]),
            )
