"""`push_density`: the density of a push-forward, by inverting the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, NotInvertibleError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.queries import queries_of
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import at_once, cast, common_dtype, finite, floats, on_device, shaped
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

TRIES = 100
"""Attempted steps of Newton's method, rejected ones included."""


class PushedDensity(eqx.Module):
    """Densities of a push-forward at given points; see `push_density`."""

    log_density: Float[Array, " m"]
    """log of ρ(T⁻¹y) |det DT⁻¹(y)|."""
    preimages: Float[Array, "m d"]
    """T⁻¹y."""
    residuals: Float[Array, " m"]
    """|T(T⁻¹y) − y|."""


@checked
def push_density(
    T: AbstractInContextMap,
    log_density: Callable[[Array], ArrayLike],
    mu: AbstractMeasure,
    y: ArrayLike,
    *,
    tol: float = 1e-9,
) -> PushedDensity:
    """The density at y of the push-forward of a density ρ by x ↦ T(mu, x).

    T is inverted by damped Newton steps from several starts.

    Arguments:
        T: an invertible in-context map of R^d to itself: a residual layer, or `traj.map(t)`.
        log_density: log ρ as a function of points (m, d), with values (m,).
        mu: the measure that T reads.
        y: points at which the new density is wanted, (m, d).
        tol: largest residual |T(T⁻¹y) − y|, relative to max(1, |y|).

    Statement   (T♯ρ)(y) = ρ(T⁻¹y) |det DT⁻¹(y)| for a diffeomorphism T
    Hypotheses  checked: the inverse was found up to `tol` times the size of y, no two starts lead to different ones,
                and the determinants at them have one sign.  assumed: T is one-to-one elsewhere.
    Cost        d products with the derivative of T for each step, all points at once, and O(d³) for each point.
    Ref         villani2009, Chapter 1.

    >>> import numpy as np, measureformer as mf
    >>> log_rho = lambda x: -(x[:, 0] ** 2) / 2 - np.log(2 * np.pi) / 2                    # N(0, 1)
    >>> found = mf.flows.push_density(mf.Linear([[2.0]], [1.0]), log_rho, mf.Discrete.dirac([0.0]), [[3.0]])
    >>> found.preimages.tolist(), np.exp(found.log_density).round(6).tolist()             # of N(1, 4) at 3
    ([[1.0]], [0.120985])
    """
    concrete((T, mu, y), "push_density")
    images = np.asarray(queries_of(mu, y, None)[0])
    T.check_meets(mu, None)
    finite(images, "y")
    if T.out_dim(mu.dim) != mu.dim:
        raise DimensionMismatchError(
            got=f"a map from R^{mu.dim} to R^{T.out_dim(mu.dim)}",
            need="a map of a space to itself",
            do="Densities have a formula only where no dimension is lost or gained.",
        )
    count, context = len(images), mu.padded() if isinstance(mu, AbstractAtomic) else mu
    dtype = common_dtype(T, mu, images)
    starts = _starts(mu, images.astype(np.float64))
    rows = np.tile(images, (len(starts), 1)), starts.reshape(-1, mu.dim)
    program = cast((T, context, *(pad_rows(part, bucket(len(part))) for part in rows)), dtype)
    found = (
        np.asarray(part)[: len(starts) * count].reshape(len(starts), count, *part.shape[1:])
        for part in at_once(_inverted, *program)
    )
    x, residuals, signs, logs = _chosen(images, tuple(found), max(tol, 1e3 * float(np.finfo(dtype).eps)))
    refuse_folds(signs)
    values = np.asarray(shaped(floats(log_density(on_device(x)), "log_density(x)"), "log_density(x)", "m"), dtype)
    return PushedDensity(*map(on_device, (values - logs, x, residuals)))


class _State(NamedTuple):
    """One row for each point: the best x so far, with T(x) − y and DT(x); what to try next; how long a step may be."""

    x: Array
    gap: Array
    jacobian: Array
    tried: Array
    length: Array
    tries: Array


