"""Lawson's reweighting: coefficients whose largest error is small, judged on rows that were left out."""

from __future__ import annotations

import numpy as np

from measureformer.universality.pursuit import Basis, solved

FLOOR = 0.05
"""Added to errors, as a share of the largest, so that no weight vanishes at once."""
LIGHTEST = 1e-6
"""No weight is less, of those that are 1 on average: normal equations would be singular."""
SINGULAR = 1e-9
"""Added to 1 − leverage, so that one can divide by it where a measure alone determines a coefficient."""


def levelled(
    columns: np.ndarray, y: np.ndarray, size: int, rounds: int, basis: Basis, *, together: int = 1
) -> np.ndarray:
    """Coefficients (size, e) of the first columns whose largest error is small, each size with weights of its own.

    Weights grow in proportion to errors, and on the way those coefficients are kept whose largest error would be least
    on rows that they had not been fitted to. Where there are few rows for each column, that is soon: more rounds make
    the largest error small on the rows, and large between them. `together` rows at a time are left out, those of one
    measure. `basis` is that of the columns.

    Statement   with a Chebyshev system and no floor, the limit of more and more rounds is the best approximation in
                the largest error
    Ref         lawson1961; allen1974.
    """
    rows, own = len(columns), basis.Q[:, :size]
    weights, goals = np.ones(len(own)), np.zeros((len(own), y.shape[1]))
    goals[:rows] = y
    best, least = np.zeros((size, y.shape[1])), np.inf
    for _ in range(rounds + 1):
        # orthogonal columns: the normal equations of other weights are nearly as good as a factorisation, and faster
        scaled = np.sqrt(weights)[:, None] * own
        gram = scaled.T @ scaled
        found = basis.coefficients(np.linalg.solve(gram, own.T @ (weights[:, None] * goals)))
        left = columns[:, :size] @ found - y
        unseen = np.linalg.norm(left_out(scaled[:rows], gram, left, weights[:rows], together), axis=1).max()
        if unseen < least:
            best, least = found, unseen
        errors = np.linalg.norm(left, axis=1)
        if errors.max() == 0:
            break
        weights[:rows] *= errors / errors.max() + FLOOR
        weights[:rows] = np.maximum(weights[:rows] / weights[:rows].mean(), LIGHTEST)
    return best


def left_out(scaled: np.ndarray, gram: np.ndarray, left: np.ndarray, weights: np.ndarray, together: int) -> np.ndarray:
    """What would be left (s, e) of each row, had it not been fitted, nor the others of its group of `together` rows.

    `scaled` (s, k) are the rows times the roots of their weights, `gram` is the matrix of the normal equations, which
    may have more rows, and `left` (s, e) is what is left with all rows.

    Statement   (I − H)⁻¹ times what is left, with H the block of the hat matrix, all in units of the roots of weights
    Ref         allen1974.
    """
    half = solved(np.linalg.cholesky(gram), scaled.T, lower=True, check_finite=False)
    groups = half.T.reshape(-1, together, len(gram))
    seen = (1 + SINGULAR) * np.eye(together) - groups @ groups.transpose(0, 2, 1)
    roots = np.sqrt(weights)[:, None]
    return np.linalg.solve(seen, (roots * left).reshape(-1, together, left.shape[1])).reshape(left.shape) / roots
