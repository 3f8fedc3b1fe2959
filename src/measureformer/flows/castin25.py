"""Closed forms of the softmax flow of a Gaussian with V = I: its covariance, and when it blows up."""

from __future__ import annotations

import numpy as np

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.measures.gaussian import checked_covariances
from measureformer.numerics.arrays import finite, floats, on_device, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.roots import psd_root
from measureformer.numerics.types import ArrayLike


@checked
def castin25_covariance(A: ArrayLike, cov: ArrayLike, t: float) -> np.ndarray:
    """The covariance at time t of the softmax flow with V = I.

    Evaluated as R(I − tRᵀ(A + Aᵀ)R)^{-1}Rᵀ with RRᵀ = Σ_0, which covers singular Σ_0 as limits.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d).
        cov: the initial covariance Σ_0, (d, d).
        t: a time before the blow-up.

    Statement   Σ(t) = (Σ_0^{-1} − t(A + Aᵀ))^{-1}, for t before the blow-up
    Hypotheses  checked: t is before the blow-up.  assumed: V = I, one head.
    Ref         castin2025.

    >>> import measureformer as mf
    >>> mf.flows.castin25_covariance([[1.0]], [[1.0]], 0.25).tolist()
    [[2.0]]
    """
    A, root = square_matrix(A, "A"), _root(cov)
    end = castin25_blow_up(A, cov)
    if end is not None and t >= end:
        raise OptionError(got=f"t = {t:g}", need=f"a time before the blow-up at {end:g}", do="Ask for an earlier time.")
    return root @ np.linalg.solve(np.eye(len(A)) - t * root @ (A + A.T) @ root, root)


@checked
def castin25_blow_up(A: ArrayLike, cov: ArrayLike) -> float | None:
    """Blow-up time of the softmax flow with V = I; None if the flow exists for all times.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d).
        cov: the initial covariance Σ_0, (d, d).

    Statement   t* = 1/λ_max(Σ_0^{1/2}(A + Aᵀ)Σ_0^{1/2}) if that is positive
    Ref         castin2025.

    >>> import measureformer as mf
    >>> mf.flows.castin25_blow_up([[1.0]], [[1.0]]), mf.flows.castin25_blow_up([[-1.0]], [[1.0]])
    (0.5, None)
    """
    A, root = square_matrix(A, "A"), _root(cov)
    if len(A) != len(root):
        raise DimensionMismatchError(
            got=f"A of shape {A.shape} and cov of shape {root.shape}", need="one dimension", do="Pass both as (d, d)."
        )
    values = np.linalg.eigvalsh(root @ (A + A.T) @ root)
    # of a singular covariance some are zero up to rounding
    zero = 8 * len(A) * np.finfo(np.float64).eps * np.linalg.norm(root, 2) ** 2 * np.linalg.norm(A + A.T, 2)
    return 1 / float(values[-1]) if values[-1] > zero else None


def square_matrix(matrix: ArrayLike, name: str) -> np.ndarray:
    """A finite square matrix in float64."""
    array = np.asarray(shaped(floats(matrix, name), name, "d d"), np.float64)
    finite(array, name)
    if array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise DimensionMismatchError(
            got=f"{name} of shape {array.shape}", need="a square matrix (d, d)", do=f"Pass {name} as (d, d)."
        )
    return array


def _root(cov: ArrayLike) -> np.ndarray:
    matrix = square_matrix(cov, "cov")
    return np.asarray(psd_root(on_device(checked_covariances(matrix, len(matrix)))))
