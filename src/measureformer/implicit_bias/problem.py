"""`Problem`: examples that one attention head is trained on, its loss, and which tokens it should choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError, ShapeError, TieError
from measureformer.implicit_bias import risk as _risk
from measureformer.implicit_bias.svm import SVM, Norm, solve
from measureformer.maps import MLP, AbstractInContextMap, Linear
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    first_index,
    floats,
    host,
    is_traced,
    owned,
    shaped,
)

if TYPE_CHECKING:
    from measureformer.implicit_bias.descent import Descent, Run
    from measureformer.implicit_bias.path import Path

Kind = Literal["logistic", "exponential", "linear"] | Callable[[Any], Any]


class Problem(eqx.Module):
    """n examples of T tokens each: L(W) = 1/n Σ_i ℓ(y_i h(Σ_t s_it x_it)), s_i = softmax of k_it·W z_i over t.

    `X` (n, T, d) holds the tokens, `z` (n, q) the queries, `y` (n,) the labels. `v` is the head h: a vector (d,), or a
    context-free map with one output, `mf.MLP` for instance; then labels are ±1. A matrix (c, d), or a map with c
    outputs, makes c classes, with labels 0, …, c−1, and the margin is the output at the label minus log Σ exp of the
    others. `loss` is "logistic", "exponential", "linear" (ℓ(m) = −m), or a smooth strictly decreasing function of the
    margins. `keys` (n, T, k) are what W sees of the tokens, X itself unless given; `visible` (n, T) hides tokens.

    Ref         tarzanagh2023.

    >>> import numpy as np, measureformer as mf
    >>> X = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> problem = mf.implicit_bias.Problem(X, X[:, 0], [1], [1.0, 0.0])
    >>> round(problem.loss(np.zeros((2, 2))), 4), problem.scores().tolist(), problem.svm().W.tolist()
    (0.4741, [[1.0, 0.0]], [[0.5, 0.0], [-0.5, 0.0]])
    """

    X: Float[Array, "n T d"]
    z: Float[Array, "n q"]
    y: Float[Array, " n"]
    head: AbstractInContextMap
    keys: Float[Array, "n T k"]
    visible: Bool[Array, "n T"]
    kind: Any = eqx.field(static=True)

    def __init__(
        self, X: Any, z: Any, y: Any, v: Any, *, loss: Kind = "logistic", keys: Any = None, visible: Any = None
    ) -> None:
        X = shaped(floats(X, "X"), "X", "n T d")
        keys = X if keys is None else shaped(floats(keys, "keys"), "keys", "n T k")
        z, y = shaped(floats(z, "z"), "z", "n q"), shaped(floats(y, "y"), "y", "n")
        for name, array in (("X", X), ("keys", keys), ("z", z), ("y", y)):
            finite(array, name)
        if 0 in X.shape + keys.shape + z.shape or {len(keys), len(z), len(y)} != {len(X)}:
            raise ShapeError(
                got=f"X {X.shape}, keys {keys.shape}, z {z.shape} and y {y.shape}",
                need="(n, T, d), (n, T, k), (n, q) and (n,) with one n, nothing empty",
                do="Give a query and a label for each example.",
            )
        if keys.shape[1] != X.shape[1]:
            raise ShapeError(
                got=f"keys {keys.shape} for X {X.shape}", need="a key for each token", do="Check the axes."
            )
        head = _head(v, X.shape[2])
        _check_labels(host(y), head.out_dim(X.shape[2]))
        if not (callable(loss) or loss in _risk.LOSSES):
            raise OptionError(
                got=f"loss = {loss!r}",
                need=f"one of {', '.join(_risk.LOSSES)}, or a smooth decreasing function of the margins",
                do="Leave it out for the logistic loss.",
            )
        self.kind = loss
        self.visible = owned(_visible(visible, X.shape[:2]))
        parts = (owned(X), owned(z), owned(y), head, owned(keys))
        self.X, self.z, self.y, self.head, self.keys = cast(parts, common_dtype(X, z, keys))

    @staticmethod
    def prompt(X: Any, y: Any, v: Any, W: Any = None, *, loss: Kind = "logistic") -> Problem:
        """Prompt tuning: one vector p is trained, as a matrix (k, 1), with logits ⟨W x_it, p⟩; W = I unless given.

        Ref         tarzanagh2023b.

        >>> import numpy as np, measureformer as mf
        >>> tuning = mf.implicit_bias.Problem.prompt(np.eye(3)[None], [1], [1.0, 0.0, 0.0], [[1.0, 0, 0], [0, 1.0, 0]])
        >>> tuning.shape
        (2, 1)
        """
        X = shaped(floats(X, "X"), "X", "n T d")
        keys = X
        if W is not None:
            W = shaped(floats(W, "W"), "W", "k d")
            if W.shape[1] != X.shape[2]:
                raise DimensionMismatchError(
                    got=f"W of shape {W.shape} and tokens in R^{X.shape[2]}", need="(k, d)", do="Check the axes of W."
                )
            keys = host(X) @ host(W).T
        return Problem(X, np.ones((len(X), 1), X.dtype), y, v, loss=loss, keys=keys)

    @staticmethod
    def causal(X: Any, y: Any, v: Any, *, lengths: Any = None, loss: Kind = "logistic") -> Problem:
        """Reading at the last token of each sequence, which is the query and sees all before it and itself.

        Sequence i has `lengths[i]` tokens, all T of them unless given; rows after them are hidden.

        >>> import numpy as np, measureformer as mf
        >>> problem = mf.implicit_bias.Problem.causal(np.eye(3)[None], [1], [1.0, 0.0, 0.0], lengths=[2])
        >>> problem.z.tolist(), problem.visible.tolist()
        ([[0.0, 1.0, 0.0]], [[True, True, False]])
        """
        X = shaped(floats(X, "X"), "X", "n T d")
        n, T = X.shape[:2]
        lengths = np.full(n, T) if lengths is None else np.asarray(lengths)
        whole = lengths.shape == (n,) and np.issubdtype(lengths.dtype, np.integer)
        if not whole or (lengths < 1).any() or (lengths > T).any():
            raise OptionError(
                got=f"lengths {str(lengths.tolist())[:60]}",
                need=f"a whole number from 1 to {T} for each of the {n} sequences",
                do="Leave them out if all sequences have full length.",
            )
        z = host(X)[np.arange(n), lengths - 1]
        return Problem(X, z, y, v, loss=loss, visible=np.arange(T) < lengths[:, None])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (k, q) of W."""
        return self.keys.shape[-1], self.z.shape[-1]

    def loss(self, W: Any) -> Any:
        """L(W): a float, or a tracer for a traced W, so that it can be differentiated."""
        value = _loss(self, self._matrix(W))
        return value if is_traced(value) else float(value)

    def gradient(self, W: Any) -> Float[Array, "k q"]:
        """∇L(W); its direction is right even where attention is saturated, until numbers underflow.

        Statement   ∇L = 1/n Σ ℓ'(m_i) y_i X_iᵀ(diag s_i − s_i s_iᵀ) X_i v z_iᵀ for a linear head
        Ref         tarzanagh2023.
        """
        return _gradient(self, self._matrix(W))

    def attention(self, W: Any) -> Float[Array, "n T"]:
        """The softmax probabilities s_it."""
        return _attention(self, self._matrix(W))

    def scores(self) -> Float[Array, "n T"]:
        """γ_it = y_i h(x_it), the margin of each token alone; −∞ for hidden ones."""
        return _scores(self)

    def optimal(self) -> np.ndarray:
        """The token of largest score in each example, (n,); a tie is refused."""
        gamma = np.asarray(self.scores())
        ranked = np.sort(gamma, axis=1)
        tied = (gamma.shape[1] > 1) & (ranked[:, -1] == ranked[:, -2 % gamma.shape[1]])
        if tied.any():
            raise TieError(
                got=f"two tokens of the same, largest score in example {int(tied.argmax())}",
                need="one optimal token in each example",
                do="Say which to choose, svm(tokens=[…]), or keep all of them: svm(tokens=problem.best_sets()).",
            )
        return gamma.argmax(axis=1)

    def best_sets(self) -> np.ndarray:
        """Which tokens have the largest score of their example, (n, T): more than one where there are ties."""
        gamma = np.asarray(self.scores())
        return gamma == gamma.max(axis=1, keepdims=True)

    def infimum(self) -> float:
        """The mean of ℓ(largest score): no W is below it, for a linear head; W → ∞ reaches it if tokens separate."""
        self.check_linear("infimum()")
        return float(np.mean(np.asarray(_risk.loss_of(self).value(np.asarray(self.scores()).max(axis=1)))))

    def check_linear(self, what: str) -> None:
        """Refuse a head that is not linear with one output: its loss may be least at a mixture of tokens."""
        if not self.has_linear_head:
            raise OptionError(
                got=f"{what} for {type(self.head).__name__} with {self.head.out_dim(self.X.shape[-1])} outputs",
                need="a linear head with one output",
                do='For the Polyak step, give the least loss: Descent("polyak", infimum=…).',
            )

    @property
    def has_linear_head(self) -> bool:
        return isinstance(self.head, Linear) and self.head.matrix.shape[-2] == 1

    def smoothness(self) -> float:
        """A Lipschitz constant of ∇L: gradient descent with steps up to its inverse never raises the loss.

        Statement   1/n Σ ‖v‖‖z_i‖²‖X_i‖²(M0 ‖v‖‖X_i‖² + 3 M1‖X_i‖), |ℓ'| ≤ M1, ℓ' M0-Lipschitz, spectral norms
        Hypotheses  checked: linear head, keys = X, logistic or linear loss.
        Ref         tarzanagh2023.
        """
        self.check_linear("smoothness()")
        if self.kind not in ("logistic", "linear") or self.keys.shape != self.X.shape:
            raise OptionError(
                got=f"loss = {self.kind!r} and keys {self.keys.shape} for X {self.X.shape}",
                need="a loss with bounded derivatives, and keys = X",
                do='Use loss="logistic".',
            )
        M0, M1 = (0.25, 1.0) if self.kind == "logistic" else (0.0, 1.0)
        v = float(np.linalg.norm(np.asarray(self.head.matrix)))  # pyright: ignore[reportAttributeAccessIssue]
        x, z = np.linalg.norm(np.asarray(self.X), 2, axis=(1, 2)), np.linalg.norm(np.asarray(self.z), axis=1)
        return float(np.mean(M0 * v**2 * z**2 * x**4 + 3 * M1 * v * z**2 * x**3))

    def margins(self, W: Any, tokens: Any = None) -> np.ndarray:
        """(k_ia − k_it)·W z_i, (n, T): by how much the chosen token a leads; the least over a chosen set; ∞ if hidden.

        Without `tokens`, the optimal ones; see `svm` for how to say others.
        """
        chosen = self.chosen(tokens)
        W = np.asarray(self._matrix(W), np.float64)
        values = np.einsum("ntk,kq,nq->nt", *(np.asarray(a, np.float64) for a in (self.keys, W, self.z)), optimize=True)
        least = np.where(chosen, values, np.inf).min(axis=1, keepdims=True)
        return np.where(np.asarray(self.visible), np.where(chosen, 0.0, least - values), np.inf)

    def chosen(self, tokens: Any = None) -> np.ndarray:
        """The chosen tokens as a mask (n, T): from an index for each example, a mask, or a list of indices for each."""
        n, T = self.X.shape[:2]
        if tokens is None:
            tokens = self.optimal()
        if isinstance(tokens, Sequence) and any(np.ndim(entry) > 0 for entry in tokens):
            given = list(tokens)
            if not all(np.asarray(entry).dtype == bool for entry in given):
                sets, tokens = [np.atleast_1d(np.asarray(entry)) for entry in given], np.zeros((len(given), T), bool)
                for row, entry in zip(tokens, sets, strict=True):
                    row[_indices(entry, T)] = True
        mask = np.asarray(tokens)
        if mask.dtype != bool and mask.shape == (n,):
            mask = np.arange(T) == _indices(mask, T)[:, None]
        visible = np.asarray(self.visible)
        if mask.shape != (n, T) or mask.dtype != bool or not mask.any(axis=1).all() or (mask & ~visible).any():
            raise OptionError(
                got=f"tokens of shape {mask.shape} and dtype {mask.dtype}",
                need=f"at least one visible token in each of {n} examples: indices ({n},), a mask ({n}, {T}), or lists",
                do="Leave them out for the tokens of largest score.",
            )
        return mask

    def svm(self, tokens: Any = None, norm: Norm = "frobenius") -> SVM:
        """The matrix of least norm that separates the chosen tokens from the others of their example.

        `tokens` are the chosen ones: an index for each example, (n,), or sets of tokens as a mask (n, T) or a list of
        lists; the optimal ones unless given. `norm` is "frobenius", or "nuclear" for W = KQᵀ. Tokens that cannot be
        separated give `feasible = False` and a certificate.

        Statement   min ‖W‖ s.t. (k_ia − k_it)·W z_i ≥ 1 for t outside the set of a, = 0 for t inside
        Ref         tarzanagh2023.
        """
        return solve(self, self.chosen(tokens), norm)

    def is_locally_optimal(self, tokens: Any) -> bool:
        """Whether each chosen token has a larger score than all tokens with a tight margin in the SVM of this choice.

        Ref         tarzanagh2023.
        """
        chosen = self.chosen(tokens)
        found = self.svm(chosen)
        gamma = np.asarray(self.scores())
        least = np.where(chosen, gamma, np.inf).min(axis=1, keepdims=True)
        return found.feasible and bool((gamma < least)[found.support].all())

    def descend(self, method: str | Descent, steps: int, key: Any = None, *, start: Any = None) -> Run:
        """Training from a random start, or from `start`; see `descend_all`, which does many at once.

        `method` is "gd", "ngd", "polyak", "momentum", "adam", "sign", or a `Descent` with settings.
        """
        from measureformer.implicit_bias.descent import descend_all

        return descend_all([self], method, steps, key, starts=None if start is None else [start])[0]

    def path(self, radii: Any, norm: Norm = "frobenius") -> Path:
        """The regularisation path: the matrices of least loss with norm at most R, for growing R. See `Path`."""
        from measureformer.implicit_bias.path import follow

        return follow(self, radii, norm)

    def _matrix(self, W: Any) -> Any:
        W = floats(W, "W")
        if W.shape != self.shape:
            raise ShapeError(got=f"W of shape {W.shape}", need=f"{self.shape}", do="W maps queries to keys: (k, q).")
        finite(W, "W")
        return W


