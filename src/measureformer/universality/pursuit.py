"""Orthogonal matching pursuit: columns of a dictionary, one after the other, that explain the most of what is left."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

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
        return solved(self.R[:size, :size], self.projections[:size])


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


class Basis(NamedTuple):
    """Orthogonal columns for those of a problem, the rows of its penalty included: columns = Q R."""

    Q: np.ndarray
    R: np.ndarray

    def coefficients(self, found: np.ndarray) -> np.ndarray:
        """Coefficients of the first columns, from those of the first orthogonal ones."""
        return solved(self.R[: len(found), : len(found)], found)


def basis(columns: np.ndarray, *, ridge: float = 0.0) -> Basis:
    """Orthogonal columns with the same spans, for each number of the first ones."""
    return Basis(*np.linalg.qr(_penalised(columns, np.zeros((len(columns), 1)), ridge)[0]))


def leverages(values: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Of rows φ, φᵀ (RᵀR)⁻¹ φ: how much a prediction there changes with the data, if those are of columns Q R.

    Statement   data whose largest leverage is least are those that determine the coefficients best; it is then the
                number of columns over that of rows
    Ref         kiefer1960.
    """
    return (solved(R, values.T, trans=1) ** 2).sum(axis=0)


def solved(triangle: np.ndarray, y: np.ndarray, **options: Any) -> np.ndarray:
    import scipy.linalg

    return cast("np.ndarray", scipy.linalg.solve_triangular(triangle, y, **options))


def _penalised(columns: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows that ask every coefficient to be 0, in proportion to the penalty."""
    if ridge == 0:
        return columns, y.astype(float)
    rows, count = columns.shape
    more = np.sqrt(rows * ridge) * np.eye(count)
    return np.concatenate([columns, more]), np.concatenate([y, np.zeros((count, y.shape[1]))])
