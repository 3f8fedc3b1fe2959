"""Stationary covariances: the pair in integers, its certificate found twice, types under changes of coordinates."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import measureformer as mf
from measureformer.atlas.claims.clustering.castin_2025_rank_above_half import COV, FLIPPED, A, V
from measureformer.atlas.helpers.clustering_exact import characteristic, determinant, hurwitz_minors, linearised, speed
from measureformer.errors import DimensionMismatchError, NotPositiveSemidefiniteError, OptionError

POLYNOMIAL = [0, 2432, 16000, 13784, 13300, 7248, 2832, 796, 157, 20, 1]
"""As in the documentation, from z⁰ to z¹⁰."""
AUDITED = [
    [[0.16, -0.1, 0.82, -0.29], [-0.56, -0.6, -1.17, -0.85], [0, 0.66, 1.3, 0.92], [-0.01, -0.37, -0.38, -0.22]],
    [[-0.32, -0.91, 0.04, -0.12], [-0.21, -0.38, 0.39, -0.43], [-0.41, -0.47, -0.53, -0.3], [-0.08, 0.43, 0.11, 0.1]],
    [[0.49, -0.03, 0.01, -0.26], [-0.03, 0.24, -0.02, -0.11], [0.01, -0.02, 0.03, 0.04], [-0.26, -0.11, 0.04, 0.29]],
]


def routh(coefficients: list[int]) -> list[Fraction]:
    """First column of Routh's array in fractions: all of one sign iff all roots have negative real part."""
    falling = [Fraction(c) for c in coefficients[::-1]]
    width = (len(falling) + 1) // 2 + 1
    above, row = ((falling[i::2] + [Fraction(0)] * width)[:width] for i in (0, 1))
    first = [above[0], row[0]]
    for _ in range(len(falling) - 2):
        below = [(row[0] * above[i + 1] - above[0] * row[i + 1]) / row[0] for i in range(width - 1)] + [Fraction(0)]
        above, row = row, below
        first.append(row[0])
    return first


def test_the_certificate_in_integers_found_in_two_ways() -> None:
    matrix = linearised(A, V, COV)
    assert all(type(entry) is int for row in matrix for entry in row)
    assert speed(A, V, COV) == [[0] * 4] * 4
    assert (determinant(A), determinant(V)) == (-2, 2)
    assert characteristic(matrix) == POLYNOMIAL
    # eleven values determine a polynomial of degree ten
    for z in range(-5, 6):
        shifted = [[z * (i == j) - entry for j, entry in enumerate(row)] for i, row in enumerate(matrix)]
        assert determinant(shifted) == sum(c * z**k for k, c in enumerate(POLYNOMIAL))
    minors = hurwitz_minors(POLYNOMIAL[1:])
    assert minors[:4] == [20, 2344, 877984, 768316224]
    assert minors[-1] == 137132272217584358653952000
    assert min(minors) > 0
    assert min(routh(POLYNOMIAL[1:])) > 0
    # Routh's column is the quotient of successive minors
    assert routh(POLYNOMIAL[1:])[1:] == [Fraction(b, a) for a, b in zip([1, *minors], minors, strict=False)]


def test_the_certificate_rejects_the_nearest_matrix() -> None:
    found = characteristic(linearised(A, FLIPPED, COV))
    assert speed(A, FLIPPED, COV) == [[0] * 4] * 4
    assert found[0] == 0
    assert min(hurwitz_minors(found[1:])) < 0
    assert min(routh(found[1:])) < 0
    assert not mf.clustering.stationary_type(A, FLIPPED, COV).attracts


def test_the_linearised_flow_is_the_derivative() -> None:
    # kills: A transposed in one of the two terms, the transposed half left out
    rows, step = np.triu_indices(4), 1e-6
    flow = lambda cov: (lambda X: (X + X.T)[rows])(np.array(V) @ cov @ np.array(A) @ cov)  # noqa: E731
    for column, (i, j) in enumerate(zip(*rows, strict=True)):
        tilt = np.zeros((4, 4))
        tilt[i, j] = tilt[j, i] = step
        slope = (flow(COV + tilt) - flow(COV - tilt)) / (2 * step)
        np.testing.assert_allclose(slope, np.array(linearised(A, V, COV))[:, column], atol=1e-8)


