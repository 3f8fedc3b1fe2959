"""`push_density`: the density of a push-forward, by inverting the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, DtypeError, NotInvertibleError
from measureformer.maps.base import AbstractInContextMap, queries_of
from measureformer.measures import AbstractAtomic
from measureformer.measures.atomic import concrete
from measureformer.numerics.arrays import at_once, cast, common_dtype, finite, floats, on_device, shaped
from measureformer.numerics.buckets import bucket, pad_rows

TRIES = 200
"""Attempted steps of Newton's method, those that were too long included."""
STRETCHES = (1.0, 0.0, 3.0)
"""Where to start: this far from the mean of the context, as multiples of where y is."""


class PushedDensity(eqx.Module):
    """Densities of a push-forward at given points; see `push_density`."""

    log_density: Float[Array, " m"]
    """log of ρ(T⁻¹y) |det DT⁻¹(y)|."""
    preimages: Float[Array, "m d"]
    """T⁻¹y."""
    residuals: Float[Array, " m"]
    """|T(T⁻¹y) − y|."""


def push_density(T: Any, log_density: Callable[[Any], Any], mu: Any, y: Any, *, tol: float = 1e-9) -> PushedDensity:
    """The density at y of the law with density ρ after it was pushed by x ↦ T(mu, x).

    T is an in-context map of R^d to itself: a residual layer, or `traj.map(t)`. `log_density` is log ρ as a function of
    points (m, d), and y are points (m, d). T is inverted by Newton's method with shortened steps from several starts.

    Statement   (T♯ρ)(y) = ρ(T⁻¹y) |det DT⁻¹(y)| for a diffeomorphism T
    Hypotheses  checked: the inverse was found up to `tol` times the size of y, no two starts lead to different ones,
                and the determinants at them have one sign.  assumed: T is one-to-one elsewhere.
    Cost        d + 2 evaluations of T for each step, all points at once, and O(d³) for each point.
    Ref         villani2009, Chapter 1.

    >>> import numpy as np, measureformer as mf
    >>> log_rho = lambda x: -(x[:, 0] ** 2) / 2 - np.log(2 * np.pi) / 2                    # N(0, 1)
    >>> found = mf.flows.push_density(mf.Linear([[2.0]], [1.0]), log_rho, mf.Discrete.dirac([0.0]), [[3.0]])
    >>> found.preimages.tolist(), np.exp(found.log_density).round(6).tolist()             # of N(1, 4) at 3
    ([[1.0]], [0.120985])
    """
    if not isinstance(T, AbstractInContextMap):
        raise DtypeError(
            got=f"T of type {type(T).__name__}",
            need="an in-context map",
            do="Pass a layer such as mf.Residual(G), or traj.map(t) of a flow.",
        )
    concrete((T, mu, y), "push_density")
    y, _, _ = queries_of(mu, y, None)
    T.check_meets(mu, None)
    finite(y, "y")
    if T.out_dim(mu.dim) != mu.dim:
        raise DimensionMismatchError(
            got=f"a map from R^{mu.dim} to R^{T.out_dim(mu.dim)}",
            need="a map of a space to itself",
            do="Densities have a formula only where no dimension is lost or gained.",
        )
    count, context = len(y), mu.padded() if isinstance(mu, AbstractAtomic) else mu
    dtype = common_dtype(T, mu, y)
    center = np.asarray(mu.mean())
    starts = np.stack([pad_rows(center + c * (np.asarray(y) - center), bucket(count)) for c in STRETCHES])
    program = cast((T, context, pad_rows(y, bucket(count)), starts), dtype)
    found = (np.asarray(part)[:, :count] for part in at_once(_inverted, *program))
    x, residuals, signs, logs = _chosen(np.asarray(y), *found, max(tol, 1e3 * float(np.finfo(dtype).eps)))
    _refuse_folds(np.asarray(y), signs)
    values = np.asarray(shaped(floats(log_density(on_device(x)), "log_density(x)"), "log_density(x)", "m"), dtype)
    return PushedDensity(*map(on_device, (values - logs, x, residuals)))


@eqx.filter_jit
def _inverted(T: AbstractInContextMap, mu: Any, y: Array, starts: Array) -> tuple[Array, ...]:
    """For each start: preimages, residuals, signs and logarithms of the determinants of DT there."""

    def value(x: Array) -> Array:
        return T.evaluate(mu, x, None)

    def jacobians(x: Array) -> Array:
        def along(e: Array) -> Array:
            return jax.jvp(value, (x,), (jnp.broadcast_to(e, x.shape),))[1]

        return jnp.moveaxis(jax.lax.map(along, jnp.eye(x.shape[1], dtype=x.dtype)), 0, -1)

    def size(gap: Array) -> Array:
        return jnp.sqrt(jnp.sum(gap * gap, axis=1))

    def attempt(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, gap, step, length, count = state
        tried = x - length[:, None] * step
        tried_gap = value(tried) - y
        better = size(tried_gap) < size(gap)
        x, gap = (jnp.where(better[:, None], new, old) for new, old in ((tried, x), (tried_gap, gap)))
        # where a step was too long, the same one is tried again, shorter
        length = jnp.where(better, jnp.minimum(1, 2 * length), length / 4)
        return x, gap, jnp.linalg.solve(jacobians(x), gap[:, :, None])[:, :, 0], length, count + 1

    def going(state: tuple[Array, ...]) -> Array:
        x, gap, step, length, count = state
        tiny = 4 * jnp.finfo(x.dtype).eps
        far = length * size(step) > tiny * (size(x) + size(y))
        return jnp.any((size(gap) > 0) & far & (length > 1e-12)) & (count < TRIES)

    def from_start(x: Array) -> tuple[Array, ...]:
        gap = value(x) - y
        step = jnp.linalg.solve(jacobians(x), gap[:, :, None])[:, :, 0]
        state = x, gap, step, jnp.ones(len(x), x.dtype), jnp.zeros((), int)
        x, gap, *_ = jax.lax.while_loop(going, attempt, state)
        return x, size(gap), *jnp.linalg.slogdet(jacobians(x))

    return jax.lax.map(from_start, starts)


def _chosen(
    y: np.ndarray, x: np.ndarray, residuals: np.ndarray, signs: np.ndarray, logs: np.ndarray, tol: float
) -> tuple[np.ndarray, ...]:
    """For each point the preimage with the least residual; refused if there is none, or if there are two."""
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


def _refuse_folds(y: np.ndarray, signs: np.ndarray) -> None:
    if (signs == 0).any() or (signs != signs[0]).any():
        i = int((signs != signs[0]).argmax()) if (signs != 0).all() else int((signs == 0).argmax())
        raise NotInvertibleError(
            got=f"det DT of sign {int(signs[i])} at the preimage of y[{i}] and {int(signs[0])} at that of y[0]",
            need="one sign everywhere, since R^d is connected",
            do="T folds the space between these points: it is not a diffeomorphism.",
        )
