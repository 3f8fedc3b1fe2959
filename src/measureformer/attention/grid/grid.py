"""`Grid`: near-linear attention in dimension 1, 2 and 3, with a proven error for every query."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.grid.certificate import bounds
from measureformer.attention.grid.costs import Costs
from measureformer.attention.grid.plan import DEFAULT_TOL, GridPlan, covers_framed, framed, scales_of, shares, sums
from measureformer.attention.grid.planner import cheaper_plan, make_plan
from measureformer.attention.grid.sums import Points
from measureformer.errors import OptionError, PlanError, ShapeError, ToleranceError, TracedError
from measureformer.numerics.arrays import is_traced, namespace, needs_jax, on_device
from measureformer.numerics.buckets import bucket, pad_axis, pad_log_weights
from measureformer.numerics.norms import norms

LEAST = 0.2
"""Seconds of streaming below which nothing else is considered."""

TINY = float(np.finfo(np.float64).tiny)


class Grid(eqx.Module):
    """Attention on a grid of Chebyshev nodes, as a `method` of `attend`: nearly linear time in dimension 1, 2 and 3.

    Arguments:
        plan: cells for the queries and keys; without it `attend` makes a plan in each call, from concrete points.
        tol: largest error bound, as in `attend`.

    >>> import numpy as np, measureformer as mf
    >>> x = np.linspace(-2, 2, 3000)[:, None]
    >>> out = mf.attend(x, x, x, method=mf.Grid(tol=1e-8))
    >>> exact = mf.attend(x, x, x, method="streaming")
    >>> bool(out.error_bound.max() < 1e-8), bool(abs(out.values - exact.values).max() < 1e-8)
    (True, True)
    """

    plan: GridPlan | None = None
    tol: float | None = eqx.field(static=True, default=None)


def on_grid(
    plan: GridPlan, q: Array, k: Array, v: Array, log_weights: Array, fresh: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Values, bound of their error, log-normaliser, bound of its error, in float64; under a trace.

    Unless the plan is `fresh`, made for these very points, bounds are infinite where it does not cover them.
    """
    x, points, level, about = _prepared(plan, q, k, v, log_weights)
    found, level = sums(plan, level, x, points)
    return _finished(plan, q, x, points, found, level, about, fresh)