def test_covariances_of_full_rank_tend_to_rank_three() -> None:
    # by an independent solver, and by the library; for V = I the same covariance explodes
    rng = np.random.default_rng(0)
    G = rng.normal(size=(4, 4))
    start = np.array(COV) + 0.01 * G @ G.T / 4
    a, v = np.array(A, float), np.array(V, float)

    def right(t: float, y: np.ndarray) -> np.ndarray:
        half = v @ y.reshape(4, 4) @ a @ y.reshape(4, 4)
        return (half + half.T).ravel()

    end = solve_ivp(right, (0, 300), start.ravel(), method="LSODA", rtol=1e-10, atol=1e-13).y[:, -1].reshape(4, 4)
    values = np.linalg.eigvalsh(end)
    assert np.abs(right(0, end)).max() < 1e-8
    assert abs(values[0]) < 1e-9
    assert values[1] > 0.9
    traj = mf.flow(mf.Attention.head(np.eye(4), a.T, v), mf.Gaussian(np.zeros(4), start), [0.0, 20.0])
    assert np.linalg.matrix_rank(start) == 4
    assert traj.blow_up is None
    assert traj.rank().tolist() == [4, 3]
    assert mf.flow(mf.Attention.head(np.eye(4), a.T, np.eye(4)), traj.measures[0], [0.0, 20.0]).blow_up


def test_the_attractor_that_random_matrices_showed() -> None:
    a, v, start = map(np.array, AUDITED)

    def right(t: float, y: np.ndarray) -> np.ndarray:
        half = v @ y.reshape(4, 4) @ a @ y.reshape(4, 4)
        return (half + half.T).ravel()

    end = solve_ivp(right, (0, 5000), start.ravel(), method="LSODA", rtol=1e-11, atol=1e-14).y[:, -1].reshape(4, 4)
    found = mf.clustering.stationary_type(a, v, (end + end.T) / 2)
    assert (found.rank, found.inner_rank, found.attracts) == (3, 2, True)
    assert np.linalg.eigvalsh(end)[1:] == pytest.approx([0.066405, 0.359251, 0.821719], abs=1e-5)


def test_the_type_does_not_depend_on_coordinates() -> None:
    # kills: V or A moved to the wrong side; spectra of the transposed flow
    rng = np.random.default_rng(1)
    before = mf.clustering.stationary_type(A, V, COV)
    for _ in range(5):
        G = np.linalg.qr(rng.normal(size=(4, 4)))[0] * rng.uniform(0.5, 2, size=4)
        back, cov = np.linalg.inv(G), G @ np.array(COV) @ G.T
        after = mf.clustering.stationary_type(back.T @ np.array(A) @ back, G @ np.array(V) @ back, (cov + cov.T) / 2)
        assert after[:2] == before[:2]
        assert after.attracts
        np.testing.assert_allclose(after.outer, before.outer, atol=1e-9)
        np.testing.assert_allclose(after.spectrum.real, before.spectrum.real, atol=1e-8)
    np.testing.assert_allclose(np.poly(before.spectrum).real, POLYNOMIAL[:0:-1], rtol=1e-9)


def test_in_the_plane_an_attractor_of_full_rank() -> None:
    found = mf.clustering.stationary_type([[-1, -1], [1, 0]], [[1, 1], [0, 1]], np.eye(2))
    assert (found.rank, found.inner_rank, len(found.outer), found.attracts) == (2, 2, 0, True)
    np.testing.assert_allclose(found.spectrum, [-2, -2], atol=1e-12)


def test_rank_one_and_the_formula_for_symmetric_matrices() -> None:
    # V = I, A = diag(1, −1): Σ = (1,1)(1,1)ᵀ; VΣA moves (1, 0) by 1 along (1, 1), which is 0 outside of the range
    found = mf.clustering.stationary_type(np.diag([1.0, -1.0]), np.eye(2), np.ones((2, 2)))
    assert (found.rank, found.inner_rank, found.attracts) == (1, 0, False)
    np.testing.assert_allclose(found.outer, [0.0], atol=1e-12)


def test_zero_eigenvalues_along_a_stationary_covariance_do_not_decide() -> None:
    # scaling Σ scales the rates
    found, scaled = (mf.clustering.stationary_type(A, V, s * np.array(COV)) for s in (1, 1e-6))
    np.testing.assert_allclose(1e6 * scaled.spectrum.real, found.spectrum.real, atol=1e-8)
    assert scaled.attracts


@pytest.mark.parametrize(
    ("A", "V", "cov", "error"),
    [
        (A, V, np.eye(4), OptionError),
        (A, V, np.zeros((4, 4)), OptionError),
        (A, V, np.eye(3), DimensionMismatchError),
        (A, V, np.diag([1.0, 1.0, 1.0, -1.0]), NotPositiveSemidefiniteError),
        (np.ones((2, 3)), np.eye(2), np.eye(2), DimensionMismatchError),
    ],
)
def test_refusals(A: Any, V: Any, cov: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        mf.clustering.stationary_type(A, V, cov)
