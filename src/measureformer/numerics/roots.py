"""The square root of a positive semidefinite matrix, with a derivative that survives repeated and zero eigenvalues."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def psd_root(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The symmetric square root of a positive semidefinite matrix; tiny negative eigenvalues count as zero.

    Its derivative X solves S X + X S = dM. Automatic differentiation of `eigh` divides by differences of eigenvalues
    and gives NaN for the identity matrix; the sums of roots that stand here vanish only on the common kernel.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0))) @ vectors.T


@psd_root.defjvp
def _psd_root_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (matrix,), (tangent,) = primals, tangents
    values, vectors = jnp.linalg.eigh(matrix)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    sums = roots[:, None] + roots[None, :]
    inner = vectors.T @ tangent @ vectors
    inner = jnp.where(sums > 0, inner / jnp.where(sums > 0, sums, 1), 0)
    return (vectors * roots) @ vectors.T, vectors @ inner @ vectors.T
