"""Factorisations against NumPy; and that no program hands LAPACK a batch, which can make it wait for ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer.numerics import lapack
from measureformer.regularity.local import constants

A = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4, 4)))
S = A + A.swapaxes(-1, -2)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: jax.vmap(jax.vmap(f))])
def test_batches_are_factorised_as_numpy_does(wrap: Callable[[Any], Any]) -> None:
    values, vectors = wrap(lapack.eigh)(S)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S), atol=1e-12)
    np.testing.assert_allclose(S @ vectors, vectors * values[..., None, :], atol=1e-12)
    np.testing.assert_allclose(wrap(lapack.eigvalsh)(S), values, atol=1e-12)
    U, singular, Vt = wrap(lapack.svd)(A)
    np.testing.assert_allclose(singular, np.linalg.svd(A)[1], atol=1e-12)
    np.testing.assert_allclose(U * singular[..., None, :] @ Vt, A, atol=1e-12)
    Q, R = wrap(lapack.qr)(A)
    np.testing.assert_allclose(Q @ R, A, atol=1e-12)
    np.testing.assert_allclose(Q.swapaxes(-1, -2) @ Q, np.broadcast_to(np.eye(4), A.shape), atol=1e-12)


def test_forward_derivatives_are_those_of_one_matrix() -> None:
    _, moved = jax.jvp(lapack.eigvalsh, (S,), (A + A.swapaxes(-1, -2),))
    np.testing.assert_allclose(moved, np.linalg.eigvalsh(S), atol=1e-10)  # d λ(S + tS) = λ(S)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", [1, 2, 7, 40])
def test_largest_eigenvalues_are_those_of_numpy_and_not_less(order: int, dtype: Any) -> None:
    # negative definite ones too, and zero: a bracket that starts at 0 would not find them
    draws = np.random.default_rng(order).normal(size=(5, order, order))
    grams = draws @ draws.swapaxes(1, 2)
    stack = np.concatenate([grams, -grams, draws + draws.swapaxes(1, 2), np.zeros((1, order, order))]).astype(dtype)
    exact, sizes = np.linalg.eigvalsh(stack.astype(float))[:, -1], np.abs(stack).sum(axis=2).max(axis=1)
    rounding = 10 * float(np.finfo(dtype).eps) * sizes
    given = jnp.asarray(stack)
    for found in (lapack.top_eigenvalue(given), jax.vmap(lapack.top_eigenvalue)(given)):
        assert found.dtype == dtype
        assert (np.abs(np.asarray(found, float) - exact) <= rounding).all()
    # only the lower triangle is read
    np.testing.assert_array_equal(lapack.top_eigenvalue(jnp.tril(given)), found)


def test_the_largest_eigenvalue_of_what_is_not_finite_is_not() -> None:
    assert not np.isfinite(float(lapack.top_eigenvalue(jnp.full((3, 3), jnp.nan))))


def batches(program: Any, *arguments: Any) -> list[str]:
    """Types of the batches of more than one matrix that a program hands to LAPACK."""
    text = program.lower(*arguments).as_text()
    calls = re.findall(r"@lapack_\w+\([^)]*\)[^\n]*: \(([^)]*)\)", text)
    assert calls, "the program does not call LAPACK: nothing was tested"
    return [call for call in calls if any(int(size) > 1 for size in re.findall(r"tensor<(\d+)x\d+x\d+x", call))]


def test_no_batch_reaches_lapack_when_a_layer_is_certified() -> None:
    # an eigenvalue problem and a QR of all heads, at the same time on two threads, did not end
    rng = np.random.default_rng(1)
    G = mf.Attention.random(jax.random.key(2), 4, heads=3, head_dim=2)
    mu = mf.Discrete.uniform(rng.normal(size=(6, 4)))
    assert not batches(jax.jit(constants), G, mu, jax.random.key(0), jnp.asarray(1e-6), jnp.asarray(50))
    control = jax.jit(lambda W: jnp.linalg.qr(W)[0])
    assert batches(control, G.W)
