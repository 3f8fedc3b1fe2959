"""Σ_j e^{l_j + ⟨x,y_j⟩ − level(x)} c_j for all queries x at once, on the grid of a plan: spread, multiply, interpolate.

Its derivative is a sum of the same kind with other columns, so derivatives of every order are closed forms on the same
grid, and none differentiates an interpolant.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

POINTS = 8192
"""Points whose polynomials are in memory at once: what stays in the cache."""


class Side(eqx.Module):
    """The queries, or the keys, of a group of boxes: chunks of points of one cell of one box."""

    index: Int[Array, "chunks points"]
    """Rows; −1 fills up."""
    slot: Int[Array, " chunks"]
    """Cells of all boxes are numbered through."""
    run: Int[Array, " chunks"]
    slot_of_run: Int[Array, " runs"]
    box: Int[Array, " chunks"]
    """Among all boxes of the plan."""
    centre: Float[Array, "chunks d"]
    scale: Float[Array, "chunks d"]
    """1 / half-width of the cell."""


class Group(eqx.Module):
    """Boxes whose grids have the same number of nodes per cell. Boxes with equal cells stand together, kind by kind."""

    queries: Side
    keys: Side
    matrices: tuple[tuple[Float[Array, "_ _ _"], ...], ...]
    """For every kind the matrices of all axes, of `chebyshev.axis_matrix`."""
    cells: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Of every kind, per axis; queries and keys have the same number."""
    nodes: tuple[int, ...] = eqx.field(static=True)

    def slots(self, kind: int) -> int:
        """Cells of all boxes of one kind."""
        return len(self.matrices[kind][0]) * math.prod(self.cells[kind])


class Direct(eqx.Module):
    """Boxes in which summing over the keys one by one is cheaper."""

    queries: Int[Array, "boxes q"]
    keys: Int[Array, "boxes k"]
    reach: Float[Array, " d"]
    """Largest coordinates of keys, which the rounding of logits grows with."""


class Points(eqx.Module):
    """Everything with a row per key, or per query, side by side: one look-up fetches it all."""

    place: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    columns: Float[Array, "n r"]


def polynomials(t: Array, count: int) -> Array:
    """T_0 … T_{count−1} along a new axis before the last."""
    made = [jnp.ones_like(t), t]
    while len(made) < count:
        made.append(2 * t * made[-1] - made[-2])
    return jnp.stack(made[:count], axis=-2)


def local(side: Side, place: Array) -> Array:
    """Coordinates in their cells, (d, chunks, points), within [−1, 1] if the plan covers the points."""
    return jnp.moveaxis((place - side.centre[:, None]) * side.scale[:, None], -1, 0)


