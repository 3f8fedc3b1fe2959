"""Factorisations of matrices, in a batch one after the other.

jaxlib 0.10 shares the matrices of a batch out to XLA's threads, and waits for them in one of these threads. As soon as
as many batches as there are threads are being factorised, in one program or in several, each waits for a thread that
another one holds, and the program never ends. A single matrix is not shared out. A loop takes twice the time for a
thousand matrices of order 4, and no longer for a hundred of order 16 or larger ones.

Derivatives are forward ones only; where others are needed, `jnp.linalg` is called on one batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array


def _one_by_one(factorise: Callable[[Array], Any]) -> Callable[[Array], Any]:
    single = sequential_vmap(factorise)

    @wraps(factorise)
    def each(matrix: Array) -> Any:
        return single(matrix) if matrix.ndim == 2 else jax.vmap(each)(matrix)

    return each


@_one_by_one
def eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, the least first, and eigenvectors of symmetric matrices (*b, d, d)."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@_one_by_one
def eigvalsh(matrix: Array) -> Array:
    """Eigenvalues of symmetric matrices (*b, d, d), the least first."""
    return jnp.linalg.eigvalsh(matrix)


@_one_by_one
def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """U, the singular values, the largest first, and Vᵀ of matrices (*b, m, n)."""
    U, values, Vt = jnp.linalg.svd(matrix)
    return U, values, Vt


@_one_by_one
def qr(matrix: Array) -> tuple[Array, Array]:
    """Q with orthonormal columns, and R, of matrices (*b, m, n)."""
    Q, R = jnp.linalg.qr(matrix)
    return Q, R


def top_eigenvalue(matrix: Array) -> Array:
    """The largest eigenvalue of symmetric matrices (*b, d, d), rounded up; only their lower triangles are read.

    λ is at least the largest eigenvalue of a tridiagonal T if and only if all pivots of λ − T are positive, and
    bisection finds the least such number. `eigvalsh` computes eigenvectors too, and takes five times as long.

    Ref         golub2013, Section 8.4.

    >>> import jax.numpy as jnp
    >>> round(float(top_eigenvalue(jnp.array([[2.0, 0.0], [1.0, 2.0]]))), 12)
    3.0
    """
    diagonal, beside = _tridiagonal(matrix)
    squares = jnp.concatenate([jnp.zeros_like(diagonal[..., :1]), beside * beside], axis=-1)
    sizes = jnp.pad(jnp.abs(beside), [(0, 0)] * (beside.ndim - 1) + [(1, 1)])
    high = jnp.max(diagonal + sizes[..., 1:] + sizes[..., :-1], axis=-1)
    precision = jnp.finfo(matrix.dtype)
    high += 4 * float(precision.eps) * jnp.abs(high)
    rows = jnp.moveaxis(diagonal, -1, 0), jnp.moveaxis(squares, -1, 0)

    def reached(level: Array) -> Array:
        def step(state: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            pivot = level - row[0] - row[1] / state[0]
            positive = pivot > 0
            return (jnp.where(positive, pivot, 1), state[1] & positive), None

        start = jnp.ones_like(level), jnp.ones_like(level, bool)
        return jax.lax.scan(step, start, rows)[0][1]

    def halved(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        enough = reached(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return jax.lax.fori_loop(0, precision.nmant + 5, halved, (jnp.max(diagonal, axis=-1), high))[1]


@_one_by_one
def _tridiagonal(matrix: Array) -> tuple[Array, Array]:
    """Diagonal (d,) and what is beside it (d − 1,) of a tridiagonal matrix with the same eigenvalues."""
    if matrix.shape[0] == 1:
        return matrix[0], matrix[0, :0]
    _, diagonal, beside, _ = jax.lax.linalg.tridiagonal(matrix, lower=True)
    return diagonal, beside
