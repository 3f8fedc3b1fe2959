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