def blocks_of(side: Side) -> tuple[Any, int]:
    """The chunks in blocks that stay in the cache."""
    chunks, points = side.index.shape
    size = max(1, min(POINTS // points, chunks))
    whole = (side.index, side.slot, side.box, side.centre, side.scale)
    fill = -chunks % size

    def cut(array: Array) -> Array:
        tail = jnp.broadcast_to(array[-1:], (fill, *array.shape[1:]))
        return jnp.concatenate([array, tail]).reshape(-1, size, *array.shape[1:])

    index, *others = map(cut, whole)
    if fill:
        index = index.reshape(-1, points).at[chunks:].set(-1).reshape(index.shape)
    return (index, *others), chunks


def _factors(t: Array, nodes: tuple[int, ...]) -> tuple[Array, Array | None]:
    """Products of polynomials in two factors, (chunks, ·, points): all axes but the last, and the last."""
    each = [polynomials(t[i], p) for i, p in enumerate(nodes)]
    if len(each) == 1:
        return each[0], None
    left = each[0]
    if len(each) == 3:
        left = (each[0][:, :, None] * each[1][:, None]).reshape(len(left), -1, left.shape[-1])
    return left, each[-1]


def spread(group: Group, points: Points, boxes: Any, levels: Array) -> Array:
    """Moments of every cell of every box, (slots, nodes ···, r), of the columns with tilted weights."""
    side, dim = group.keys, points.place.shape[1]
    # columns apart: sums are linear in them, and JAX can transpose only what is linear throughout
    data = jnp.concatenate([points.place, points.log_weights[:, None]], axis=1)
    r = points.columns.shape[1]

    @jax.checkpoint
    def block(parts: Any) -> Array:
        index, _, box, centre, scale = parts
        rows = data[jnp.maximum(index, 0)]
        place = rows[..., :dim]
        exponent = rows[..., dim] + jnp.sum((place - boxes.a[box][:, None]) * boxes.b[box][:, None], axis=-1)
        weight = jnp.where(index >= 0, jnp.exp(exponent - levels[box][:, None]), 0)
        columns = jnp.swapaxes(points.columns[jnp.maximum(index, 0)] * weight[..., None], 1, 2)  # (chunks, r, points)
        t = jnp.moveaxis((place - centre[:, None]) * scale[:, None], -1, 0)
        left, last = _factors(t, group.nodes)
        right = columns if last is None else (last[:, :, None] * columns[:, None]).reshape(len(t[0]), -1, t.shape[-1])
        return jnp.einsum("cpj,cqj->cpq", left, right)

    parts, chunks = blocks_of(side)
    moments = jax.lax.map(block, parts)
    moments = moments.reshape(-1, moments.shape[-2] * moments.shape[-1])[:chunks]
    runs = jax.ops.segment_sum(moments, side.run, len(side.slot_of_run), indices_are_sorted=True)
    slots = sum(map(group.slots, range(len(group.cells))))
    summed = jax.ops.segment_sum(runs, side.slot_of_run, slots, indices_are_sorted=True)
    return summed.reshape(slots, *group.nodes, r)


def multiply(group: Group, moments: Array) -> Array:
    """From moments of the keys to coefficients of the queries, axis by axis, box by box."""
    made, first = [], 0
    for kind, (cells, matrices) in enumerate(zip(group.cells, group.matrices, strict=True)):
        last = first + group.slots(kind)
        made.append(_multiply(cells, group.nodes, matrices, moments[first:last]))
        first = last
    return made[0] if len(made) == 1 else jnp.concatenate(made)


def _multiply(cells: tuple[int, ...], nodes: tuple[int, ...], matrices: Any, moments: Array) -> Array:
    dim, r = len(nodes), moments.shape[-1]
    together = [axis for i in range(dim) for axis in (1 + i, 1 + dim + i)]
    grid = moments.reshape(-1, *cells, *nodes, r).transpose(0, *together, 1 + 2 * dim)
    grid = grid.reshape(len(grid), *(c * p for c, p in zip(cells, nodes, strict=True)), r)

    def box(parts: Any) -> Array:
        made, matrices = parts
        for axis, matrix in enumerate(matrices):
            made = jnp.moveaxis(jnp.tensordot(matrix, made, ((1,), (axis,))), 0, axis)
        return made

    if len(grid) == 1:
        grid = box((grid[0], [matrix[0] for matrix in matrices]))[None]
    else:
        grid = jax.lax.map(box, (grid, matrices))
    shape = [size for pair in zip(cells, nodes, strict=True) for size in pair]
    apart = [1 + 2 * i for i in range(dim)] + [2 + 2 * i for i in range(dim)]
    return grid.reshape(len(grid), *shape, r).transpose(0, *apart, 1 + 2 * dim).reshape(-1, *nodes, r)


def interpolate(group: Group, grid: Array, place: Array) -> Array:
    """Values (chunks · points, r) of the queries of a group, in the order of its chunks."""
    side, r = group.queries, grid.shape[-1]
    rows = grid.shape[1] if len(group.nodes) < 3 else grid.shape[1] * grid.shape[2]
    flat = grid.reshape(len(grid), rows, -1)  # the last axis holds (last nodes, r)

    @jax.checkpoint
    def block(parts: Any) -> Array:
        index, slot, _, centre, scale = parts
        points = place[jnp.maximum(index, 0)]
        t = jnp.moveaxis((points - centre[:, None]) * scale[:, None], -1, 0)
        left, last = _factors(t, group.nodes)
        found = jnp.einsum("cpq,cpj->cqj", flat[slot], left)
        if last is not None:
            found = jnp.sum(found.reshape(len(index), -1, r, index.shape[1]) * last[:, :, None], axis=1)
        return jnp.where(index[..., None] >= 0, jnp.swapaxes(found, 1, 2), 0)

    parts, chunks = blocks_of(side)
    return jax.lax.map(block, parts).reshape(-1, side.index.shape[1], r)[:chunks].reshape(-1, r)


def one_by_one(direct: Direct, points: Points, place: Array) -> tuple[Array, Array]:
    """Sums over keys and their levels, for the queries of direct boxes in their order; levels are largest logits."""

    @jax.checkpoint
    def box(parts: Any) -> tuple[Array, Array]:
        queries, keys = parts
        x, k = place[jnp.maximum(queries, 0)], jnp.maximum(keys, 0)
        weights = jnp.where(keys >= 0, points.log_weights[k], -jnp.inf)
        logits = x @ points.place[k].T + weights
        level = jax.lax.stop_gradient(jnp.max(logits, axis=1))
        level = jnp.where(level == -jnp.inf, 0, level)
        return jnp.exp(logits - level[:, None]) @ points.columns[k], level

    sums, level = jax.lax.map(box, (direct.queries, direct.keys))
    return sums.reshape(-1, sums.shape[-1]), level.reshape(-1)


def inside(side: Side, place: Array) -> Bool[Array, ""]:
    """Whether every point is in the cell that the plan has put it into."""
    t = local(side, place[jnp.maximum(side.index, 0)])
    return jnp.all(jnp.where(side.index >= 0, jnp.abs(t) <= 1, True))