@eqx.filter_jit
def _prepared(plan: GridPlan, q: Array, k: Array, v: Array, log_weights: Array) -> Any:
    """Queries, keys and columns in the frame of the plan, levels, and δ per box with what values are relative to."""
    x, y = framed(plan, q, k)
    # the logit is ⟨q−c, k−c'⟩ + ⟨c, k−c'⟩ + ⟨q, c'⟩: the second goes into the weights, the third into log Z
    tilted = log_weights + jnp.sum((k - plan.frame.key_centre) * plan.frame.query_centre, axis=1)
    massive = log_weights > -jnp.inf
    low, high = (f(jnp.where(massive[:, None], v, g), axis=0) for f, g in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
    base = jax.lax.stop_gradient(low + (high - low) / 2)
    moved = jnp.where(massive[:, None], v - base, 0)
    columns = jnp.concatenate([jnp.ones_like(moved, shape=(len(moved), 1)), moved], axis=1)
    still = jax.lax.stop_gradient
    scales = scales_of(plan, *still((q, k, log_weights, tilted)))
    delta, levels = still(shares(plan, scales, *still((y, tilted))))
    return x, Points(y, tilted, columns), levels, (delta, levels, base)


@eqx.filter_jit
def _finished(
    plan: GridPlan, q: Array, x: Array, points: Points, found: Array, level: Array, about: Any, fresh: bool
) -> tuple[Array, Array, Array, Array]:
    delta, levels, base = about
    still, box = jax.lax.stop_gradient, plan.box_of_query
    some = found[:, 0] > 0
    total = jnp.where(some, found[:, 0], 1)
    out = found[:, 1:] / total[:, None]
    log_z = jnp.log(total) + level + jnp.sum(q * plan.frame.key_centre, axis=1)
    lost = plan.boxes.lost[box] * len(points.place) * TINY / total
    sound = some if fresh else some & covers_framed(plan, *still((x, points.place)))
    parts = jnp.abs(jnp.log(total)) + jnp.abs(level) + jnp.abs(q) @ jnp.abs(plan.frame.key_centre)
    parts += jnp.abs(x) @ jnp.max(jnp.abs(plan.boxes.a), axis=0) + jnp.max(jnp.abs(levels))
    moved = points.columns[:, 1:]
    sizes = norms(out), jnp.max(norms(moved)), norms(base)
    error, log_error = bounds(*still((jnp.where(sound, delta[box], jnp.inf), lost, log_z, parts, sizes)))
    return out + base, error, log_z, log_error


def grid_attention(settings: Grid, arrays: Any, times: Any, tol: float | None) -> list[Any]:
    """What `attend` does with `method="grid"`: plan if need be, pad, run the program, cut; refuse above tol."""
    q, k, v, log_weights = arrays
    _check(settings, q, times)
    dtype = q.dtype
    if needs_jax(arrays):
        return _traced(settings, arrays, dtype)
    if q.ndim > 2:
        return _over_heads(settings, arrays, times, tol)
    q, k, v, log_weights = (np.asarray(a, np.float64) for a in arrays)
    plan = settings.plan
    if plan is None:
        wanted = relative_tolerance(DEFAULT_TOL if tol is None else tol, v[log_weights > -np.inf])
        pair = None if times is None else (np.asarray(times[0], np.float64), np.asarray(times[1], np.float64))
        plan = make_plan(q, k, log_weights, tol=wanted, columns=1 + v.shape[1], times=pair)
    rows, columns = bucket(len(q)), bucket(len(k))
    padded = (
        pad_axis(q, rows, 0),
        pad_axis(k, columns, 0),
        pad_axis(v, columns, 0),
        pad_log_weights(log_weights, columns),
    )
    with jax.ensure_compile_time_eval():
        out = on_grid(plan, *map(on_device, padded), fresh=settings.plan is None)
    cut = [np.asarray(a)[: len(q)] for a in out]
    _refuse(cut, settings.plan is not None, tol)
    return _rounded(cut, dtype)


def grid_if_faster(arrays: Any, times: Any, tol: float) -> Grid | None:
    """What "auto" asks: the grid with a plan, if by `Costs` it beats streaming."""
    q, k, v, _ = arrays
    costs = Costs()
    # planning and compiling are not worth a moment's work
    if q.ndim > 2 or q.shape[-1] > 3 or costs.pair * len(q) * len(k) < LEAST or not _float64():
        return None
    arrays = tuple(np.asarray(a, np.float64) for a in arrays)
    pair = None if times is None else tuple(np.asarray(t, np.float64) for t in times)
    plan = cheaper_plan(arrays, pair, relative_tolerance(tol, v), costs)
    return None if plan is None else Grid(plan)


def relative_tolerance(tol: float, v: Any) -> float:
    """The tolerance of log Z with which values are within tol: those up to V from their centre are off by 2 V δ."""
    spread = float(np.linalg.norm(np.ptp(np.asarray(v), axis=0)))
    return min(tol, 0.98 * tol / max(spread, 1e-300), 0.5)


def _float64() -> bool:
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def _rounded(cut: list[Any], dtype: Any) -> list[Any]:
    """In the user's precision: rounding to it is part of the error."""
    if dtype == np.float64:
        return cut
    xp, unit = namespace(cut), float(np.finfo(dtype).eps)
    values, error, log_z, log_error = cut
    error = (error + unit * xp.linalg.norm(values, axis=1)) * (1 + unit)
    log_error = (log_error + unit * xp.abs(log_z)) * (1 + unit)
    return [a.astype(dtype) for a in (values, error, log_z, log_error)]


def _check(settings: Grid, q: Any, times: Any) -> None:
    if not 1 <= q.shape[-1] <= 3:
        raise OptionError(
            got=f'method "grid" in dimension {q.shape[-1]}',
            need="dimension 1, 2 or 3: a grid grows like a power of the dimension",
            do='Use method="streaming"; in mf.flow leave tol out.',
        )
    if not _float64():
        raise ToleranceError(
            got='method "grid" without 64-bit arithmetic',
            need="float64, in which the certificate is proven",
            do="Unset JAX_ENABLE_X64=0.",
        )
    if settings.plan is not None and not _same_times(settings.plan, times):
        raise PlanError(
            got="times that are not those of the plan",
            need="the same times when the plan is made and when it is used, or none at both",
            do="Make a plan with GridPlan.make(q, k, times=times).",
        )
    if settings.plan is not None and q.ndim > 2:
        raise ShapeError(got=f"one plan for queries of shape {q.shape}", need="(m, k)", do="Make a plan for each head.")


def _same_times(plan: GridPlan, times: Any) -> bool:
    if not plan.prefixes or times is None:
        return not plan.prefixes and times is None
    kept = (plan.prefixes[0].query_times, plan.prefixes[0].key_times)
    return is_traced(kept, times) or all(
        np.array_equal(np.asarray(own)[: len(given)], np.asarray(given)) for own, given in zip(kept, times, strict=True)
    )


def _traced(settings: Grid, arrays: Any, dtype: Any) -> list[Any]:
    if settings.plan is None:
        raise TracedError(
            got='method "grid" on traced points (inside jit, grad or vmap), without a plan',
            need="a plan, because cells are made on the host",
            do="Make plan = mf.GridPlan.make(q, k) outside and pass method=mf.Grid(plan=plan).",
        )
    q, k, v, log_weights = (jnp.asarray(a, np.float64) for a in arrays)
    m, n = len(q), len(k)
    q, k = settings.plan.filled(q, k)
    v = jnp.concatenate([v, jnp.broadcast_to(v[:1], (len(k) - n, v.shape[1]))])
    log_weights = jnp.concatenate([log_weights, jnp.full(len(k) - n, -jnp.inf)])
    out = on_grid(settings.plan, jnp.asarray(q), jnp.asarray(k), v, log_weights)
    return _rounded([a[:m] for a in out], dtype)


def _over_heads(settings: Grid, arrays: Any, times: Any, tol: float | None) -> list[Any]:
    q, k, v, log_weights = arrays
    lead = q.shape[:-2]
    each = []
    for index in np.ndindex(*lead):
        own = log_weights if log_weights.ndim == 1 else log_weights[index]
        each.append(grid_attention(settings, (q[index], k[index], v[index], own), times, tol))
    return [np.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*each, strict=True)]


def _refuse(cut: list[np.ndarray], given: bool, tol: float | None) -> None:
    worst = max(float(cut[1].max()), float(cut[3].max()))
    if given and not np.isfinite(worst):
        raise PlanError(
            got="points outside the cells of the plan",
            need="plan.covers(q, k)",
            do="Make a new plan for them, with a margin if they keep moving.",
        )
    if tol is not None and not worst <= tol:
        raise ToleranceError(
            got=f"error bounds of {float(cut[1].max()):.2g} for values and {float(cut[3].max()):.2g} for log Z",
            need=f"at most tol = {tol:g}",
            do="Allow a larger tol, or scale the values down." if not given else "Make a plan with a smaller tol.",
        )
