"""The square root of a positive semidefinite matrix and its derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from measureformer.numerics.roots import psd_root

EPS = np.finfo(np.float64).eps
seeds = st.integers(0, 2**32 - 1)
jvp = jax.jit(lambda matrix, tangent: jax.jvp(psd_root, (matrix,), (tangent,))[1])


def drawn(seed: int, dim: int = 3, rank: int | None = None, *, shift: float = 0.0) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(dim, dim if rank is None else rank))
    return factor @ factor.T + shift * np.eye(dim)


def symmetric(seed: int, dim: int = 3) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=(dim, dim))
    return matrix + matrix.T


def rounding(matrix: np.ndarray) -> float:
    """What `eigh` promises up to a modest constant: an error of a few d·eps·|M|."""
    return 20 * len(matrix) * EPS * float(np.abs(matrix).max() + 1)


@settings(max_examples=30)
@given(seeds, st.sampled_from([(1, 1), (3, 3), (3, 1)]))
def test_root_squared_is_the_matrix(seed: int, shape: tuple[int, int]) -> None:
    # kills: roots of absolute values, a Cholesky factor (not symmetric), a transposed basis
    matrix = drawn(seed, *shape)
    root = np.asarray(psd_root(jnp.asarray(matrix)))
    np.testing.assert_allclose(root @ root, matrix, atol=rounding(matrix), rtol=0)
    np.testing.assert_allclose(root, root.T, atol=rounding(root), rtol=0)
    # the root of a tiny negative eigenvalue is 0, so the least eigenvalue is rounding of `root` itself
    assert np.linalg.eigvalsh(root).min() >= -rounding(root)


@pytest.mark.parametrize("seed", range(3))
def test_root_agrees_with_scipy(seed: int) -> None:
    # eigenvalues ≥ 1, so the root is as well conditioned as the matrix
    matrix = drawn(seed, shift=1.0)
    np.testing.assert_allclose(psd_root(jnp.asarray(matrix)), scipy.linalg.sqrtm(matrix), atol=rounding(matrix), rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_traced_and_concrete_roots_agree(seed: int) -> None:
    # they are computed by two libraries
    matrix = jnp.asarray(drawn(seed, shift=1.0))
    batch = jnp.stack([matrix, 2 * matrix])
    np.testing.assert_allclose(jax.jit(psd_root)(matrix), psd_root(matrix), atol=rounding(np.asarray(matrix)), rtol=0)
    for found in (psd_root(batch), jax.jit(psd_root)(batch), jax.vmap(psd_root)(batch)):
        np.testing.assert_allclose(found[1], psd_root(2 * matrix), atol=rounding(np.asarray(batch[1])), rtol=0)


@settings(max_examples=30)
@given(seeds)
def test_derivative_solves_the_sylvester_equation(seed: int) -> None:
    # kills: differences of roots instead of sums, the derivative left in the eigenbasis
    matrix, tangent = drawn(seed, shift=1.0), symmetric(seed + 1)
    root = scipy.linalg.sqrtm(matrix)
    expected = scipy.linalg.solve_sylvester(root, root, tangent)
    # the equation has condition number |S|/min S ≤ |M|^{1/2}
    atol = rounding(matrix) * float(np.abs(tangent).max()) * float(np.linalg.norm(matrix)) ** 0.5
    np.testing.assert_allclose(jvp(matrix, tangent), expected, atol=atol, rtol=0)
    stacked = jvp(np.stack([np.eye(3), matrix]), np.stack([tangent, tangent]))
    np.testing.assert_allclose(stacked[1], expected, atol=atol, rtol=0)


@pytest.mark.parametrize("matrix", [np.eye(3), np.diag([1.0, 1.0, 4.0]), drawn(0, shift=1.0)], ids=["I", "twice", "M"])
def test_derivative_by_finite_differences(matrix: np.ndarray) -> None:
    # kills: automatic differentiation of `eigh`, which is NaN where eigenvalues repeat
    tangent, step = symmetric(1), 1e-4
    tangent /= np.linalg.norm(tangent)
    ahead, behind = (np.asarray(psd_root(jnp.asarray(matrix + s * tangent))) for s in (step, -step))
    # third derivative of the root at eigenvalues ≥ 1 is ≤ 3/8 per entry, so h²/6 of it plus rounding/h
    atol = step**2 + rounding(matrix) / step
    np.testing.assert_allclose(jvp(matrix, tangent), (ahead - behind) / (2 * step), atol=atol, rtol=0)


def test_derivative_at_the_identity_is_a_half() -> None:
    tangent = symmetric(2)
    np.testing.assert_allclose(jvp(np.eye(3), tangent), tangent / 2, atol=rounding(tangent), rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_trace(seed: int) -> None:
    # d tr M^{1/2} = tr(M^{-1/2} dM)/2, by reverse mode
    matrix = drawn(seed, shift=1.0)
    gradient = jax.grad(lambda m: jnp.trace(psd_root(m)))(jnp.asarray(matrix))
    expected = np.linalg.inv(scipy.linalg.sqrtm(matrix)) / 2
    np.testing.assert_allclose(gradient, expected, atol=rounding(matrix), rtol=0)


def test_singular_matrices_have_finite_derivatives() -> None:
    # kills: division by the sum of two zero roots
    assert (np.asarray(jvp(np.zeros((3, 3)), np.eye(3))) == 0).all()
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0][:, :2]
    inner, change = np.diag([1.0, 4.0]), symmetric(3, 2)
    matrix, tangent = basis @ inner @ basis.T, basis @ change @ basis.T
    small = scipy.linalg.solve_sylvester(np.sqrt(inner), np.sqrt(inner), change)
    # inside the range it is the derivative there; on the kernel rounding eps is divided by a root of about eps^{1/2}
    np.testing.assert_allclose(jvp(matrix, tangent), basis @ small @ basis.T, atol=100 * EPS**0.5, rtol=0)
    assert np.isfinite(jvp(matrix, np.eye(3))).all()


def test_tiny_negative_eigenvalues_count_as_zero() -> None:
    matrix = np.diag([1.0, -1e-17])
    np.testing.assert_array_equal(psd_root(jnp.asarray(matrix)), np.diag([1.0, 0.0]))
    np.testing.assert_array_equal(jax.jit(psd_root)(matrix), np.diag([1.0, 0.0]))


def test_float32_stays_float32() -> None:
    matrix = jnp.asarray(drawn(0), jnp.float32)
    with jax.numpy_dtype_promotion("strict"):
        assert psd_root(matrix).dtype == jnp.float32
        assert jvp(matrix, matrix).dtype == jnp.float32
