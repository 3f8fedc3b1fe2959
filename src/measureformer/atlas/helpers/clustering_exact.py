"""Stability in integers: the linearised flow of covariances, its characteristic polynomial, the minors of Hurwitz.

Python's integers have no rounding and no overflow, so a sign that is found here is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

Matrix = Sequence[Sequence[int]]


def product(*factors: Matrix) -> list[list[int]]:
    """The product of integer matrices."""
    made = [list(row) for row in factors[0]]
    for factor in factors[1:]:
        made = [
            [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*factor, strict=True)]
            for row in made
        ]
    return made


def speed(A: Matrix, V: Matrix, cov: Matrix, tilt: Matrix | None = None) -> list[list[int]]:
    """F(Σ) = VΣAΣ + ΣAᵀΣVᵀ; with a `tilt` Δ its derivative, VΔAΣ + VΣAΔ and the transpose."""
    half = [product(V, cov, A, cov)] if tilt is None else [product(V, tilt, A, cov), product(V, cov, A, tilt)]
    d = range(len(cov))
    return [[sum(part[i][j] + part[j][i] for part in half) for j in d] for i in d]


def linearised(A: Matrix, V: Matrix, cov: Matrix) -> list[list[int]]:
    """The matrix of the derivative of F in the d(d+1)/2 entries on and above the diagonal."""
    pairs = list(combinations_with_replacement(range(len(cov)), 2))
    unit = lambda i, j: [[int({a, b} == {i, j}) for b in range(len(cov))] for a in range(len(cov))]  # noqa: E731
    moved = [speed(A, V, cov, unit(i, j)) for i, j in pairs]
    return [[column[i][j] for column in moved] for i, j in pairs]


def characteristic(matrix: Matrix) -> list[int]:
    """Coefficients of det(z − M) from z^0 to z^n, by Faddeev and LeVerrier: every division is exact."""
    n = len(matrix)
    eye = [[int(i == j) for j in range(n)] for i in range(n)]
    coefficients, power = [1], eye
    for k in range(1, n + 1):
        power = product(matrix, power)
        last = -sum(power[i][i] for i in range(n)) // k
        coefficients.append(last)
        power = [[power[i][j] + last * eye[i][j] for j in range(n)] for i in range(n)]
    return coefficients[::-1]


def determinant(matrix: Matrix) -> int:
    """The determinant, by Bareiss: every division is exact."""
    rows, sign, before = [list(row) for row in matrix], 1, 1
    for k in range(len(rows) - 1):
        swap = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if swap is None:
            return 0
        if swap != k:
            rows[k], rows[swap], sign = rows[swap], rows[k], -sign
        for i in range(k + 1, len(rows)):
            for j in range(k + 1, len(rows)):
                rows[i][j] = (rows[i][j] * rows[k][k] - rows[i][k] * rows[k][j]) // before
        before = rows[k][k]
    return sign * rows[-1][-1]


def hurwitz_minors(coefficients: Sequence[int]) -> list[int]:
    """Leading minors of the Hurwitz matrix of Σ c_k z^k with c_n > 0: all are positive iff all roots have Re z < 0."""
    n = len(coefficients) - 1
    entry = lambda i: coefficients[n - i] if 0 <= i <= n else 0  # noqa: E731
    H = [[entry(2 * j - i + 1) for j in range(n)] for i in range(n)]
    return [determinant([row[:k] for row in H[:k]]) for k in range(1, n + 1)]