@eqx.filter_jit
def _loss(problem: Problem, W: Any) -> Array:
    return _risk.risk(problem, W)


@eqx.filter_jit
def _gradient(problem: Problem, W: Any) -> Array:
    return jax.grad(_risk.risk, argnums=1)(problem, W)


@eqx.filter_jit
def _attention(problem: Problem, W: Any) -> Array:
    return _risk.probabilities(_risk.logits(problem, W))


@eqx.filter_jit
def _scores(problem: Problem) -> Array:
    return _risk.scores(problem)


def _head(v: Any, d: int) -> AbstractInContextMap:
    if isinstance(v, AbstractInContextMap):
        if not isinstance(v, (Linear, MLP)):
            raise DtypeError(
                got=f"a head of type {type(v).__name__}",
                need="a vector (d,), a matrix (c, d), mf.Linear or mf.MLP",
                do="The head sees one point, the attended one, and no context.",
            )
        head = v
    else:
        v = floats(v, "v")
        if v.ndim not in (1, 2) or 0 in v.shape:
            raise ShapeError(got=f"v of shape {v.shape}", need="(d,), or (c, d) for c classes", do="Check the axes.")
        head = Linear(v.reshape(-1, v.shape[-1]))
    if head.in_dim != d:
        raise DimensionMismatchError(
            got=f"a head on R^{head.in_dim} and tokens in R^{d}", need="one dimension", do="Check the axes of X and v."
        )
    return head


