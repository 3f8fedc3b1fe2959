"""Orthogonal matching pursuit: columns of a dictionary, one after the other, that explain the most of what is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

INDEPENDENT = 1e-5
"""A column that the ones before explain up to this share is left out: its coefficient would be mostly rounding."""


class Pursuit(NamedTuple):
    """The columns in the order in which they were chosen, and what is needed for the coefficients of the first ones."""

    chosen: np.ndarray
    R: np.ndarray
    """Dictionary[:, chosen] = Q R."""
    projections: np.ndarray
    """Qᵀ y."""
    errors: np.ndarray
    """Root mean square of what is left after each term."""
    sups: np.ndarray
    """Largest norm of a row of what is left."""

    def coefficients(self, size: int) -> np.ndarray:
        """Least-squares coefficients (size, e) of the first columns."""
        from scipy.linalg import solve_triangular

        return solve_triangular(self.R[:size, :size], self.projections[:size])


def pursue(dictionary: np.ndarray, y: np.ndarray, terms: int, enough: float) -> Pursuit:
    """At most `terms` columns for y (s, e); stops when no row is left with a norm above `enough`.

    Statement   the residual is that of the projection onto the span of the columns chosen so far: it never grows
    Ref         pati1993.
    """
    rows, count = dictionary.shape
    sizes = np.linalg.norm(dictionary, axis=0)
    free = sizes > 0
    scale = np.where(free, sizes, 1.0)
    terms = min(terms, count, rows)
    Q, R = np.zeros((rows, terms)), np.zeros((terms, terms))
    left = y.astype(float)
    chosen: list[int] = []
    projections = np.zeros((terms, y.shape[1]))
    errors: list[float] = []
    sups: list[float] = []
    while len(chosen) < terms and free.any():
        gains = np.linalg.norm(dictionary.T @ left, axis=1) / scale
        best = int(np.where(free, gains, -1.0).argmax())
        free[best] = False
        k, column = len(chosen), dictionary[:, best]
        # twice: once is not orthogonal enough in rounding
        along = Q[:, :k].T @ column
        fresh = column - Q[:, :k] @ along
        again = Q[:, :k].T @ fresh
        fresh = fresh - Q[:, :k] @ again
        size = float(np.linalg.norm(fresh))
        if size <= INDEPENDENT * sizes[best]:
            continue
        Q[:, k], R[:k, k], R[k, k] = fresh / size, along + again, size
        projections[k] = Q[:, k] @ left
        left = left - Q[:, [k]] * projections[k]
        chosen.append(best)
        errors.append(float(np.sqrt((left**2).sum(axis=1).mean())))
        sups.append(float(np.linalg.norm(left, axis=1).max()))
        if sups[-1] <= enough:
            break
    n = len(chosen)
    return Pursuit(np.asarray(chosen), R[:n, :n], projections[:n], np.asarray(errors), np.asarray(sups))