@eqx.filter_jit
def _inverted(T: AbstractInContextMap, mu: Any, y: Array, starts: Array) -> tuple[Array, ...]:
    """Preimages of y by Newton's method, residuals, signs and logarithms of the determinants of DT there."""

    def with_jacobian(x: Array) -> tuple[Array, Array]:
        def along(e: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda x: T.evaluate(mu, x, None), (x,), (jnp.broadcast_to(e, x.shape),))

        values, columns = jax.lax.map(along, jnp.eye(x.shape[1], dtype=x.dtype))
        return values[0], jnp.moveaxis(columns, 0, -1)

    def attempt(state: _State) -> _State:
        value, jacobian = with_jacobian(state.tried)
        better = _sizes(value - y) < _sizes(state.gap)
        new = state.tried, value - y, jacobian
        x, gap, jacobian = (jax.vmap(jnp.where)(better, a, b) for a, b in zip(new, state[:3], strict=True))
        # a step that was too long is shortened and tried again
        length = jnp.where(better, jnp.minimum(1, 2 * state.length), state.length / 4)
        step = jnp.linalg.solve(jacobian, jnp.where(jnp.isfinite(gap), gap, 0)[:, :, None])[:, :, 0]
        return _State(x, gap, jacobian, x - length[:, None] * step, length, state.tries + 1)

    def going(state: _State) -> Array:
        rounding = 64 * jnp.finfo(y.dtype).eps * (_sizes(state.x) + _sizes(y))
        far = (_sizes(state.tried - state.x) > rounding) & (state.length > 1e-9)
        return (state.tries == 0) | (jnp.any(far) & (state.tries < TRIES))

    rows, d = y.shape
    unknown = jnp.full((rows, d), jnp.inf, y.dtype), jnp.broadcast_to(jnp.eye(d, dtype=y.dtype), (rows, d, d))
    state = _State(starts, *unknown, starts, jnp.ones(rows, y.dtype), jnp.zeros((), int))
    state = jax.lax.while_loop(going, attempt, state)
    return state.x, _sizes(state.gap), *jnp.linalg.slogdet(state.jacobian)


def _sizes(rows: Array) -> Array:
    return jnp.sqrt(jnp.sum(rows * rows, axis=1))


def _starts(mu: AbstractMeasure, y: np.ndarray) -> np.ndarray:
    """Three starts for each point: itself, and places beyond the context on its side and on the opposite one."""
    center, spread = np.asarray(mu.mean()), np.sqrt(np.trace(np.asarray(mu.covariance())))
    away = y - center
    far = np.linalg.norm(away, axis=1, keepdims=True)
    directions = np.where(far > 0, away / np.where(far > 0, far, 1), np.eye(1, y.shape[1]))
    beyond = 3 * np.maximum(far, spread) * directions
    return np.stack([y, center + beyond, center - beyond])


def _chosen(y: np.ndarray, found: tuple[np.ndarray, ...], tol: float) -> tuple[np.ndarray, ...]:
    """For each point the preimage with the least residual; refused if there is none, or if there are two."""
    x, residuals, signs, logs = found
    allowed = tol * np.maximum(1, np.linalg.norm(y, axis=1))
    residuals = np.where(np.isfinite(residuals), residuals, np.inf)
    best, rows = residuals.argmin(axis=0), np.arange(len(y))
    least, chosen = residuals[best, rows], x[best, rows]
    if (lost := least > allowed).any():
        i = int(lost.argmax())
        raise NotInvertibleError(
            got=f"no preimage of y[{i}] = {np.array2string(y[i], precision=4, threshold=6)}: the closest image of a "
            f"point is {least[i]:.3g} away",
            need="a point that T takes there, up to tol",
            do="T may not reach this y, or not be invertible; Residual(G, step) is, if step times the constant of G "
            "in the point is below 1.",
        )
    gaps = np.linalg.norm(x - chosen, axis=2) / (1 + np.linalg.norm(chosen, axis=1))
    other = (residuals <= allowed) & (gaps > np.sqrt(tol))
    if other.any():
        i = int(other.any(axis=0).argmax())
        both = chosen[i], x[int(other[:, i].argmax()), i]
        raise NotInvertibleError(
            got=f"two points that T takes to y[{i}]: " + " and ".join(np.array2string(p, precision=4) for p in both),
            need="a map that is one-to-one",
            do="The density is then a sum over all preimages; take a smaller step of the residual layer.",
        )
    return chosen, least, signs[best, rows], logs[best, rows]


def refuse_folds(signs: np.ndarray) -> None:
    if (signs == 0).any() or (signs != signs[0]).any():
        i = int((signs != signs[0]).argmax()) if (signs != 0).all() else int((signs == 0).argmax())
        raise NotInvertibleError(
            got=f"det DT of sign {int(signs[i])} at the preimage of y[{i}] and {int(signs[0])} at that of y[0]",
            need="one sign everywhere, since R^d is connected",
            do="T folds the space between these points: it is not a diffeomorphism.",
        )
