"""The largest singular value of a matrix that is known only through its products: Golub–Kahan–Lanczos.

Two orthonormal bases grow in turn, rows v_1, v_2, … on the right and u_1, u_2, … on the left, such that J V = U B for a
small triangular B, and Jᵀ U = V Bᵀ up to one vector r in the last place. If (p, σ, q) is the top singular triple of B,
then σ = |J v| for the unit vector v = V q, so σ is a lower bound of ‖J‖, and with u = U p

    J v = σ u,        |Jᵀu − σ v| = |r| |p_last|:

a singular value of J lies within this residual of σ. New vectors are made orthogonal to all earlier ones, twice. When
the bases are full they are exchanged for the best few singular vectors of B and the iteration goes on from there (a
thick restart), so that memory does not grow with the number of steps.

Ref         golub2013, Section 10.4; baglama2005.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.numerics import lapack
from measureformer.numerics.norms import norms

Product = Callable[[Array], Array]

BASIS, KEPT = 16, 5
"""Vectors in a full basis, and those that survive a restart."""


class SingularTriple(eqx.Module):
    """J right = value · left, and |Jᵀ left − value · right| = residual; one iteration is one product with J and Jᵀ."""

    value: Float[Array, ""]
    left: Float[Array, " q"]
    right: Float[Array, " p"]
    residual: Float[Array, ""]
    converged: Any
    iterations: Any


class _State(NamedTuple):
    V: Array
    U: Array
    B: Array
    filled: Any
    """Vectors of U so far; V has one more."""
    value: Array
    right: Array
    """The top singular vectors of B."""
    left: Array
    residual: Array
    steps: Any


def top_singular(
    apply: Product, transpose: Product, start: Float[Array, " p"], *, tol: Any, max_iterations: Any
) -> SingularTriple:
    """The top singular triple of the matrix with products `apply` and `transpose`, until residual ≤ tol · value.

    `start` must not be orthogonal to the top right singular vector: a random vector is not. Call it under `jit`. The
    products may be non-finite, and so is the value then.
    """
    rows = jax.eval_shape(apply, start).shape[0]
    nothing = jnp.zeros((), start.dtype)
    first = jnp.eye(BASIS, dtype=start.dtype)[0]
    state = _State(
        V=jnp.zeros((BASIS + 1, start.shape[0]), start.dtype).at[0].set(_unit(start, nothing)[0]),
        U=jnp.zeros((BASIS, rows), start.dtype),
        B=jnp.zeros((BASIS, BASIS), start.dtype),
        filled=jnp.asarray(0),
        value=nothing,
        right=first,
        left=first,
        residual=nothing + jnp.inf,
        steps=jnp.asarray(0),
    )

    def unfinished(state: _State) -> Any:
        # a residual that is not a number ends the iteration too
        return (state.residual > tol * state.value) & (state.steps < max_iterations)

    def filling(state: _State) -> Any:
        return unfinished(state) & (state.filled < BASIS)

    def filled(state: _State) -> _State:
        return _restarted(jax.lax.while_loop(filling, lambda state: _extended(apply, transpose, state), state))

    state = jax.lax.while_loop(unfinished, filled, state)
    left, right = state.left @ state.U, state.right @ state.V[:BASIS]
    return SingularTriple(state.value, left, right, state.residual, state.residual <= tol * state.value, state.steps)


def _extended(apply: Product, transpose: Product, state: _State) -> _State:
    """One vector more in each basis."""
    j = state.filled
    coefficients, u, alpha = _orthogonal(apply(state.V[j]), state.U)
    B = state.B.at[:, j].set(coefficients.at[j].set(alpha))
    _, v, beta = _orthogonal(transpose(u), state.V)
    P, values, Qt = lapack.svd(B)
    return _State(
        V=state.V.at[j + 1].set(v),
        U=state.U.at[j].set(u),
        B=B,
        filled=j + 1,
        value=values[0],
        right=Qt[0],
        left=P[:, 0],
        residual=beta * jnp.abs(P[j, 0]),
        steps=state.steps + 1,
    )


def _restarted(state: _State) -> _State:
    """A rotation of the bases diagonalises B; the best few singular vectors stay, and the one that was to come next."""
    P, values, Qt = lapack.svd(state.B)
    kept = jnp.arange(BASIS) < KEPT
    first = jnp.eye(BASIS, dtype=state.B.dtype)[0]
    V = jnp.zeros_like(state.V).at[:BASIS].set((kept[:, None] * Qt) @ state.V[:BASIS])
    return state._replace(
        V=V.at[KEPT].set(state.V[state.filled]),
        U=(kept[:, None] * P.T) @ state.U,
        B=jnp.diag(kept * values),
        filled=jnp.full_like(state.filled, KEPT),
        right=first,
        left=first,
    )


def _orthogonal(vector: Array, basis: Array) -> tuple[Array, Array, Array]:
    """Coefficients of the vector in the basis, the unit vector of what is left, and its length."""
    first = basis @ vector
    left = vector - first @ basis
    # once more: after one pass, cancellation may have left an error as large as the rest
    second = basis @ left
    left = left - second @ basis
    # below this the rest is rounding, and the basis spans all there is
    return first + second, *_unit(left, 10 * jnp.finfo(vector.dtype).eps * norms(vector))


def _unit(vector: Array, least: Array) -> tuple[Array, Array]:
    """The vector divided by its length, and the length; zeros if the length is at most `least`."""
    length = norms(vector)
    none = length <= least
    return jnp.where(none, 0, vector / jnp.where(none, 1, length)), jnp.where(none, 0, length)
