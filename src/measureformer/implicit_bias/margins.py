"""`margins_of`: max-margin separation for the heads of any attention layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.errors import DimensionMismatchError, DtypeError
from measureformer.implicit_bias.problem import Problem
from measureformer.implicit_bias.svm import SVM, misalignment
from measureformer.maps import AbstractInContextMap, Attention, HardmaxAttention
from measureformer.numerics.arrays import floats, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@dataclass(frozen=True)
class HeadMargins:
    """Result of `margins_of` for one head with query–key matrix W = A = KᵀQ."""

    W: np.ndarray
    selected: np.ndarray
    """The token with the largest logit in each example, (n,)."""
    margins: np.ndarray
    """Logit of the selected token minus that of each token, (n, T)."""
    attention: np.ndarray
    """Softmax probabilities, (n, T)."""
    svm: SVM
    """SVM of the selected tokens; `feasible` says whether any matrix selects them with a margin."""

    @property
    def margin(self) -> float:
        """The least margin over ‖W‖_F; ∞ if there is nothing to select from."""
        return float(np.where(self.svm.chosen, np.inf, self.margins).min() / (np.linalg.norm(self.W) or 1.0))

    @property
    def share(self) -> float:
        """Margin over the largest possible one, 1/‖W_svm‖: 1 exactly if W has the direction of the SVM."""
        size = self.svm.norm if self.svm.feasible else 0.0
        return self.margin * size if size > 0 else 1.0

    @property
    def misalignment(self) -> float:
        """1 − cos of the angle between W and the SVM; 1 if there is no SVM."""
        found = self.svm.feasible and self.svm.W.any() and self.W.any()
        return misalignment(self.W, self.svm.W) if found else 1.0


@checked
def margins_of(
    model: AbstractInContextMap, data: Problem | tuple[ArrayLike, ArrayLike] | ArrayLike
) -> list[HeadMargins]:
    """For each head of an attention layer, the tokens it selects and how well it separates them from the others.

    Arguments:
        model: `mf.Attention` or `mf.HardmaxAttention`, also inside `mf.Residual` or `mf.Causal`.
        data: a `Problem`; a pair (X, z) of tokens (n, T, d) and queries (n, d); or X alone, where the last token of
            each example is its query.

    Logits are scale·⟨Qz, Kx⟩ = ⟨x, Az⟩. If largest logits are equal, the first token counts as selected, with margin 0.

    >>> import numpy as np, measureformer as mf
    >>> G = mf.Attention.head(np.diag([3.0, 0.0]), np.eye(2), np.eye(2))
    >>> (head,) = mf.implicit_bias.margins_of(G, (np.eye(2)[None], [[1.0, 0.0]]))
    >>> head.selected.tolist(), head.margin, head.svm.feasible, round(head.misalignment, 3)
    ([0], 1.0, True, 0.293)
    """
    layer = model
    while not isinstance(layer, (Attention, HardmaxAttention)):
        inner = getattr(layer, "map", None)
        if inner is None:
            raise DtypeError(
                got=f"a model of type {type(model).__name__}",
                need="one attention layer with softmax or hardmax, perhaps in a residual or causal wrapper",
                do="Pass the layers of a composition one by one.",
            )
        layer = inner
    problem = data if isinstance(data, Problem) else _examples(data)
    if problem.shape != (layer.in_dim, layer.in_dim):
        raise DimensionMismatchError(
            got=f"heads on R^{layer.in_dim}, and keys and queries of dimensions {problem.shape}",
            need="one dimension",
            do="Give the tokens that enter this layer.",
        )
    return [_head(problem, W) for W in np.asarray(layer.A, np.float64)]


def _examples(data: tuple[ArrayLike, ArrayLike] | ArrayLike) -> Problem:
    X, z = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    X = shaped(floats(X, "X"), "X", "n T d")
    # labels and head do not matter here
    labels, v = np.ones(len(X)), np.zeros(X.shape[-1])
    return Problem.causal(X, labels, v) if z is None else Problem(X, z, labels, v)


def _head(problem: Problem, W: np.ndarray) -> HeadMargins:
    attention = np.asarray(problem.attention(W))
    # attention may be saturated, logits are not
    logits = np.einsum("ntk,kq,nq->nt", *(np.asarray(a, np.float64) for a in (problem.keys, W, problem.z)))
    selected = np.where(np.asarray(problem.visible), logits, -np.inf).argmax(axis=1)
    return HeadMargins(W, selected, problem.margins(W, selected), attention, problem.svm(selected))
