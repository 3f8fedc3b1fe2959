"""`GridPlan`: where the cells are and which point is in which; made once on the host, used for many sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from measureformer.attention.grid.causal import Prefix, on_prefix
from measureformer.attention.grid.certificate import Scales, argument, log_dropped
from measureformer.attention.grid.costs import Costs
from measureformer.attention.grid.sums import Direct, Group, Points, inside, interpolate, multiply, one_by_one, spread
from measureformer.numerics.arrays import floats, host, namespace
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Extended

DEFAULT_TOL = 1e-9


class Frame(eqx.Module):
    """Coordinates in which the boxes are: x = S (q − query_centre), y = inverse (k − key_centre), inverse = S^{-T}."""

    query_centre: Float[Array, " d"]
    key_centre: Float[Array, " d"]
    turn: Float[Array, "d d"]
    inverse: Float[Array, "d d"]
    residual: Float[Array, ""]
    """Bound of |⟨Sq, inverse k⟩ − ⟨q, k⟩| over all centred queries and keys."""


class Boxes(eqx.Module):
    """All boxes of queries, each with the keys that were kept for it."""

    b: Float[Array, "boxes d"]
    """Centre of the queries, by which weights are tilted; 0 for direct boxes."""
    a: Float[Array, "boxes d"]
    """Centre of the keys; 0 for direct boxes."""
    middle: Float[Array, "boxes d"]
    """Centre and half-widths of the queries, for what was left out."""
    r: Float[Array, "boxes d"]
    tilt: Float[Array, "boxes d"]
    reach: Float[Array, "boxes d"]
    """Largest |x_i| that is multiplied with keys before an exponential, and largest |y_i − a_i|."""
    interpolation: Float[Array, " boxes"]
    rounding: Float[Array, " boxes"]
    sigma: Float[Array, " boxes"]
    lost: Float[Array, " boxes"]
    """What a sum can lose by underflow, over the smallest normal number and the number of keys."""


class Cells(eqx.Module):
    """Cells of keys that are kept or left out as a whole."""

    of_key: Int[Array, " n"]
    low: Float[Array, "cells d"]
    high: Float[Array, "cells d"]
    kept: Bool[Array, "boxes cells"]


class Moments(NamedTuple):
    """Of the keys in each cell: logarithm of the mass, mean; and the ends of the cell."""

    log_mass: Any
    mean: Any
    low: Any
    high: Any


class GridPlan(eqx.Module):
    """Cells and boxes for given queries and keys: made by `GridPlan.make` outside of `jit`, used inside it.

    It serves any values and log-weights, and points that have moved as long as `covers(q, k)`.

    >>> import numpy as np, measureformer as mf
    >>> x = np.linspace(-1, 1, 500)[:, None]
    >>> plan = mf.GridPlan.make(x, x, tol=1e-8, margin=0.1)
    >>> out = mf.attend(x, x, x, method=mf.Grid(plan=plan))
    >>> bool(out.error_bound.max() < 1e-8), bool(plan.covers(x, x)), bool(plan.covers(x, 2 * x))
    (True, True, False)
    """

    frame: Frame
    boxes: Boxes
    groups: tuple[Group, ...]
    direct: Direct | None
    cells: Cells | None
    place: Int[Array, " m"]
    """Where in the output of all groups, one after the other, a query's answer is."""
    box_of_query: Int[Array, " m"]
    prefixes: tuple[Prefix, ...] = ()
    """For causal sums, instead of groups of boxes: running sums, which are added up."""

    @staticmethod
    @checked
    def make(
        q: ArrayLike,
        k: ArrayLike,
        log_weights: Extended | None = None,
        *,
        tol: float = DEFAULT_TOL,
        margin: float = 0.0,
        columns: int = 3,
        costs: Costs | None = None,
        times: tuple[Extended, Extended] | None = None,
        window: float | None = None,
    ) -> GridPlan:
        """A plan for concrete queries and keys in dimension 1, 2 or 3.

        Arguments:
            q: queries, (m, d).
            k: keys, (n, d).
            log_weights: logarithms of the weights of the keys, (n,); all 0 by default, −inf hides a key.
            tol: bound for the error of log Z, and for that of values of norm at most 1/2; between 0 and 1.
            margin: fraction of their width by which cells are larger than needed, for points that move; in [0, 1].
            columns: columns of the values plus one, for which the costs are estimated.
            costs: seconds per unit of work, by which the planner chooses; fixed constants by default.
            times: times of the queries (m,) and of the keys (n,), for a causal mask; dimension 1 and 2 only.
            window: length of the past that a query sees; all of it by default.
        """
        from measureformer.attention.grid.planner import make_plan

        return make_plan(
            q, k, log_weights, tol=tol, margin=margin, columns=columns, costs=costs, times=times, window=window
        )

    def covers(self, q: ArrayLike, k: ArrayLike) -> Bool[Array, ""]:
        """Whether every point is still in its cell, so that the certificates hold; works under a trace.

        Arguments:
            q: as many queries as in the plan, (m, d).
            k: as many keys as in the plan, (n, d).
        """
        return _covers(self, *self.filled(floats(q, "q"), floats(k, "k")))

    def filled(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Queries and keys with copies of their first rows, up to the sizes that the plan's programs take.

        Arguments:
            q: queries, (m, d).
            k: keys, (n, d).
        """
        xp = namespace(q, k)
        sizes = len(self.place), bucket(len(k))
        return tuple(
            xp.concatenate([a, xp.broadcast_to(a[:1], (size - len(a), a.shape[1]))])
            for a, size in zip((host(q), host(k)), sizes, strict=True)
        )


@eqx.filter_jit
def _covers(plan: GridPlan, q: Any, k: Any) -> Bool[Array, ""]:
    x, y = framed(plan, q, k)
    return covers_framed(plan, x, y)


def covers_framed(plan: GridPlan, x: Array, y: Array) -> Bool[Array, ""]:
    found = jnp.array(True)
    for group in plan.groups:
        found &= inside(group.queries, x) & inside(group.keys, y)
    # the tilt and the bound for what was left out hold for queries in their boxes and keys in their cells
    boxes = plan.boxes
    offset = jnp.abs(x - boxes.middle[plan.box_of_query]) <= boxes.r[plan.box_of_query]
    found &= jnp.all(offset)
    summed = [(part.keys, part.key_half) for part in plan.prefixes]
    summed += [] if plan.direct is None else [(plan.direct.keys, plan.direct.reach)]
    for part, reach in summed:
        found &= jnp.all((jnp.abs(y[jnp.maximum(part, 0)]) <= reach) | (part < 0)[..., None])
    if plan.cells is not None:
        own = plan.cells.of_key
        within = (plan.cells.low[own] <= y) & (y <= plan.cells.high[own])
        found &= jnp.all(within | (own == len(plan.cells.low))[:, None])
    return found


def framed(plan: GridPlan, q: Array, k: Array) -> tuple[Array, Array]:
    """Queries and keys in the coordinates of the plan."""
    frame = plan.frame
    # einsum of tiny matrices: every product rounds once, as the certificate assumes
    x = jnp.einsum("ij,nj->ni", frame.turn, q - frame.query_centre)
    return x, jnp.einsum("ij,nj->ni", frame.inverse, k - frame.key_centre)


def scales_of(plan: GridPlan, q: Array, k: Array, log_weights: Array, tilted: Array) -> Scales:
    frame = plan.frame
    massive = log_weights > -jnp.inf
    of_q = jnp.max(jnp.abs(q - frame.query_centre), axis=0)
    of_k = jnp.max(jnp.where(massive[:, None], jnp.abs(k - frame.key_centre), 0), axis=0)
    turn, inverse = jnp.abs(frame.turn), jnp.abs(frame.inverse)
    x, y = turn @ of_q, inverse @ of_k
    sizes = [x, y, of_q, of_k, jnp.abs(frame.query_centre), jnp.abs(frame.key_centre), turn.T @ y, inverse.T @ x]
    flushed = sum(map(jnp.sum, sizes)) + jnp.sum(of_q) * jnp.sum(y) + jnp.sum(of_k) * jnp.sum(x) + 16 * len(x)
    return Scales(
        jnp.max(jnp.where(massive, jnp.abs(log_weights), 0)),
        jnp.sum(jnp.abs(frame.query_centre) * of_k),
        jnp.max(jnp.where(massive, jnp.abs(tilted), 0)),
        jnp.sum(x * y),
        4 * float(jnp.finfo(q.dtype).tiny) * flushed,
    )


def moments_of(cells: Cells, place: Array, log_weights: Array) -> Moments:
    """Mass and mean of the keys in every cell."""
    count = len(cells.low)
    # relative to the heaviest of each cell: what is light here may be heavy after a tilt
    top = jax.ops.segment_max(log_weights, cells.of_key, count)
    top = jnp.where(top == -jnp.inf, 0, top)
    weights = jnp.exp(log_weights - top[jnp.minimum(cells.of_key, count - 1)])
    columns = jnp.concatenate([weights[:, None], weights[:, None] * place], axis=1)
    sums = jax.ops.segment_sum(columns, cells.of_key, count)
    some = sums[:, 0] > 0
    mass = jnp.where(some, sums[:, 0], 1)
    return Moments(jnp.where(some, jnp.log(mass) + top, -jnp.inf), sums[:, 1:] / mass[:, None], cells.low, cells.high)


def shares(plan: GridPlan, scales: Scales, place: Array, log_weights: Array) -> tuple[Array, Array]:
    """δ of Theorem 2 per box, underflow apart, and the level of every box: a bound of its tilted log-weights."""
    boxes = plan.boxes
    relative = argument(jnp, scales, boxes.tilt, boxes.reach, boxes.sigma, plan.frame.residual)
    delta = boxes.interpolation + jnp.expm1(relative) * (1 + boxes.interpolation)
    delta = delta + boxes.rounding * (1 + delta)
    if plan.cells is None:
        level = jnp.max(log_weights[None, :] + boxes.b @ place.T - jnp.sum(boxes.b * boxes.a, 1)[:, None], axis=1)
        return delta, level
    moments = moments_of(plan.cells, place, log_weights)
    ends = jnp.zeros_like(plan.cells.kept, dtype=place.dtype)
    for i in range(place.shape[1]):
        one, other = (
            boxes.b[:, i, None] * (end[None, :, i] - boxes.a[:, i, None]) for end in (moments.low, moments.high)
        )
        ends = ends + jnp.maximum(one, other)
    level = jnp.max(jnp.where(plan.cells.kept, moments.log_mass[None, :] + ends, -jnp.inf), axis=1)
    dropped = jnp.exp(log_dropped(moments, boxes.middle, boxes.r, plan.cells.kept, len(place)))
    return delta + dropped, jnp.where(level == -jnp.inf, 0, level)


@jax.custom_jvp
def sums(plan: GridPlan, levels: Array, x: Array, points: Points) -> tuple[Array, Array]:
    """Σ_j e^{l_j + ⟨x,y_j⟩ − level} columns_j and the level, per query. The level counts as a constant.

    Outside of a jit every group runs as a program of its own, so that a new plan compiles only shapes not met before.
    """
    if plan.prefixes:
        found = sum(_on_prefix(part, levels[0], x, points) for part in plan.prefixes)
        return _collected(plan.boxes, plan.place, plan.box_of_query, levels, x, [found], None)
    outs = [_on_group(group, plan.boxes, levels, x, points) for group in plan.groups]
    direct = None if plan.direct is None else _one_by_one(plan.direct, points, x)
    return _collected(plan.boxes, plan.place, plan.box_of_query, levels, x, outs, direct)


@jax.jit
def _on_group(group: Group, boxes: Boxes, levels: Array, x: Array, points: Points) -> Array:
    return interpolate(group, multiply(group, spread(group, points, boxes, levels)), x)


_on_prefix = jax.jit(on_prefix)
_one_by_one = jax.jit(one_by_one)


@jax.jit
def _collected(
    boxes: Boxes, place: Array, box: Array, levels: Array, x: Array, outs: list[Array], direct: Any
) -> tuple[Array, Array]:
    """Sums in the order of the queries, and their levels; direct boxes come last, with levels of their own."""
    level = levels[box] + jnp.sum(x * boxes.a[box], axis=1)
    if direct is not None:
        first = sum(len(out) for out in outs)
        own = direct[1][jnp.maximum(place - first, 0)]
        level = jnp.where(place >= first, own, level)
        outs = [*outs, direct[0]]
    return (outs[0] if len(outs) == 1 else jnp.concatenate(outs))[place], level


@sums.defjvp
def _sums_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """d Σ e^{l + ⟨x,y⟩} c = ⟨dx, Σ e^{…} c y⟩ + ⟨x, Σ e^{…} c dy⟩ + Σ e^{…} (c dl + dc): sums of the same kind."""
    plan, levels, x, points = primals
    _, _, dx, dpoints = tangents
    columns, r = points.columns, points.columns.shape[1]
    out, level = sums(plan, levels, x, points)

    def times_places(columns: Array, place: Array) -> Array:
        return (columns[:, None, :] * place[:, :, None]).reshape(len(columns), -1)

    def swap(columns: Array) -> Points:
        return Points(points.place, points.log_weights, columns)

    tangent = jnp.zeros_like(out)
    if not _zero(dx):
        moved = sums(plan, levels, x, swap(times_places(columns, points.place)))[0]
        tangent += jnp.einsum("md,mdr->mr", dx, moved.reshape(len(x), -1, r))
    linear = []
    if not _zero(dpoints.place):
        linear.append(times_places(columns, dpoints.place))
    rest = jnp.zeros_like(columns)
    if not _zero(dpoints.columns):
        rest += dpoints.columns
    if not _zero(dpoints.log_weights):
        rest += columns * dpoints.log_weights[:, None]
    linear.append(rest)
    moved = sums(plan, levels, x, swap(jnp.concatenate(linear, axis=1)))[0]
    if len(linear) == 2:
        tangent += jnp.einsum("md,mdr->mr", x, moved[:, :-r].reshape(len(x), -1, r))
    return (out, level), (tangent + moved[:, -r:], jnp.zeros_like(level))


def _zero(tangent: Any) -> bool:
    return tangent is None or tangent.dtype == jax.dtypes.float0