def _check_labels(y: Any, outputs: int) -> None:
    known = np.array([-1.0, 1.0]) if outputs == 1 else np.arange(outputs, dtype=float)
    bad = ~np.isin(y, known)
    if bad.any():
        raise OptionError(
            got=f"label {y[first_index(bad)]:g} of example {first_index(bad)[0]}",
            need="labels −1 and 1" if outputs == 1 else f"labels 0, …, {outputs - 1}, one for each output of the head",
            do="Labels 0 and 1: pass 2*y − 1." if outputs == 1 else "Number the classes from 0.",
        )


def _visible(visible: Any, shape: tuple[int, int]) -> np.ndarray:
    mask = np.ones(shape, bool) if visible is None else np.asarray(visible)
    if mask.shape != shape or mask.dtype != bool or not mask.any(axis=1).all():
        raise ShapeError(
            got=f"visible of shape {mask.shape} and dtype {mask.dtype}",
            need=f"booleans {shape}, with a visible token in each example",
            do="Leave it out if all tokens are visible.",
        )
    return mask


def _indices(entry: np.ndarray, T: int) -> np.ndarray:
    if not entry.size:
        return np.zeros(0, int)  # an empty list has no type; that nothing was chosen is refused elsewhere
    if not np.issubdtype(entry.dtype, np.integer) or (entry < 0).any() or (entry >= T).any():
        raise OptionError(
            got=f"tokens {str(entry.tolist())[:60]}", need=f"whole numbers from 0 to {T - 1}", do="Count from 0."
        )
    return entry
