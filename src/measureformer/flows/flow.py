"""`flow`: a very deep transformer. Tokens move with a velocity that depends on where all of them are."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, NoClosedFormError, OptionError, SpreadError, TimeError
from measureformer.flows.drive import travel
from measureformer.flows.flow_map import Depthwise, FlowMap, particles, refuse_failure
from measureformer.flows.integrate import SOLVERS, WITHOUT_ERROR, Settings, Solved
from measureformer.flows.log_density import with_log_density
from measureformer.flows.schedule import Schedule, checked_times, planned
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.call import refuse_input
from measureformer.maps.queries import queries_of
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import (
    at_once,
    cast,
    common_dtype,
    floats,
    host,
    is_spread,
    is_traced,
    on_device,
    positive_int,
    scalar,
    shaped,
)
from measureformer.numerics.buckets import bucket, pad_axis, pad_rows
from measureformer.numerics.random import normal
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.parallel.workers import collective

Solver = Literal["tsit5", "dopri8", "heun", "rk4", "euler"]
Velocity = AbstractInContextMap | Sequence[AbstractInContextMap]


@collective()
def flow(
    velocity: Velocity,
    mu: AbstractAtomic,
    times: ArrayLike,
    *,
    solver: Solver = "tsit5",
    rtol: float | None = None,
    atol: float | None = None,
    steps: int | None = None,
    tol: float | None = None,
    save: PathLike | None = None,
) -> Trajectory:
    """The measures mu_t that start from mu at times[0] and move with the velocity: ∂_t mu + div(mu v[mu]) = 0.

    Steps are adaptive unless `steps` is given. Euler's method with `steps` on the times [0, T] is a residual network:
    `Residual(velocity, T / steps)` composed `steps` times.

    Differentiable in the parameters and in mu, and traceable by jit and vmap, with concrete times and options; there a
    failure gives NaN. Reverse mode stores a few dozen states however many steps there are. With `tol` or `save`, and on
    a measure spread over a mesh, which stays spread, there are no derivatives.

    Arguments:
        velocity: an in-context map of R^d to itself. A sequence of maps with arrays of the same shapes shares the time
            equally: the parameters θ(t) of a network, constant on pieces of its depth.
        mu: the measure whose atoms move; times of a `SpaceTime` are carried.
        times: increasing output times, (t,); the first is the time of mu.
        solver: "tsit5", "dopri8" (for small tolerances) or "heun"; "rk4" and "euler" require `steps`.
        rtol: each step keeps its error below atol + rtol · |x| in every coordinate; 1e-6 by default, 1e-4 in float32.
        atol: see `rtol`; 1e-6 by default, 1e-5 in float32.
        steps: equal steps between consecutive times, without error control.
        tol: compute attention on a grid, in time linear in the number of tokens, for heads of dimension at most 3.
            Every value and log-normaliser of every head is proven to be within `tol`; the largest bound is
            `error_bound`. A step that leaves the cells of its plan is repeated with a new one.
        save: folder that keeps the run on disk. The same call resumes an interrupted run, with the same bits as an
            uninterrupted one, and reads a finished one; `mf.flows.load_flow` reads either.

    Cost        six velocities for each step of "tsit5"; no new compilation for another n or other times.
    Ref         furuya2025, equations (9) to (14); sander2022.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[0.0]], [[0.0]], [[1.0]])        # v[mu](x) = mean of mu
    >>> traj = mf.flow(G, mf.Discrete.uniform([[0.0], [2.0]]), [0.0, 1.0])
    >>> traj.measures[-1].points.round(3).tolist(), traj.map(1.0)(traj.initial, [5.0]).round(3).tolist()
    ([[1.718], [3.718]], [6.718])
    """
    layers = checked_layers(velocity, mu)
    moments = checked_times(times)
    settings, count = _settings(solver, rtol, atol, steps, common_dtype(layers, mu))
    settings = dataclasses.replace(settings, tol=_tolerance(tol))
    plan = planned(moments, len(layers.maps), count)
    layers, initial = cast((layers, mu), common_dtype(layers, mu))
    if is_traced(layers, initial):
        if save is not None or tol is not None:
            concrete((layers, initial), "flow with save or tol")
        return Trajectory(layers, initial, _compiled(layers, initial, plan, settings)[0], plan, settings)
    _check_values(layers, initial)
    if tol is not None and is_spread(initial):
        raise SpreadError(
            got="tol for a measure in pieces on several devices",
            need="all atoms in one place: a grid is made for all of them",
            do="Take the flow of mf.gather(mu), or leave tol out.",
        )
    if save is not None or tol is not None or is_spread(initial):
        points, error = at_once(travel, layers, initial, plan, settings, save)
        return Trajectory(layers, initial, points, plan, settings, None if tol is None else error)
    padded = initial.padded()
    points, solved = at_once(_compiled, layers, padded, plan.padded(), settings)
    solved = jax.tree.map(np.asarray, solved)
    refuse_failure(solved, initial.with_points(on_device(solved.last[: initial.n])), settings)
    kept = on_device(np.asarray(points)[: len(moments), : initial.n])
    return Trajectory(layers, initial, kept, plan, settings)


class Trajectory(eqx.Module):
    """A moving measure: `measures` at `times`, `at(t)` in between, and `map(t)`, the flow as an in-context map."""

    velocity: Depthwise | None
    """None if the trajectory was loaded without it."""
    initial: AbstractAtomic
    points: Float[Array, "k n d"]
    """Positions of the atoms at the times."""
    plan: Schedule
    settings: Settings
    error_bound: float | None = None
    """With `tol`: the largest proven error of attention, in any velocity. None where it was streamed."""

    @property
    def times(self) -> Float[np.ndarray, " k"]:
        """The requested times."""
        return np.array([float(t) for t in (self.plan.start, *self.plan.times)])

    @property
    def measures(self) -> tuple[AbstractAtomic, ...]:
        """The measures at these times."""
        points = host(self.points)
        take = _row if is_spread(points) else operator.getitem
        return tuple(self.initial.with_points(on_device(take(points, i))) for i in range(len(points)))

    def map(self, t: ArrayLike) -> FlowMap:
        """The flow from the first time to t, as an in-context map: any measure, any point. Its attention is streamed.

        Arguments:
            t: with adaptive steps any time of the trajectory's interval; with equal steps one of `times`.
        """
        return FlowMap(self._moved_by(), self.plan.until(self._moment(t)), self._streaming())

    def at(self, t: ArrayLike) -> AbstractAtomic:
        """The measure at time t: stored if t is one of the times, computed otherwise.

        Arguments:
            t: as in `map`.
        """
        moment = self._moment(t)
        known = np.flatnonzero(self.times == moment)
        if len(known):
            return self.measures[int(known[0])]
        if self.settings.tol is None:
            return self.map(moment).push(self.initial)
        parts = self._moved_by(), self.initial, self.plan.until(moment), self.settings
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
        phi = FlowMap(self._moved_by(), self.plan.padded(), self._streaming())
        program = cast((phi, self.initial.padded(), rows, moments, signs), dtype)
        solved = jax.tree.map(np.asarray, at_once(_compiled_density, *program))
        last = self.initial.with_points(on_device(solved.last[0][: self.initial.n]))
        refuse_failure(solved, last, self.settings)
        kept = slice(len(self.plan.times)), slice(len(start))
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

    def _moment(self, t: ArrayLike) -> float:
        moment, times = float(scalar(t, "t")), self.times
        inside = times[0] <= moment <= times[-1] if not self.plan.most else bool((times == moment).any())
        if not inside:
            raise TimeError(
                got=f"t = {moment:g} on a trajectory from {times[0]:g} to {times[-1]:g}",
                need="one of its times" if self.plan.most else "a time in this interval",
                do="Ask for it in `times` of mf.flow.",
            )
        return moment


@eqx.filter_jit
def _compiled(layers: Depthwise, mu: Any, plan: Schedule, settings: Settings) -> tuple[Array, Solved]:
    solved = particles(layers, mu, plan, settings)
    points = jax.numpy.concatenate([mu.points[None], solved.states])
    return points, solved._replace(states=None)


# axis 0 holds the times; the rows of axis 1 stay where they are
_row = jax.jit(lambda points, i: points[i])
_compiled_density = eqx.filter_jit(with_log_density)


def checked_layers(velocity: Velocity, mu: AbstractMeasure) -> Depthwise:
    """The velocity as layers, refused unless they are alike and made for the space of mu."""
    maps = tuple(velocity) if isinstance(velocity, Sequence) else (velocity,)
    for G in maps:
        if not isinstance(G, AbstractInContextMap):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DtypeError(
                got=f"{type(G).__name__} as a velocity",
                need="an in-context map, or a list of them",
                do="Pass a layer such as mf.Attention; a function of two points becomes one by mf.flows.Interaction.",
            )
    if not maps or len({_form(G) for G in maps}) > 1:
        raise OptionError(
            got=f"{len(maps)} layers of {'different forms' if maps else 'any form'}",
            need="at least one layer, and all with arrays of the same shapes",
            do="Layers of a flow differ in their parameters only; follow one flow by another for different layers.",
        )
    G = maps[0]
    G.check_meets(mu, getattr(mu, "times", None))
    if not isinstance(mu, AbstractAtomic):
        raise NoClosedFormError(
            got=f"a {type(mu).__name__} to be moved by particles",
            need="a measure with atoms",
            do="Take atoms first, mu.discretize(n) or mu.sample(key, n); mf.gaussian_flow moves a Gaussian exactly.",
        )
    return Depthwise(maps)


def _form(G: AbstractInContextMap) -> Any:
    """What layers of one flow share: structure, shapes, and everything that is not an array."""
    leaves, structure = jax.tree.flatten(G)
    return structure, tuple(leaf.shape if eqx.is_array(leaf) else leaf for leaf in leaves)


def _settings(
    solver: Solver, rtol: float | None, atol: float | None, steps: int | None, dtype: Any
) -> tuple[Settings, int | None]:
    if solver not in SOLVERS:
        raise OptionError(
            got=f"solver = {solver!r}", need=f"one of {', '.join(SOLVERS)}", do='Leave it out for "tsit5".'
        )
    if steps is None and solver in WITHOUT_ERROR:
        raise OptionError(
            got=f'solver = "{solver}" without steps',
            need="a number of steps, since it does not know its error",
            do="Pass steps = 100, say, or leave the solver out.",
        )
    single = dtype == np.float32
    defaults = (1e-4, 1e-5) if single else (1e-6, 1e-6)
    chosen = [default if value is None else value for value, default in zip((rtol, atol), defaults, strict=True)]
    for name, value in zip(("rtol", "atol"), chosen, strict=True):
        if not (np.ndim(value) == 0 and 0 < float(value) < 1):
            raise OptionError(got=f"{name} = {value!r}", need="a number between 0 and 1", do="Leave it out.")
    tolerances = (np.asarray(float(value)) for value in chosen)
    return Settings(solver, *tolerances), None if steps is None else positive_int(steps, "steps")


def _tolerance(tol: float | None) -> np.ndarray | None:
    if tol is not None and not (np.ndim(tol) == 0 and 0 < float(tol) < 1):
        raise OptionError(
            got=f"tol = {tol!r}", need="a number between 0 and 1", do="Try tol=1e-8; left out, attention is streamed."
        )
    return None if tol is None else np.asarray(float(tol))


def _check_values(layers: Depthwise, mu: Any) -> None:
    times = getattr(mu, "times", None)
    for G in layers.maps:
        refuse_input(G, mu, mu.points, times)
