"""`decompose`: a trained W as a finite part, which mixes the kept tokens, and a growing part, which drops the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.errors import OptionError
from measureformer.implicit_bias.descent import Run
from measureformer.implicit_bias.svm import SVM, constraints, misalignment
from measureformer.numerics.checked import checked

KEPT, DROPPED = 1e-3, 1e-6
"""Probabilities from which a token is kept, and up to which it is dropped."""


@dataclass(frozen=True)
class Decomposition:
    """W_k ≈ W_fin + C_k·W_mm; see `decompose`. Misalignments are 1 − cos, and 1 if one of the matrices is zero."""

    steps: np.ndarray
    visible: np.ndarray
    """(n, T)"""
    kept: np.ndarray
    """Tokens that keep probability, (n, T)."""
    undecided: np.ndarray
    """Tokens whose probability is still between the thresholds; counted as dropped if it was falling, (n, T)."""
    finite: np.ndarray
    """W_fin, (k, q): the least matrix that gives the kept tokens the logits they have after half of the steps."""
    svm: SVM
    """W_mm: the least matrix that separates kept from dropped tokens and gives kept tokens equal logits."""
    growth: np.ndarray
    """C_k, (g,): by least squares."""
    both: np.ndarray
    """Misalignment of W_k and W_fin + C_k·W_mm, (g,)."""
    margin_only: np.ndarray
    """Misalignment of W_k and W_mm, (g,)."""
    single: np.ndarray
    """Misalignment of W_k and the SVM of the one most attended token of each example, (g,)."""

    @property
    def decided(self) -> bool:
        """Whether the probabilities of all tokens are outside the thresholds, and the kept ones can be separated."""
        return self.svm.feasible and not self.undecided.any()

    @property
    def grows(self) -> bool:
        """Whether a token was dropped, so that W has to grow; otherwise the loss is least at a finite W."""
        return not bool((self.kept | ~self.visible).all())

    @property
    def mixes(self) -> bool:
        """Whether more than one token of an example is kept."""
        return bool((self.kept.sum(axis=1) > 1).any())


@checked
def decompose(run: Run, *, kept: float = KEPT, dropped: float = DROPPED) -> Decomposition:
    """The tokens that a training run kept, and how well W_fin + C_k·W_mm describes its W.

    Arguments:
        run: a run of `Problem.descend` or `descend_all`.
        kept: least final probability of a kept token.
        dropped: largest final probability of a dropped token, at most `kept`.

    Statement   conjecture: W_k ≈ W_fin + C_k W_mm, C_k → ∞, with O_i the tokens that keep probability s*:
                (k_t − k_t')·W_fin z_i = log(s*_t/s*_t') in O_i; (k_t − k_t')·W_mm z_i = 0 in O_i, ≥ 1 out of it
    Ref         tarzanagh2023.

    W_fin is taken from the run after half of its steps: taken from its end, it would describe W better than W_mm alone
    whatever W is. Tokens with final probabilities between `dropped` and `kept` are undecided: they count as kept if
    their probability has not fallen since half of the steps. `decided` says whether there were none.

    >>> import jax, measureformer as mf
    >>> problem = mf.implicit_bias.random_problems("several", jax.random.key(3))
    >>> parts = mf.implicit_bias.decompose(problem.descend("ngd", 2000, jax.random.key(0)))
    >>> bool(parts.both[-1] <= parts.margin_only[-1])
    True
    """
    if not 0 <= dropped <= kept < 1:
        raise OptionError(
            got=f"kept = {kept}, dropped = {dropped}", need="0 ≤ dropped ≤ kept < 1", do="Leave them out."
        )
    problem, s = run.problem, run.attention
    half = max(run.at(int(run.steps[-1]) // 2), 0)
    between = (s[-1] > dropped) & (s[-1] < kept)
    mask = (s[-1] >= kept) | (between & (s[-1] >= s[half]))
    svm, single = problem.svm(mask), run.svm()
    W_fin = np.zeros(problem.shape)
    if mask.sum() > len(mask):
        parts = constraints(problem, mask, np.log(np.where(mask, s[half], 1.0)))
        W_fin = parts.matrix(np.linalg.lstsq(parts.B, parts.levels, rcond=None)[0])
    W_mm = svm.W if svm.feasible else np.zeros(problem.shape)
    growth = np.tensordot(run.W - W_fin, W_mm, 2) / (np.sum(W_mm**2) or 1.0)
    alone = single.W if single.feasible else np.zeros(problem.shape)
    return Decomposition(
        run.steps,
        np.asarray(problem.visible),
        mask,
        between,
        W_fin,
        svm,
        growth,
        *(
            np.array([_apart(W, other) for W, other in zip(run.W, others, strict=True)])
            for others in (W_fin + growth[:, None, None] * W_mm, [W_mm] * len(run.W), [alone] * len(run.W))
        ),
    )


def _apart(A: np.ndarray, B: np.ndarray) -> float:
    return misalignment(A, B) if A.any() and B.any() else 1.0
