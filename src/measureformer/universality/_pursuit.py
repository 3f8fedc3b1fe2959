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
    """Dictionary[:, chosen] = Q R, the rows of the penalty included."""
    projections: np.ndarray
    """Qᵀ y."""
    errors: np.ndarray
    """Root mean square of what is left after each term, penalty included."""
    sups: np.ndarray
    """Largest norm of a row of what is left."""

    def coefficients(self, size: int) -> np.ndarray:
        """Coefficients (size, e) of the first columns."""
        from scipy.linalg import solve_triangular

        return solve_triangular(self.R[:size, :size], self.projections[:size])


def pursue(dictionary: np.ndarray, y: np.ndarray, terms: int, enough: float, *, ridge: float = 0.0) -> Pursuit:
    """At most `terms` columns for y (s, e); stops when no row is left with a norm above `enough`.

    What is minimised is the mean square of what is left, plus `ridge` times the squares of the coefficients.

    The next column is the one with which least squares would leave the least: candidates are judged by their parts that
    are orthogonal to the columns before, whose sizes and products with the residual are kept up to date.

    Statement   what is left, penalty included, is that of the projection onto the span of the columns chosen so far,
                each with an entry √(s·ridge) of its own below: it never grows
    Cost        one product of the dictionary with a vector for each term.
    Ref         pati1993; chen1989.
    """
    rows, count = dictionary.shape
    terms = min(terms, count, rows)
    if ridge > 0:
        dictionary = np.concatenate([dictionary, np.sqrt(rows * ridge) * np.eye(count)])
        y = np.concatenate([y, np.zeros((count, y.shape[1]))])
    squares = (dictionary**2).sum(axis=0)
    fresh_squares, products = squares.copy(), dictionary.T @ y
    Q, R = np.zeros((len(y), terms)), np.zeros((terms, terms))
    left = y.astype(float)
    chosen: list[int] = []
    projections = np.zeros((terms, y.shape[1]))
    errors: list[float] = []
    sups: list[float] = []
    free = squares > 0
    while len(chosen) < terms:
        free &= fresh_squares > INDEPENDENT**2 * squares
        if not free.any():
            break
        gains = np.where(free, (products**2).sum(axis=1) / np.where(free, fresh_squares, 1.0), -1.0)
        best = int(gains.argmax())
        free[best] = False
        k, column = len(chosen), dictionary[:, best]
        # twice: once is not orthogonal enough in rounding
        along = Q[:, :k].T @ column
        fresh = column - Q[:, :k] @ along
        again = Q[:, :k].T @ fresh
        fresh = fresh - Q[:, :k] @ again
        size = float(np.linalg.norm(fresh))
        if size <= INDEPENDENT * np.sqrt(squares[best]):
            continue
        Q[:, k], R[:k, k], R[k, k] = fresh / size, along + again, size
        projections[k] = Q[:, k] @ left
        left = left - Q[:, [k]] * projections[k]
        shares = dictionary.T @ Q[:, k]
        fresh_squares = fresh_squares - shares**2
        products = products - shares[:, None] * projections[k]
        chosen.append(best)
        errors.append(float(np.sqrt((left**2).sum() / rows)))
        sups.append(float(np.linalg.norm(left[:rows], axis=1).max()))
        if sups[-1] <= enough:
            break
    n = len(chosen)
    return Pursuit(np.asarray(chosen), R[:n, :n], projections[:n], np.asarray(errors), np.asarray(sups))
