"""Orthogonal matching pursuit: columns of a dictionary, one after the other, that explain the most of what is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FLOOR = 0.05
"""Added to errors, as a share of the largest, so that no weight vanishes at once."""
INDEPENDENT = 1e-5
"""A column that the ones before explain up to this share is left out: its coefficient would be mostly rounding."""


def pursue(dictionary: np.ndarray, y: np.ndarray, terms: int, enough: float, *, ridge: float = 0.0) -> np.ndarray:
    """Numbers of at most `terms` columns for y (s, e); stops when no row is left with a norm above `enough`.

    What is minimised is the mean square of what is left, plus `ridge` times the squares of the coefficients. The next
    column is the one with which that becomes least: candidates are judged by their parts that are orthogonal to the
    columns before, whose sizes and products with the residual are kept up to date.

    Cost        one product of the dictionary with a vector for each term.
    Ref         pati1993; chen1989.
    """
    rows, count = dictionary.shape
    dictionary, left = _penalised(dictionary, y, ridge)
    squares = (dictionary**2).sum(axis=0)
    fresh_squares, products = squares.copy(), dictionary.T @ left
    Q = np.zeros((len(left), min(terms, count, rows)))
    chosen: list[int] = []
    free = squares > 0
    while len(chosen) < Q.shape[1]:
        free &= fresh_squares > INDEPENDENT**2 * squares
        if not free.any():
            break
        gains = np.where(free, (products**2).sum(axis=1) / np.where(free, fresh_squares, 1.0), -1.0)
        best = int(gains.argmax())
        free[best] = False
        before, fresh = Q[:, : len(chosen)], dictionary[:, best]
        for _ in range(2):  # once is not orthogonal enough in rounding
            fresh = fresh - before @ (before.T @ fresh)
        size = float(np.linalg.norm(fresh))
        if size <= INDEPENDENT * np.sqrt(squares[best]):
            continue
        direction = Q[:, len(chosen)] = fresh / size
        projection = direction @ left
        left = left - direction[:, None] * projection
        shares = dictionary.T @ direction
        fresh_squares = fresh_squares - shares**2
        products = products - shares[:, None] * projection
        chosen.append(best)
        if np.linalg.norm(left[:rows], axis=1).max() <= enough:
            break
    return np.asarray(chosen, int)


class Nested(NamedTuple):
    """Least squares with the first column, the first two, and so on."""

    R: np.ndarray
    """Columns = Q R, the rows of the penalty included."""
    projections: np.ndarray
    """Qᵀ y."""
    errors: np.ndarray
    """Root mean square of what is left for each number of columns, with the weights, penalty included."""
    sups: np.ndarray
    """Largest norm of a row of what is left, without the weights."""

    def coefficients(self, size: int) -> np.ndarray:
        """Coefficients (size, e) of the first columns."""
        from scipy.linalg import solve_triangular

        return solve_triangular(self.R[:size, :size], self.projections[:size])


def nested(columns: np.ndarray, y: np.ndarray, *, ridge: float = 0.0, weights: np.ndarray | None = None) -> Nested:
    """Coefficients of columns (s, k) for y (s, e), for the first ones only and for more and more of them.

    Squares of rows count with `weights` (s,), which are 1 on average.

    Statement   what is left, penalty included, is that of the projection onto the span of the first columns, each with
                an entry √(s·ridge) of its own below: it never grows
    Ref         chen1989.
    """
    rows, count = columns.shape
    scale = np.ones((rows, 1)) if weights is None else np.sqrt(weights)[:, None]
    whole, left = _penalised(scale * columns, scale * y, ridge)
    Q, R = np.linalg.qr(whole)
    projections = Q.T @ left
    errors, sups = np.zeros((2, count))
    for k in range(count):
        left = left - Q[:, [k]] * projections[k]
        errors[k] = np.sqrt((left**2).sum() / rows)
        sups[k] = np.linalg.norm(left[:rows] / scale, axis=1).max()
    return Nested(R, projections, errors, sups)


def levelled(columns: np.ndarray, y: np.ndarray, rounds: int, *, ridge: float = 0.0) -> Nested:
    """Least squares whose largest error is small: weights grow in proportion to errors, and the best ones are kept.

    Statement   with a Chebyshev system and no floor, the limit is the best approximation in the largest error
    Ref         lawson1961.
    """
    best = found = nested(columns, y, ridge=ridge)
    weights = np.ones(len(columns))
    for _ in range(rounds):
        errors = np.linalg.norm(columns @ found.coefficients(columns.shape[1]) - y, axis=1)
        weights *= errors / errors.max() + FLOOR
        weights *= len(weights) / weights.sum()
        found = nested(columns, y, ridge=ridge, weights=weights)
        best = min(best, found, key=lambda one: one.sups[-1])
    return best


def _penalised(columns: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows that ask every coefficient to be 0, in proportion to the penalty."""
    if ridge == 0:
        return columns, y.astype(float)
    rows, count = columns.shape
    more = np.sqrt(rows * ridge) * np.eye(count)
    return np.concatenate([columns, more]), np.concatenate([y, np.zeros((count, y.shape[1]))])
