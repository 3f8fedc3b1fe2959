"""Alternatives to attention: fixed linear mixtures of tokens, and which of them tell contexts apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, positive_int, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike
from measureformer.sequences.codes import CellCodes
from measureformer.sequences.slots import refuse_off_slots, slot, slots


class Bilinear(AbstractInContextMap):
    """x_k ↦ W Σ_j P[k, j] x_j for tokens at n positions: a mixture that does not depend on the tokens.

    In columns this is W X Pᵀ; `mf.Residual(Bilinear(W, P))` is the layer. Like `SparseAttention`, it is a map on
    space–time, for one number of tokens.

    Arguments:
        W: matrix applied after mixing, (e, d).
        P: shares of the tokens, (n, n), one row for each position.

    Ref         yun2020, Section 5.

    >>> import numpy as np, measureformer as mf
    >>> swap = mf.sequences.Bilinear([[2.0]], [[0.0, 1.0], [1.0, 0.0]])
    >>> swap.tokens([[1.0], [5.0]]).tolist()
    [[10.0], [2.0]]
    """

    W: Float[Array, "e d"]
    P: Float[Array, "n n"]

    @checked
    def __init__(self, W: ArrayLike, P: ArrayLike) -> None:
        self.W, self.P = _matrices(W=(W, "e d"), P=(P, "n n"))
        if self.P.shape[0] != self.P.shape[1]:
            raise ShapeError(got=f"P of shape {self.P.shape}", need="(n, n)", do="One row of shares for each token.")

    @property
    def n(self) -> int:
        return self.P.shape[0]

    @property
    def in_dim(self) -> int:
        return self.W.shape[1]

    def out_dim(self, dim: int) -> int:
        return self.W.shape[0]

    @property
    def needs_time(self) -> bool:
        return True

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return self.P[slot(t, self.n)] @ slots(mu, self.n)[0] @ self.W.T

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        refuse_off_slots(mu, t, self.n, type(self).__name__)


class SeparableConv(AbstractInContextMap):
    """x_k ↦ W Σ_s kernel[s] ⊙ x_{k+s−c}, c the middle of the kernel: a depthwise convolution, then a matrix.

    Tokens beyond the ends count as 0.

    Arguments:
        kernel: weights of each coordinate, (w, d) with w odd.
        W: matrix applied after the convolution, (e, d).
        n: number of tokens.

    Ref         yun2020, Section 5.

    >>> import measureformer as mf
    >>> G = mf.sequences.SeparableConv([[1.0], [0.0], [10.0]], [[1.0]], n=3)
    >>> G.tokens([[1.0], [2.0], [3.0]]).tolist()
    [[20.0], [31.0], [2.0]]
    """

    kernel: Float[Array, "w d"]
    W: Float[Array, "e d"]
    places: Float[Array, " n"]

    @checked
    def __init__(self, kernel: ArrayLike, W: ArrayLike, *, n: int) -> None:
        self.kernel, self.W = _matrices(kernel=(kernel, "w d"), W=(W, "e d"))
        if self.kernel.shape[1] != self.W.shape[1] or len(self.kernel) % 2 == 0:
            raise DimensionMismatchError(
                got=f"a kernel of shape {self.kernel.shape} and W of shape {self.W.shape}",
                need="(w, d) with w odd, and (e, d)",
                do="One column of the kernel for each coordinate; a middle, and as many on both sides.",
            )
        self.places = owned(np.zeros(positive_int(n, "n"), np.float32))

    @property
    def n(self) -> int:
        return self.places.shape[0]

    @property
    def in_dim(self) -> int:
        return self.kernel.shape[1]

    def out_dim(self, dim: int) -> int:
        return self.W.shape[0]

    @property
    def needs_time(self) -> bool:
        return True

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        points = slots(mu, self.n)[0]
        near = slot(t, self.n)[:, None] + jnp.arange(len(self.kernel)) - len(self.kernel) // 2
        inside = (near >= 0) & (near < self.n)
        seen = jnp.where(inside[..., None], points[jnp.clip(near, 0, self.n - 1)], 0)
        return jnp.einsum("mwd,wd->md", seen, self.kernel) @ self.W.T

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        refuse_off_slots(mu, t, self.n, type(self).__name__)


def _matrices(**given: tuple[ArrayLike, str]) -> list[Array]:
    """Finite matrices of one dtype, from their values and axes."""
    parts = [shaped(floats(value, name), name, axes) for name, (value, axes) in given.items()]
    for name, part in zip(given, parts, strict=True):
        finite(part, name)
    return cast([owned(part) for part in parts], common_dtype(*parts))


@dataclass(frozen=True, eq=False)
class Contexts:
    """How well a map distinguishes contexts, over all sequences of different tokens from a grid.

    >>> import measureformer as mf
    >>> mf.sequences.told_apart(lambda X: X, tokens=4, n=2).collisions > 0
    True
    """

    sequences: int
    collisions: int
    """Neighbouring values that agree although they belong to two tokens of a sequence, or to sequences that are not
    permutations of each other."""
    separation: float
    """The least distance of two values that must differ, over the spread of all values."""
    witness: tuple[np.ndarray, np.ndarray] | None
    """Two sequences that share a value."""

    @property
    def contextual(self) -> bool:
        """Whether the map is a contextual mapping on these sequences."""
        return self.collisions == 0


@checked
def told_apart(G: Callable[[np.ndarray], ArrayLike], *, tokens: int, n: int, tol: float = 1e-9) -> Contexts:
    """Compare the values of G on all sequences of n different tokens from a grid of [0, 1).

    G is a contextual mapping if the tokens of a sequence get different values, and two sequences share a value only if
    they are permutations of each other.

    Arguments:
        G: function of sequences, (batch, n, 1) to (batch, n, 1): one number for each token.
        tokens: number of grid points.
        n: length of the sequences, at most `tokens`.
        tol: values closer than this, relative to the spread of all values, count as equal.

    Statement   a contextual mapping is what attention computes and a perceptron cannot
    Cost        n · tokens!/(tokens − n)! values, sorted.
    Ref         yun2020, Definition 3.1.

    >>> import numpy as np, measureformer as mf
    >>> P = np.array([[1.0, 0.131], [0.173, 1.0]])
    >>> mf.sequences.told_apart(lambda X: P @ X, tokens=8, n=2).contextual
    True
    """
    import itertools

    if positive_int(n, "n") > positive_int(tokens, "tokens"):
        raise OptionError(got=f"n = {n}, tokens = {tokens}", need="n ≤ tokens", do="Take more tokens.")
    ids = np.array(list(itertools.permutations(range(tokens), n)))
    X = CellCodes(1, n, tokens).placed(ids[..., None]).astype(float) / tokens
    values = np.asarray(G(X), float)[..., 0].reshape(-1)
    rows = np.repeat(np.arange(len(ids)), n)
    # what may agree: the same token, in contexts that are permutations of each other
    _, context = np.unique(np.sort(ids, axis=1), axis=0, return_inverse=True)
    label = context.reshape(-1)[rows] * tokens + ids.reshape(-1)
    order = np.argsort(values, kind="stable")
    gaps = np.diff(values[order]) / max(float(np.ptp(values)), 1e-300)
    differ = label[order][1:] != label[order][:-1]
    bad = differ & (gaps <= tol)
    first = int(bad.argmax())
    witness = (X[rows[order[first]]], X[rows[order[first + 1]]]) if bad.any() else None
    least = float(gaps[differ].min()) if differ.any() else np.inf
    return Contexts(len(ids), int(bad.sum()), least, witness)
