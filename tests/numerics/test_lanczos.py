"""Lanczos' iteration against dense singular values: matrices with known spectra, hard gaps, small shapes, rounding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measureformer.numerics.lanczos import BASIS, top_singular

seeds = st.integers(0, 2**32 - 1)


@jax.jit
def solve(matrix: Any, start: Any, tol: Any = 1e-10, max_iterations: Any = 2000) -> Any:
    return top_singular(lambda v: matrix @ v, lambda u: matrix.T @ u, start, tol=tol, max_iterations=max_iterations)


def with_values(values: Any, rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix with these singular values, and a start for the iteration."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(size, len(values))))[0] for size in (rows, columns))
    return (left * values) @ right.T, rng.normal(size=columns)


@settings(max_examples=10)
@given(seeds, st.sampled_from([(40, 30), (30, 40)]))
def test_random_matrices(seed: int, shape: tuple[int, int]) -> None:
    # kills: products interchanged, a basis that is not orthogonal, the wrong singular vector
    rng = np.random.default_rng(seed)
    matrix, start = rng.normal(size=shape), rng.normal(size=shape[1])
    found = solve(matrix, start)
    assert bool(found.converged)
    np.testing.assert_allclose(found.value, np.linalg.norm(matrix, 2), rtol=1e-12)
    np.testing.assert_allclose(matrix @ found.right, found.value * found.left, atol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(found.right), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.left), 1, atol=1e-12)


def test_a_small_gap_needs_restarts_and_gets_there() -> None:
    # kills: restarts that lose the coupling of the kept vectors to the next one (then the iteration stalls)
    values = np.r_[1.0, 0.999, np.linspace(0.998, 0, 98)]
    matrix, start = with_values(values, 120, 100, 3)
    found = solve(matrix, start, 1e-9)
    assert bool(found.converged)
    assert int(found.iterations) > 2 * BASIS
    np.testing.assert_allclose(found.value, 1, rtol=1e-12)


@settings(max_examples=10)
@given(seeds)
def test_the_residual_is_what_it_says_when_stopped_early(seed: int) -> None:
    # kills: the residual of another Ritz vector, |p_last| left out
    matrix, start = with_values(np.linspace(1, 0.5, 60), 60, 60, seed)
    found = solve(matrix, start, 1e-12, 8)
    assert int(found.iterations) == 8
    assert not bool(found.converged)
    true = np.linalg.norm(matrix.T @ found.left - found.value * found.right)
    np.testing.assert_allclose(found.residual, true, rtol=1e-9)
    # an attained value, and a singular value within the residual
    assert float(found.value) <= 1 + 1e-14
    assert np.abs(np.linspace(1, 0.5, 60) - float(found.value)).min() <= true


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 3), (BASIS, BASIS), (5, 40)])
def test_small_shapes_end_by_themselves(shape: tuple[int, int]) -> None:
    # kills: division by the length of an exhausted rest
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=shape)
    found = solve(matrix, rng.normal(size=shape[1]))
    assert bool(found.converged)
    np.testing.assert_allclose(found.value, np.linalg.norm(matrix, 2), rtol=1e-12)


def test_a_multiple_of_an_isometry_and_zero() -> None:
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(9, 9)))[0]
    found = solve(3 * rotation, np.ones(9))
    assert int(found.iterations) == 1
    np.testing.assert_allclose(found.value, 3, rtol=1e-14)
    nothing = solve(np.zeros((9, 9)), np.ones(9))
    assert (float(nothing.value), float(nothing.residual), bool(nothing.converged)) == (0.0, 0.0, True)


def test_a_matrix_that_is_not_finite_ends_and_says_so() -> None:
    matrix = np.eye(6)
    matrix[2, 3] = np.nan
    found = solve(matrix, np.ones(6))
    assert not np.isfinite(float(found.value))
    assert not bool(found.converged)


def test_single_precision_stays_single_and_batches_agree() -> None:
    rng = np.random.default_rng(2)
    matrices, start = rng.normal(size=(3, 20, 20)).astype(np.float32), rng.normal(size=20).astype(np.float32)
    found = jax.vmap(solve, in_axes=(0, None, None))(matrices, start, jnp.float32(1e-4))
    assert found.value.dtype == found.residual.dtype == np.float32
    np.testing.assert_allclose(found.value, np.linalg.norm(matrices, 2, axis=(1, 2)), rtol=1e-5)
