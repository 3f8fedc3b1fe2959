"""`Trajectory`: atoms that move along a flow, at the requested times and in between."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError, SpreadError, TimeError
from measureformer.flows.flow_map import FlowMap, particles, refuse_failure
from measureformer.flows.integrate import Solved
from measureformer.flows.log_density import with_log_density
from measureformer.flows.run import row, travel
from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings
from measureformer.flows.trajectory import AbstractTrajectory
from measureformer.flows.velocity import Depthwise
from measureformer.maps.queries import queries_of
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import (
    at_once,
    cast,
    common_dtype,
    floats,
    host,
    is_elsewhere,
    is_spread,
    is_traced,
    on_device,
    positive_int,
    shaped,
)
from measureformer.numerics.buckets import bucket, pad_axis, pad_rows
from measureformer.numerics.random import normal
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.parallel.workers import exchanging


class Trajectory(AbstractTrajectory):
    """Atoms that move: `points` at `times`, and densities along their paths by `log_density`."""

    velocity: Depthwise | None
    """None if the trajectory was loaded without it."""
    initial: AbstractAtomic
    points: Float[Array, "k n d"]
    """Positions of the atoms at the times."""
    schedule: Schedule
    settings: Settings
    error_bound: float | None = None
    """On a grid: the largest proven error of attention, in any velocity. None where it was streamed."""

    @property
    def times(self) -> Float[np.ndarray, " k"]:
        return self.schedule.moments

    @property
    def measures(self) -> tuple[AbstractAtomic, ...]:
        points = host(self.points)
        take = row if is_spread(points) else operator.getitem
        return tuple(self.initial.with_points(on_device(take(points, i))) for i in range(len(points)))

    def map(self, t: ArrayLike) -> FlowMap:
        """The flow from the first time to t, as an in-context map: any measure, any point. Its attention is streamed.

        Arguments:
            t: with adaptive steps any time of the trajectory's interval; with equal steps one of `times`.
        """
        return FlowMap(self._moved_by(), self.schedule.until(self._moment(t)), self._streaming())

    def _between(self, t: float) -> AbstractAtomic:
        if self.settings.tol is None:
            return self.map(t).push(self.initial)
        parts = self._moved_by(), self.initial, self.schedule.until(t), self.settings
        return self.initial.with_points(on_device(np.asarray(at_once(travel, *parts, None)[0][-1])))

    def log_density(
        self,
        log_density: Callable[[Array], ArrayLike],
        x: ArrayLike | None = None,
        *,
        key: Key | None = None,
        probes: int = 16,
    ) -> tuple[Float[Array, "k m d"], Float[Array, "k m"]]:
        """Passive points that start at x, at each of the times, and log ρ_t there: a density ρ_0 carried by the flow.

        By default the divergence is exact, by d products with the derivative.

        Arguments:
            log_density: log ρ_0 as a function of points (m, d), with values (m,).
            x: starting points (m, d); the atoms by default.
            key: estimate the divergence by Hutchinson's method, with the same random probes along the whole flow.
            probes: number of random probes.

        Statement   d/dt log ρ_t(x(t)) = −div v[mu_t](x(t))
        Ref         chen2018, Theorem 1.
        """
        start = self.initial.points if x is None else queries_of(self.initial, x, None)[0]
        moments = getattr(self.initial, "times", None)
        concrete((self, start), "log_density")
        if is_spread(self.initial):
            raise SpreadError(
                got="log_density on a measure in pieces on several devices",
                need="all atoms in one place",
                do="Take the flow of mf.gather(mu), if it fits.",
            )
        if x is not None and moments is not None:
            raise TimeError(
                got="points x without times, on a SpaceTime",
                need="the atoms of the measure, which have times",
                do="Leave x out.",
            )
        dtype = common_dtype(self.velocity, self.initial, start)
        size = bucket(len(start))
        rows, moments = pad_rows(start, size), None if moments is None else pad_rows(moments, size)
        signs = None
        if key is not None:
            draws = normal(key, (positive_int(probes, "probes"), *np.shape(start)))
            signs = pad_axis(np.where(draws < 0, -1.0, 1.0), size, 1)
        phi = FlowMap(self._moved_by(), self.schedule.padded(), self._streaming())
        program = cast((phi, self.initial.padded(), rows, moments, signs), dtype)
        solved = jax.tree.map(np.asarray, at_once(_compiled_density, *program))
        last = self.initial.with_points(on_device(solved.last[0][: self.initial.n]))
        refuse_failure(solved, last, self.settings)
        kept = slice(len(self.schedule.times)), slice(len(start))
        logs = shaped(floats(log_density(on_device(np.asarray(start))), "log_density(x)"), "log_density(x)", "m")
        points = np.concatenate([np.asarray(start, dtype)[None], solved.states[1][kept]])
        change = np.concatenate([np.zeros((1, len(start)), dtype), solved.states[2][kept]])
        return on_device(points), on_device(np.asarray(logs, dtype) + change)

    def _moved_by(self) -> Depthwise:
        if self.velocity is None:
            raise OptionError(
                got="a trajectory that was loaded without its velocity",
                need="the velocity, since files hold points only",
                do="Pass it to mf.flows.load_flow(folder, velocity).",
            )
        return self.velocity

    def _streaming(self) -> Settings:
        return dataclasses.replace(self.settings, tol=None)

    def _moment(self, t: ArrayLike, *, stored: bool = False) -> float:
        return super()._moment(t, stored=stored or bool(self.schedule.most))


def move_particles(
    layers: Depthwise, initial: AbstractAtomic, schedule: Schedule, settings: Settings, save: PathLike | None
) -> Trajectory:
    """The trajectory of the atoms of a measure: in one compiled program where nothing has to happen on the way."""
    if is_traced(layers, initial):
        if save is not None or settings.tol is not None:
            concrete((layers, initial), "flow with save or a grid")
        return Trajectory(layers, initial, _compiled(layers, initial, schedule, settings)[0], schedule, settings)
    if not is_spread(initial):
        initial = initial.with_points(on_device(layers.settled(initial.points)))
    if settings.tol is not None and is_spread(initial):
        raise SpreadError(
            got="a grid for a measure in pieces on several devices",
            need="all atoms in one place: a grid is made for all of them",
            do="Take the flow of mf.gather(mu), or leave method out.",
        )
    if is_elsewhere(initial):
        exchanging()
    if save is not None or settings.tol is not None or is_spread(initial):
        points, error = at_once(travel, layers, initial, schedule, settings, save)
        return Trajectory(layers, initial, points, schedule, settings, None if settings.tol is None else error)
    padded = initial.padded()
    points, solved = at_once(_compiled, layers, padded, schedule.padded(), settings)
    solved = jax.tree.map(np.asarray, solved)
    refuse_failure(solved, initial.with_points(on_device(solved.last[: initial.n])), settings)
    kept = on_device(np.asarray(points)[: len(schedule.times) + 1, : initial.n])
    return Trajectory(layers, initial, kept, schedule, settings)


@eqx.filter_jit
def _compiled(layers: Depthwise, mu: Any, schedule: Schedule, settings: Settings) -> tuple[Array, Solved]:
    solved = particles(layers, mu, schedule, settings)
    points = jax.numpy.concatenate([mu.points[None], solved.states])
    return points, solved._replace(states=None)


_compiled_density = eqx.filter_jit(with_log_density)
