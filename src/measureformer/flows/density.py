"""`Density`: cells of a box that exchange mass along a flow, to check flows of atoms without following atoms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import BoxError, NotFiniteError, OptionError, ShapeError, StepLimitError
from measureformer.flows.flow_map import FlowMap
from measureformer.flows.trajectory import AbstractTrajectory, no_map
from measureformer.flows.velocity import Depthwise, alike
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rescaled import Rescaled
from measureformer.maps.tangent import Tangent
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.numerics.arrays import (
    at_once,
    cast,
    common_dtype,
    default_float,
    finite,
    floats,
    on_device,
    positive_int,
    shaped,
)
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

COURANT = 0.4
"""Share of a cell that mass may cross in a step, summed over the axes. Up to 1/2, masses stay nonnegative."""
DRAIN = 0.9
"""Largest share of its mass that a cell gives in a stage. Stages that respect `COURANT` give at most 0.8."""
LIMIT = 100_000
MOST_CELLS = 1 << 22


class Density(eqx.Module):
    """A density on a grid of cells in a box of R or R², which `mf.flow` moves by finite volumes.

    The velocity reads each cell as an atom at its centre. Mass outside the box at the start is ignored; mass that
    reaches the border leaves and is counted in `lost`.

    Arguments:
        density: a function of points (n, d) with values (n,), or the array of cell masses.
        box: a pair (low, high) for each axis, (d, 2).
        cells: number of cells along each axis, or one number for all axes; by default that of the masses, or 128.
        leak: largest share of the mass that may leave the box; beyond it the flow raises `BoxError`.

    Statement   masses stay ≥ 0, and masses and lost mass add up to the initial mass, up to rounding; the error of the
                flow is O(h²) in L¹ for smooth densities and velocities
    Method      finite volumes: limited linear reconstruction (monotonised central), upwind fluxes, Heun's method in
                steps that cross at most 0.4 cells.
    Cost        for each of two stages of a step, one velocity at all faces of cells. A new number of cells compiles.
    Ref         leveque2002, Chapters 6 and 20.

    >>> import numpy as np, measureformer as mf
    >>> bump = lambda x: np.exp(-(x[:, 0] ** 2) / 2) / np.sqrt(2 * np.pi)
    >>> found = mf.flow(mf.Linear([[-1.0]]), mf.flows.Density(bump, [(-8, 8)]), [0.0, 1.0])
    >>> variance = float(found.measures[-1].covariance()[0, 0])             # e^{-2} = 0.1353…, up to O(h²)
    >>> 0.135 < variance < 0.140, bool(found.lost[-1] < 1e-12)
    (True, True)
    """

    masses: np.ndarray
    """Mass of each cell."""
    box: np.ndarray
    leak: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        density: Callable[[np.ndarray], ArrayLike] | ArrayLike,
        box: ArrayLike,
        *,
        cells: int | Sequence[int] | None = None,
        leak: float = 1e-6,
    ) -> None:
        if not 0 <= leak < 1:
            raise OptionError(
                got=f"leak = {leak!r}", need="a share of the mass, 0 ≤ leak < 1", do="Leave it out for 1e-6."
            )
        concrete((box, None if callable(density) else density), "Density")
        self.box, self.leak = _checked_box(box), leak
        if cells is None:
            cells = 128 if callable(density) or np.ndim(density) != len(self.box) else np.shape(density)
        self.masses = _cell_masses(density, _grid(self.box, cells))


class DensityTrajectory(AbstractTrajectory):
    """Cells that exchange mass: their masses, and what has left the box."""

    velocity: Depthwise
    initial: Density
    _times: Float[Array, " k"]
    masses: Float[Array, "k ..."]
    """Mass of each cell at these times."""
    lost: Float[Array, " k"]
    """Mass that has left the box by then: `masses` and `lost` add up to the initial mass."""
    steps: int

    @property
    def centers(self) -> Float[Array, "n d"]:
        """Centres of the cells, the last axis fastest: in the order of `masses[i].ravel()`."""
        return on_device(_grid(self.initial.box, self.masses.shape[1:]).centers)

    @property
    def densities(self) -> Float[Array, "k ..."]:
        """Mean density in each cell."""
        sizes = np.diff(self.initial.box)[:, 0] / self.masses.shape[1:]
        return on_device(np.asarray(self.masses) / sizes.prod())

    @property
    def times(self) -> Float[Array, " k"]:
        return self._times

    @property
    def measures(self) -> tuple[Discrete, ...]:
        """An atom at the centre of each cell, at these times."""
        return tuple(Discrete.weighted(self.centers, m.ravel()) for m in np.asarray(self.masses))

    def map(self, t: ArrayLike) -> FlowMap:
        raise no_map("Density")

    def _between(self, t: float) -> Discrete:
        return move_density(self.velocity, self.initial, np.array([float(self.times[0]), t])).measures[1]


def move_density(layers: Depthwise, start: Density, times: np.ndarray) -> DensityTrajectory:
    """The trajectory of the masses of the cells."""
    velocity, masses = layers.maps[0], start.masses
    if len(layers.maps) > 1 or isinstance(velocity, (Rescaled, Tangent)):
        raise OptionError(
            got=f"{len(layers.maps)} layers" if len(layers.maps) > 1 else f"{velocity} for a density",
            need="one velocity, the same at all times, of a whole space",
            do="Follow one flow by another, or take atoms.",
        )
    grid = _grid(start.box, masses.shape)
    _check(velocity, Discrete.weighted(grid.centers, masses.ravel()))
    dtype, given = default_float(), common_dtype(velocity)
    padded = np.concatenate([times[1:], np.full(bucket(len(times)) - len(times), times[-1])])
    program = cast((velocity, grid, masses, times[0], padded), dtype)
    reached, later, lost, count = map(np.asarray, at_once(_solved, *program))
    kept = len(times) - 1
    masses = np.concatenate([masses[None], later[:kept]])
    lost = np.concatenate([np.zeros(1), lost[:kept]])
    _refuse_failure(grid, times, reached[:kept], masses, int(count))
    _refuse_leak(grid, times, masses, lost, start.leak)
    return DensityTrajectory(layers, start, *map(on_device, cast((times, masses, lost), given)), steps=int(count))


class _Grid(eqx.Module):
    """Cells of a box, and the places where velocities are needed."""

    box: Any
    widths: Any
    centers: Any
    faces: tuple[Any, ...]
    """Centres of the faces across each axis, with one more along it than there are cells."""
    cells: tuple[int, ...] = eqx.field(static=True)


def _grid(box: np.ndarray, cells: int | Sequence[int]) -> _Grid:
    d = len(box)
    given = tuple(cells) if isinstance(cells, Sequence) else (cells,) * d
    counts = tuple(positive_int(count, "cells") for count in given)
    if len(counts) != d or min(counts) < 4 or math.prod(counts) > MOST_CELLS:
        raise OptionError(
            got=f"cells = {cells!r} in a box of dimension {d}",
            need=f"at least 4 along each of {d} axes, and at most {MOST_CELLS} in all",
            do="Pass one number, or one for each axis.",
        )
    widths = (box[:, 1] - box[:, 0]) / counts
    middles = [low + width * (np.arange(n) + 0.5) for (low, _), width, n in zip(box, widths, counts, strict=True)]
    edges = [low + width * np.arange(n + 1) for (low, _), width, n in zip(box, widths, counts, strict=True)]
    faces = (_lattice([*middles[:a], edges[a], *middles[a + 1 :]]) for a in range(d))
    return _Grid(box, widths, _lattice(middles), tuple(faces), counts)


def _lattice(axes: list[np.ndarray]) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _checked_box(box: ArrayLike) -> np.ndarray:
    box = np.asarray(shaped(floats(box, "box"), "box", "d 2"), np.float64)
    finite(box, "box")
    if box.shape[1] != 2 or len(box) not in (1, 2) or (box[:, 0] >= box[:, 1]).any():
        raise ShapeError(
            got=f"box = {box.tolist()}",
            need="a pair (low, high) with low < high for each of one or two axes",
            do="Pass box = [(-5, 5)] on the line, [(-5, 5), (-5, 5)] in the plane; in more dimensions use mf.flow.",
        )
    return box


def _cell_masses(density: Callable[[np.ndarray], ArrayLike] | ArrayLike, grid: _Grid) -> np.ndarray:
    """Masses of cells: as given, or the integrals of a function by Gauss's formula with three points along an axis."""
    if not callable(density):
        masses = np.asarray(floats(density, "density"), np.float64)
        if masses.shape != grid.cells:
            raise ShapeError(
                got=f"cell masses of shape {masses.shape}",
                need=f"one number for each cell, {grid.cells}",
                do="Pass `cells` to match, or the density as a function of points (n, d).",
            )
        return masses
    nodes, weights = np.polynomial.legendre.leggauss(3)
    offsets = _lattice([nodes] * len(grid.cells)) * grid.widths / 2
    shares = _lattice([weights / 2] * len(grid.cells)).prod(axis=1)
    points = (grid.centers[:, None] + offsets).reshape(-1, len(grid.cells))
    values = np.asarray(shaped(floats(density(points), "density(x)"), "density(x)", "n"), np.float64)
    if len(values) != len(points):
        raise ShapeError(
            got=f"{len(values)} values of the density at {len(points)} points",
            need="one number for each point",
            do="The density takes an (n, d) array of points and returns (n,) values.",
        )
    finite(values, "density(x)")
    return (values.reshape(-1, len(shares)) @ shares * grid.widths.prod()).reshape(grid.cells)


