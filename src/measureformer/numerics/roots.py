"""The square root of a positive semidefinite matrix, with a derivative that survives repeated and zero eigenvalues."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.numerics import lapack
from measureformer.numerics.arrays import is_traced, namespace, on_device


def psd_root(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """The symmetric square root of a positive semidefinite matrix, or of each; tiny negative eigenvalues count as zero.

    Its derivative X solves S X + X S = dM. Automatic differentiation of `eigh` divides by differences of eigenvalues
    and gives NaN for the identity matrix; the sums of roots that stand here vanish only on the common kernel.
    """
    return _traced_root(matrix) if is_traced(matrix) else on_device(_root(namespace(matrix), matrix))


def _root(xp: ModuleType, matrix: Any) -> Any:
    values, vectors = np.linalg.eigh(matrix) if xp is np else lapack.eigh(matrix)
    return _in_basis(vectors, xp.sqrt(xp.maximum(values, 0)))


@jax.custom_jvp
def _traced_root(matrix: Array) -> Array:
    return _root(jnp, matrix)


@_traced_root.defjvp
def _psd_root_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (matrix,), (tangent,) = primals, tangents
    values, vectors = lapack.eigh(matrix)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    sums = roots[..., :, None] + roots[..., None, :]
    back = vectors.swapaxes(-1, -2)
    inner = back @ tangent @ vectors
    inner = jnp.where(sums > 0, inner / jnp.where(sums > 0, sums, 1), 0)
    return _in_basis(vectors, roots), vectors @ inner @ back


def _in_basis(vectors: Any, values: Any) -> Any:
    return (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
