"""Interpolation of e^{xy} at Chebyshev roots, cell by cell, with relative errors that are proven.

On a box of queries |x| ≤ r and keys |y| ≤ s, per axis, both intervals are cut into cells: half-widths ρ of query cells
and h of key cells. Write σ_k = r h and σ_q = s ρ.

Lemma 1     For |t| ≤ 1 the interpolant P of e^{ct} at the p Chebyshev roots has |e^{ct} − P(t)| ≤ ε(p, c) e^{ct},
            ε(p, c) = 4 e^c Σ_{k≥p} I_k(c).
Proof       e^{ct} = I_0 + 2 Σ I_k(c) T_k(t). On the roots each T_k, k ≥ p, equals 0 or ± one of lower degree, so the
            error is at most 4 Σ_{k≥p} I_k(c); divide by e^{ct} ≥ e^{−c}. And I_k(c) ≤ (c/2)^k e^{c²/(4(k+1))}/k! bounds
            the tail by a geometric series.
Lemma 2     Interpolation in both variables gives e^{xy}(1 + θ), |θ| ≤ η = ε(p, σ_q) + Λ_p e^{2σ_q} ε(p, σ_k), where
            Λ_p ≤ 1 + (2/π) log p is the Lebesgue constant.
Proof       In y the error is ε(p, σ_k), relatively, at every node x_a. What Σ_a L_a(x) e^{x_a y} makes of these errors
            is at most Λ_p max_a e^{(x_a − x) y}, and |(x_a − x) y| ≤ 2 ρ s.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

MOST_NODES = 40


@lru_cache(maxsize=4096)
def one_sided(p: int, c: float) -> float:
    """ε(p, c) of Lemma 1, from above."""
    if c == 0:
        return 0.0
    ratio = c / (2 * (p + 1))
    if ratio >= 1:
        return math.inf
    log_first = p * math.log(c / 2) - math.lgamma(p + 1) + c * c / (4 * (p + 1))
    return 4 * math.exp(c + log_first) / (1 - ratio)


def lebesgue(p: int) -> float:
    """An upper bound of the Lebesgue constant of p Chebyshev roots."""
    return 1 + 2 / math.pi * math.log(p)


def both_sides(p: int, of_queries: float, of_keys: float) -> float:
    """η of Lemma 2 for the products σ_q and σ_k."""
    on_queries = one_sided(p, of_queries)
    # cells that wide have no bound, and e^{2σ} may be no number
    if math.isinf(on_queries):
        return math.inf
    return on_queries + lebesgue(p) * math.exp(2 * of_queries) * one_sided(p, of_keys)


@lru_cache(maxsize=4096)
def nodes_for(sigma: float, wanted: float) -> int | None:
    """The least p with η(p, σ, σ) ≤ wanted, None if there is none of reasonable size."""
    if sigma == 0:
        return 1
    return next((p for p in range(1, MOST_NODES) if both_sides(p, sigma, sigma) <= wanted), None)


def roots(p: int, kind: Any = np.float64) -> np.ndarray:
    """The p roots of T_p."""
    return np.cos((2 * np.arange(p, dtype=kind) + 1) * (_pi(kind) / (2 * p)))


def _pi(kind: Any) -> Any:
    return 4 * np.arctan(kind(1))


def coefficients(p: int, kind: Any = np.float64) -> np.ndarray:
    """The matrix that takes values at the roots to coefficients of T_0 … T_{p−1}."""
    angles = (2 * np.arange(p, dtype=kind) + 1) * (_pi(kind) / (2 * p))
    made = 2 / kind(p) * np.cos(np.arange(p, dtype=kind)[:, None] * angles)
    made[0] /= 2
    return made


def axis_matrix(x: np.ndarray, rho: Any, y: np.ndarray, h: Any, p: int, kind: Any = np.float64) -> np.ndarray:
    """e^{xy} of one axis as a matrix from key moments to query coefficients, of shape (cells · p, cells · p).

    Cells are given by their centres x, y and half-widths rho, h, relative to the centre of the box. Entry ((I,k),(J,l))
    is the coefficient of T_k(t) T_l(τ) in e^{(x_I + ρ t)(y_J + h τ)}, in which a moment of T_l over the keys is put.
    """
    at_roots, to_coefficients = roots(p, kind), coefficients(p, kind)
    # relative to the centres of both cells, where exponents are small and so are the roundings of their arguments
    along_x, along_y = np.multiply.outer(y * rho, at_roots), np.multiply.outer(x * h, at_roots)  # (J, a), (I, b)
    across = rho * h * np.multiply.outer(at_roots, at_roots)
    values = np.exp(
        along_x.T[:, None, :, None] + (along_y[None, :, None, :] + across[:, None, None, :])
    )  # (a, I, J, b)
    made = (to_coefficients @ values.reshape(p, -1)).reshape(-1, p) @ to_coefficients.T
    made = made.reshape(p, len(x), len(y), p)
    made *= np.exp(np.multiply.outer(x.astype(np.longdouble), y.astype(np.longdouble))).astype(kind)[None, :, :, None]
    return np.moveaxis(made, 0, 1).reshape(len(x) * p, len(y) * p).astype(np.float64)


def matrix_error(p: Any, sigma: Any, kind: Any) -> Any:
    """Errors of all coefficients of one pair of cells together, over the largest value of e^{xy} on that pair.

    With σ = σ_q + σ_k, a value relative to that of the centres is off by 8 σ + 8 units of the arithmetic in which it is
    computed: five roundings of the argument, those of the roots, and the exponential. Each of the p² coefficients is a
    sum of p² values with factors of at most 2/p, known to 8 units, in two stages. The value at the centres is rounded,
    and multiplied, at most three times more.
    """
    unit = float(np.finfo(kind).eps) / 2
    return 3 * 2.0**-53 + 4 * p * p * (2 * p + 24 + 8 * sigma) * unit