def _check(velocity: AbstractInContextMap, mu: Discrete) -> None:
    concrete(velocity, "the flow of a density")
    velocity.check_meets(mu, None)
    velocity.check_stays(mu)


class _State(NamedTuple):
    t: Array
    dt: Array
    masses: Array
    before: Array
    """What the masses were before the stage."""
    lost: Array
    steps: Array
    second: Array
    """Whether the stage that comes next is the second one of a step."""


@eqx.filter_jit
def _solved(G: AbstractInContextMap, grid: _Grid, masses: Array, start: Any, times: Array) -> tuple[Array, ...]:
    """Times reached, masses and lost mass at the times after the start, and the number of steps."""

    def stage(end: Array, state: _State) -> _State:
        # both stages of Heun's method share this code, so that the velocity is compiled only once
        speeds = _speeds(G, grid, state.masses)
        fastest = sum(jnp.max(jnp.abs(v)) for v in speeds)
        dt = jnp.where(state.second, state.dt, jnp.minimum(COURANT / fastest, end - state.t))
        moved, left = moved_masses(state.masses, speeds, dt)
        # without rounding of t: the last step ends at the end
        t = jnp.where(dt < end - state.t, state.t + dt, jnp.where(jnp.isfinite(dt), end, jnp.nan))
        return _State(
            t=jnp.where(state.second, t, state.t),
            dt=dt,
            masses=jnp.where(state.second, (state.before + moved) / 2, moved),
            before=state.masses,
            lost=state.lost + left / 2,
            steps=state.steps + state.second,
            second=~state.second,
        )

    def until(state: _State, end: Array) -> tuple[Any, Any]:
        def going(state: _State) -> Array:
            return state.second | ((state.t < end) & (state.steps < LIMIT))

        state = jax.lax.while_loop(going, lambda state: stage(end, state), state)
        return state, (state.t, state.masses, state.lost)

    zero, no = jnp.zeros((), masses.dtype), jnp.zeros((), bool)
    state = _State(jnp.asarray(start, masses.dtype), zero, masses, masses, zero, jnp.zeros((), int), no)
    state, found = jax.lax.scan(until, state, times)
    return *found, state.steps


