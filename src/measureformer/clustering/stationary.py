"""Stationary covariances of the softmax flow: the dimension that a Gaussian can fill forever."""

from __future__ import annotations

import numpy as np

from measureformer.errors import OptionError
from measureformer.flows.castin25 import square_matrix
from measureformer.numerics.types import ArrayLike


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
