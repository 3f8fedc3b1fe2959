"""Stationary covariances of the softmax flow: the dimension that a Gaussian can fill forever."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.flows.castin25 import square_matrix
from measureformer.measures.gaussian import checked_covariances
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

ROUNDING = 1e-8
"""Relative size below which eigenvalues and speeds count as 0."""


@checked
def castin25_stationary_rank(A: ArrayLike) -> int:
    """The largest rank of a stationary covariance of the softmax flow with V = I and A symmetric.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d), symmetric.

    Statement   ΣAΣ = 0 ⇒ rank Σ ≤ dim ker A + min(n₊, n₋); at most d/2 if A is nonsingular. Attained.
    Hypotheses  checked: A = Aᵀ.  assumed: V = I, one head.
    Ref         castin2025.

    >>> import numpy as np, measureformer as mf
    >>> mf.clustering.castin25_stationary_rank(np.diag([1.0, -1.0, -1.0, 2.0]))
    2
    """
    A = square_matrix(A, "A")
    if np.abs(A - A.T).max() > 1e-12 * np.abs(A).max():
        raise OptionError(
            got="a matrix A that is not symmetric",
            need="A = Aᵀ",
            do="Pass A + Aᵀ: for V = I the covariance moves by Σ(A + Aᵀ)Σ, whatever A is.",
        )
    values = np.linalg.eigvalsh(A)
    zero = len(A) * np.finfo(np.float64).eps * np.abs(values).max()
    return int((np.abs(values) <= zero).sum() + min((values > zero).sum(), (values < -zero).sum()))


class StationaryType(NamedTuple):
    """Ranks and growth rates of a stationary covariance Σ with range E; see `stationary_type`."""

    rank: int
    """The dimension of E."""
    inner_rank: int
    """The rank of ΣAΣ; it is even if V is nonsingular."""
    outer: np.ndarray
    """Eigenvalues of VΣA on ℝᵈ/E, (d − rank,): rank is lost exponentially where all real parts are negative."""
    spectrum: np.ndarray
    """Eigenvalues of the linearised flow of covariances without the 0 along Σ itself, largest real part first."""

    @property
    def attracts(self) -> bool:
        """Whether all of `spectrum` has negative real part: nearby covariances tend to multiples close to Σ."""
        size = np.abs(self.spectrum).max(initial=0.0)
        return bool((np.real(self.spectrum) < -ROUNDING * size).all())


@checked
def stationary_type(A: ArrayLike, V: ArrayLike, cov: ArrayLike) -> StationaryType:
    """Ranks and growth rates of a stationary covariance of the softmax flow Σ' = VΣAΣ + ΣAᵀΣVᵀ.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d).
        V: its value matrix, (d, d).
        cov: a covariance that does not move, (d, d), nonzero; it may be singular.

    Statement   A, V nonsingular:  2·rank Σ ≤ d + rank ΣAΣ, and rank ΣAΣ is even. For V = I and A = Aᵀ, ΣAΣ = 0.
                If moreover Σ attracts and is singular, d is even and rank Σ = (d + rank ΣAΣ)/2 ≥ d/2.
    Hypotheses  checked: Σ is a covariance and stationary, to 1e-8.  assumed: one head.
    Sharp?      yes: rank 3 in dimension 4 attracts covariances of full rank, for an open set of (A, V).
    Cost        O(d⁶).
    Ref         castin2025.

    The inequality is proved in the documentation of this chapter.

    >>> import numpy as np, measureformer as mf
    >>> A = [[1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 1], [0, 2, 2, 1]]
    >>> V = [[0, 0, 1, 0], [1, 0, 0, 2], [0, 0, 0, 1], [0, -2, -2, -1]]
    >>> found = mf.clustering.stationary_type(A, V, np.diag([1, 1, 1, 0]))
    >>> found.rank, found.inner_rank, found.outer.real.tolist(), found.attracts
    (3, 2, [-2.0], True)
    """
    A, V, cov = square_matrix(A, "A"), square_matrix(V, "V"), square_matrix(cov, "cov")
    if not A.shape == V.shape == cov.shape:
        raise DimensionMismatchError(
            got=f"A {A.shape}, V {V.shape}, cov {cov.shape}", need="three matrices (d, d)", do="Use one dimension d."
        )
    cov = np.asarray(checked_covariances(cov, len(cov)), np.float64)
    values, vectors = np.linalg.eigh(cov)
    size = values[-1]
    half = V @ cov @ A @ cov
    moved, scale = np.abs(half + half.T).max(), np.linalg.norm(V, 2) * np.linalg.norm(A, 2) * size**2
    if size <= 0 or moved > ROUNDING * scale:
        raise OptionError(
            got=f"a covariance of norm {size:.3g} that moves with speed {moved:.3g}",
            need="a nonzero covariance with VΣAΣ + ΣAᵀΣVᵀ = 0",
            do="Pass the limit of a flow, or a solution of that equation.",
        )
    inside = values > ROUNDING * size
    L, out = vectors[:, inside] * np.sqrt(values[inside]), vectors[:, ~inside]
    inner = np.linalg.svd(L.T @ A @ L, compute_uv=False)
    inner_rank = int((inner > ROUNDING * np.linalg.norm(A, 2) * size).sum())
    outer = np.linalg.eigvals(out.T @ V @ cov @ A @ out) if out.shape[1] else np.zeros(0)
    return StationaryType(int(inside.sum()), inner_rank, outer, _transversal(cov, A, V))


def _transversal(cov: np.ndarray, A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Eigenvalues of Δ ↦ VΔAΣ + VΣAΔ + transposes on symmetric Δ, without one that is 0."""
    rows, columns = np.triu_indices(len(cov))
    basis = np.zeros((len(rows), *cov.shape))
    basis[np.arange(len(rows)), rows, columns] = basis[np.arange(len(rows)), columns, rows] = 1
    moved = V @ (basis @ A @ cov + cov @ A @ basis)
    found = np.linalg.eigvals((moved + moved.mT)[:, rows, columns].T)
    found = np.delete(found, np.abs(found).argmin())
    return found[np.argsort(-found.real)]