def _speeds(G: AbstractInContextMap, grid: _Grid, masses: Array) -> list[Array]:
    """Across each axis, how many cells per unit of time are crossed at the faces."""
    flat = masses.ravel()
    mu = Discrete(grid.centers, jnp.where(flat > 0, jnp.log(jnp.where(flat > 0, flat, 1)), -jnp.inf))
    everywhere = jnp.concatenate(grid.faces)
    velocity = alike(G.evaluate(mu, everywhere, None), everywhere)
    ends = np.cumsum([len(places) for places in grid.faces])
    parts = jnp.split(velocity, ends[:-1])
    return [v[:, a].reshape(_faces(grid.cells, a)) / grid.widths[a] for a, v in enumerate(parts)]


def _faces(cells: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(n + (a == axis) for a, n in enumerate(cells))


def moved_masses(masses: Array, speeds: list[Array], dt: Array) -> tuple[Array, Array]:
    """Masses after a step of Euler's method, and what has left the box in it."""
    fluxes = [_fluxes(masses, dt * v, axis) for axis, v in enumerate(speeds)]
    given = sum(_upper(jnp.maximum(f, 0), a) + _lower(jnp.maximum(-f, 0), a) for a, f in enumerate(fluxes))
    share = jnp.where(given > DRAIN * masses, DRAIN * masses / jnp.where(given > 0, given, 1), 1)
    lost = jnp.zeros((), masses.dtype)
    for axis, f in enumerate(fluxes):
        # a flux is cut by the cell that gives
        f = jnp.where(f > 0, _beside(share, axis, 1, 0), _beside(share, axis, 0, 1)) * f
        masses = masses - jnp.diff(f, axis=axis)
        first, last = (jnp.take(f, i, axis) for i in (0, -1))
        lost = lost + jnp.sum(last) - jnp.sum(first)
    return masses, lost


def _fluxes(masses: Array, crossed: Array, axis: int) -> Array:
    """Mass through the faces across an axis: from the side that the velocity comes from, nothing from outside.

    With slopes |s| ≤ 2 · mass the two faces of a cell have values ≥ 0 that add up to twice its mass.
    """
    below, above = _beside(masses, axis, 1, 0), _beside(masses, axis, 0, 1)
    rises = above - below
    before, after = _lower(rises, axis), _upper(rises, axis)
    least = jnp.minimum(2 * jnp.minimum(jnp.abs(before), jnp.abs(after)), jnp.abs(before + after) / 2)
    slope = jnp.where(before * after > 0, jnp.sign(before) * least, 0)
    from_below, from_above = _beside(masses + slope / 2, axis, 1, 0), _beside(masses - slope / 2, axis, 0, 1)
    return jnp.maximum(crossed, 0) * from_below + jnp.minimum(crossed, 0) * from_above


def _beside(values: Array, axis: int, before: int, after: int) -> Array:
    """Values of the cells at the faces, with zeros for cells outside the box."""
    widths = [(before, after) if a == axis else (0, 0) for a in range(values.ndim)]
    return jnp.pad(values, widths)


def _lower(values: Array, axis: int) -> Array:
    """Of values at faces, those at the lower face of each cell."""
    return jax.lax.slice_in_dim(values, 0, values.shape[axis] - 1, axis=axis)


def _upper(values: Array, axis: int) -> Array:
    return jax.lax.slice_in_dim(values, 1, values.shape[axis], axis=axis)


def _refuse_failure(grid: _Grid, times: np.ndarray, reached: np.ndarray, masses: np.ndarray, count: int) -> None:
    if not np.isfinite(masses).all():
        bad = int(np.isfinite(masses).reshape(len(times), -1).all(axis=1).argmin())
        raise NotFiniteError(
            got=f"masses that stop being finite between t = {times[bad - 1]:g} and {times[bad]:g}",
            need="finite velocities at all faces of the grid",
            do="Ask for earlier times, take a smaller box, or rescale the velocity.",
        )
    if (short := reached < times[1:]).any():
        i = int(short.argmax())
        raise StepLimitError(
            got=f"{count} steps on the grid, which lead to t = {reached[i]:.6g} only",
            need="fewer steps",
            do="Take fewer cells or earlier times; a step crosses at most 0.4 cells where the velocity is largest.",
            last=(float(reached[i]), Discrete.weighted(grid.centers, masses[i + 1].ravel())),
        )


def _refuse_leak(grid: _Grid, times: np.ndarray, masses: np.ndarray, lost: np.ndarray, leak: float) -> None:
    total = masses[0].sum()
    if lost[-1] <= leak * total:
        return
    inside = int((lost > leak * total).argmax()) - 1
    raise BoxError(
        got=f"a share {lost[-1] / total:.3g} of the mass outside the box {grid.box.tolist()} at t = {times[-1]:g}",
        need=f"at most the share leak = {leak:g} of it",
        do="Take a larger box, or earlier times; with a larger `leak` what is left goes on alone.",
        last=(float(times[inside]), Discrete.weighted(grid.centers, masses[inside].ravel())),
    )
