"""`Problem`: training examples for one attention head, its loss, and the optimal tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from measureformer.errors import DimensionMismatchError, OptionError, ShapeError, TieError
from measureformer.implicit_bias import risk as _risk
from measureformer.implicit_bias.intake import array_of, check_labels, head_of, indices_of, visible_of
from measureformer.implicit_bias.svm import SVM, Norm, solve
from measureformer.maps import MLP, AbstractInContextMap, Linear
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, host, is_traced, owned
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key

if TYPE_CHECKING:
    from measureformer.implicit_bias.descent import Descent, Method, Run, Start
    from measureformer.implicit_bias.path import Path

Kind = Literal["logistic", "exponential", "linear"] | Callable[[Array], Array]


class Problem(eqx.Module):
    """n examples of T tokens each: L(W) = 1/n Σ_i ℓ(y_i h(Σ_t s_it x_it)), s_i = softmax of k_it·W z_i over t.

    Arguments:
        X: tokens, (n, T, d).
        z: queries, (n, q).
        y: labels, (n,): ±1 for a head with one output, 0, …, c−1 for one with c outputs.
        v: the head h: a vector (d,), a matrix (c, d), `mf.Linear` or `mf.MLP`. With c outputs the margin is the output
            at the label minus log Σ exp of the others.
        loss: ℓ: "logistic", "exponential", "linear" (ℓ(m) = −m), or a smooth strictly decreasing function of margins.
        keys: k_it, (n, T, k); X by default.
        visible: mask of the tokens that attention sees, (n, T); all by default.

    Ref         tarzanagh2023.

    >>> import numpy as np, measureformer as mf
    >>> X = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> problem = mf.implicit_bias.Problem(X, X[:, 0], [1], [1.0, 0.0])
    >>> round(problem.loss(np.zeros((2, 2))), 4), problem.scores().tolist(), problem.svm().W.round(9).tolist()
    (0.4741, [[1.0, 0.0]], [[0.5, 0.0], [-0.5, 0.0]])
    """

    X: Float[Array, "n T d"]
    z: Float[Array, "n q"]
    y: Float[Array, " n"]
    head: Linear | MLP
    keys: Float[Array, "n T k"]
    visible: Bool[Array, "n T"]
    kind: Kind = eqx.field(static=True)

    @checked
    def __init__(
        self,
        X: ArrayLike,
        z: ArrayLike,
        y: ArrayLike,
        v: ArrayLike | AbstractInContextMap,
        *,
        loss: Kind = "logistic",
        keys: ArrayLike | None = None,
        visible: ArrayLike | None = None,
    ) -> None:
        X, z, y = array_of(X, "X", "n T d"), array_of(z, "z", "n q"), array_of(y, "y", "n")
        keys = X if keys is None else array_of(keys, "keys", "n T k")
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
        head = head_of(v, X.shape[2])
        check_labels(host(y), head.out_dim(X.shape[2]))
        if not (callable(loss) or loss in _risk.LOSSES):
            raise OptionError(
                got=f"loss = {loss!r}",
                need=f"one of {', '.join(_risk.LOSSES)}, or a smooth decreasing function of the margins",
                do="Leave it out for the logistic loss.",
            )
        self.kind = loss
        self.visible = owned(visible_of(visible, X.shape[:2]))
        parts = (owned(X), owned(z), owned(y), head, owned(keys))
        self.X, self.z, self.y, self.head, self.keys = cast(parts, common_dtype(X, z, keys))

    @staticmethod
    @checked
    def prompt(
        X: ArrayLike,
        y: ArrayLike,
        v: ArrayLike | AbstractInContextMap,
        W: ArrayLike | None = None,
        *,
        loss: Kind = "logistic",
    ) -> Problem:
        """Prompt tuning: one vector p is trained, as a matrix (k, 1), with logits ⟨W x_it, p⟩.

        Arguments:
            X: tokens, (n, T, d).
            y: labels, (n,).
            v: the head; see `Problem`.
            W: fixed matrix, (k, d); the identity by default.
            loss: ℓ; see `Problem`.

        Ref         tarzanagh2023b.

        >>> import numpy as np, measureformer as mf
        >>> tuning = mf.implicit_bias.Problem.prompt(np.eye(3)[None], [1], [1.0, 0.0, 0.0], [[1.0, 0, 0], [0, 1.0, 0]])
        >>> tuning.shape
        (2, 1)
        """
        X = keys = array_of(X, "X", "n T d")
        if W is not None:
            W = array_of(W, "W", "k d")
            if W.shape[1] != X.shape[2]:
                raise DimensionMismatchError(
                    got=f"W of shape {W.shape} and tokens in R^{X.shape[2]}", need="(k, d)", do="Check the axes of W."
                )
            keys = host(X) @ host(W).T
        return Problem(X, np.ones((len(X), 1), X.dtype), y, v, loss=loss, keys=keys)

    @staticmethod
    @checked
    def causal(
        X: ArrayLike,
        y: ArrayLike,
        v: ArrayLike | AbstractInContextMap,
        *,
        lengths: ArrayLike | None = None,
        loss: Kind = "logistic",
    ) -> Problem:
        """Sequences whose last token is the query and attends to itself and all tokens before it.

        Arguments:
            X: tokens, (n, T, d).
            y: labels, (n,).
            v: the head; see `Problem`.
            lengths: tokens of each sequence, (n,); later rows are hidden. T by default.
            loss: ℓ; see `Problem`.

        >>> import numpy as np, measureformer as mf
        >>> problem = mf.implicit_bias.Problem.causal(np.eye(3)[None], [1], [1.0, 0.0, 0.0], lengths=[2])
        >>> problem.z.tolist(), problem.visible.tolist()
        ([[0.0, 1.0, 0.0]], [[True, True, False]])
        """
        X = array_of(X, "X", "n T d")
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

    def loss(self, W: ArrayLike) -> float:
        """L(W), for W (k, q); a tracer for a traced W, so that JAX can differentiate it."""
        value = _loss(self, self._matrix(W))
        return value if is_traced(value) else float(value)  # pyright: ignore[reportReturnType] a tracer of a float

    def gradient(self, W: ArrayLike) -> Float[Array, "k q"]:
        """∇L(W); its direction is accurate even where attention is saturated, until numbers underflow.

        Statement   ∇L = 1/n Σ ℓ'(m_i) y_i X_iᵀ(diag s_i − s_i s_iᵀ) X_i v z_iᵀ for a linear head
        Ref         tarzanagh2023.
        """
        return _gradient(self, self._matrix(W))

    def attention(self, W: ArrayLike) -> Float[Array, "n T"]:
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
        """The mean of ℓ(largest score), for a linear head: a lower bound of L, and its infimum if tokens separate."""
        self.check_linear("infimum()")
        return float(np.mean(np.asarray(_risk.loss_of(self).value(np.asarray(self.scores()).max(axis=1)))))

    def check_linear(self, what: str) -> None:
        """Refuse a head that is not linear with one output, whose loss may be least at a mixture of tokens."""
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
        v = float(np.linalg.norm(np.asarray(self.head.matrix)))  # pyright: ignore[reportAttributeAccessIssue] linear
        x, z = np.linalg.norm(np.asarray(self.X), 2, axis=(1, 2)), np.linalg.norm(np.asarray(self.z), axis=1)
        return float(np.mean(M0 * v**2 * z**2 * x**4 + 3 * M1 * v * z**2 * x**3))

    def margins(self, W: ArrayLike, tokens: ArrayLike | None = None) -> np.ndarray:
        """Logit of the chosen token a minus that of each token, (k_ia − k_it)·W z_i, (n, T).

        Arguments:
            W: matrix, (k, q).
            tokens: the chosen tokens; see `svm`. Of a set of tokens, the one with the least logit counts.

        Chosen tokens have margin 0, hidden ones ∞.
        """
        chosen = self.chosen(tokens)
        W = np.asarray(self._matrix(W), np.float64)
        values = np.einsum("ntk,kq,nq->nt", *(np.asarray(a, np.float64) for a in (self.keys, W, self.z)), optimize=True)
        least = np.where(chosen, values, np.inf).min(axis=1, keepdims=True)
        return np.where(np.asarray(self.visible), np.where(chosen, 0.0, least - values), np.inf)

    def chosen(self, tokens: ArrayLike | None = None) -> np.ndarray:
        """The chosen tokens as a mask, (n, T); see `svm` for `tokens`."""
        n, T = self.X.shape[:2]
        if tokens is None:
            tokens = self.optimal()
        if isinstance(tokens, Sequence) and any(np.ndim(entry) > 0 for entry in tokens):
            given = list(tokens)
            if not all(np.asarray(entry).dtype == bool for entry in given):
                sets, tokens = [np.atleast_1d(np.asarray(entry)) for entry in given], np.zeros((len(given), T), bool)
                for row, entry in zip(tokens, sets, strict=True):
                    row[indices_of(entry, T)] = True
        mask = np.asarray(tokens)
        if mask.dtype != bool and mask.shape == (n,):
            mask = np.arange(T) == indices_of(mask, T)[:, None]
        visible = np.asarray(self.visible)
        if mask.shape != (n, T) or mask.dtype != bool or not mask.any(axis=1).all() or (mask & ~visible).any():
            raise OptionError(
                got=f"tokens of shape {mask.shape} and dtype {mask.dtype}",
                need=f"at least one visible token in each of {n} examples: indices ({n},), a mask ({n}, {T}), or lists",
                do="Leave them out for the tokens of largest score.",
            )
        return mask

    def svm(self, tokens: ArrayLike | None = None, norm: Norm = "frobenius") -> SVM:
        """The matrix of least norm that separates the chosen tokens from the others of their example; see `SVM`.

        Arguments:
            tokens: the chosen tokens: an index for each example, (n,), or sets of tokens as a mask (n, T) or a list of
                lists of indices; the optimal tokens by default.
            norm: "frobenius", or "nuclear" for W = KQᵀ.
        """
        return solve(self, self.chosen(tokens), norm)

    def is_locally_optimal(self, tokens: ArrayLike) -> bool:
        """Whether chosen tokens have larger scores than all tokens with a tight margin in their SVM.

        Arguments:
            tokens: the chosen tokens; see `svm`.

        Ref         tarzanagh2023.
        """
        chosen = self.chosen(tokens)
        found = self.svm(chosen)
        gamma = np.asarray(self.scores())
        least = np.where(chosen, gamma, np.inf).min(axis=1, keepdims=True)
        return found.feasible and bool((gamma < least)[found.support].all())

    def descend(self, method: Method | Descent, steps: int, key: Key | None = None, *, start: Start = None) -> Run:
        """Train W on this problem; `descend_all` trains many problems at once.

        Arguments:
            method: "gd", "ngd", "polyak", "momentum", "adam", "sign", or a `Descent` with settings.
            steps: number of steps.
            key: randomness of the start.
            start: W (k, q), or a pair (K, Q); random by default.
        """
        from measureformer.implicit_bias.descent import descend_all

        return descend_all([self], method, steps, key, starts=None if start is None else [start])[0]

    def path(self, radii: ArrayLike, norm: Norm = "frobenius") -> Path:
        """The regularisation path: matrices of least loss with norm at most R; see `Path`.

        Arguments:
            radii: increasing bounds R > 0, (r,).
            norm: "frobenius", or "nuclear" for W = KQᵀ.
        """
        from measureformer.implicit_bias.path import follow

        return follow(self, radii, norm)

    def _matrix(self, W: ArrayLike) -> Array:
        matrix = floats(W, "W")
        if matrix.shape != self.shape:
            raise ShapeError(
                got=f"W of shape {matrix.shape}", need=f"{self.shape}", do="W maps queries to keys: (k, q)."
            )
        finite(matrix, "W")
        return matrix


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
