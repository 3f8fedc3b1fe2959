"""A flow taken some steps at a time on diffrax's own state. Imports diffrax: import it late.

`diffeqsolve` is called with the state in which the call before has ended. Two things are added to it: a controller that
carries the end of the next step, without rounding t0 + dt0, and stops after a number of steps; and a solver that keeps
rows on their devices and, where attention follows plans for a grid, says how large its error bounds were. Where a call
ends changes no bit of the answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from measureformer.attention.grid import following
from measureformer.attention.grid.follow import Plans
from measureformer.flows.flow_map import field_of
from measureformer.flows.integrate import Field, controlled, in_pieces, in_steps, stacked
from measureformer.flows.settings import Settings
from measureformer.flows.velocity import Depthwise
from measureformer.parallel.mesh import TOKENS, over


class State(NamedTuple):
    """All that the next step needs."""

    points: Any
    begin: Any
    end: Any
    """Of the next step."""
    jumped: Any
    solver: Any
    control: Any


class Problem(NamedTuple):
    """What is solved: the whole interval in adaptive steps, or one segment of equal steps, in units of steps."""

    layers: Depthwise
    mu: Any
    settings: Settings
    start: Any
    stop: Any
    jumps: tuple[Any, ...]
    """Of adaptive steps."""
    segment: tuple[Any, Any, Any] | None
    """Begin, step and piece of equal steps; None for adaptive ones."""
    plans: Plans | None
    """Of attention, which streams without."""


class Ending(NamedTuple):
    """What a call says beside the new state."""

    found: Any
    """Points at those of the times that were reached."""
    times: Any
    """These times; infinite for the others."""
    taken: Any
    since: Any
    """Adaptive steps since the last of the times, rejected ones included."""
    error: Any
    """The largest error bound of attention on a grid in steps that were taken."""
    covered: Any
    """False if the call ended before a step whose points would have left the cells of the plans."""
    ok: Any
    """Whether the step size and, at the end of a segment of equal steps, the points are good."""


class _Control(NamedTuple):
    inner: Any
    end: Any
    taken: Any
    since: Any
    error: Any
    covered: Any


class _Carried(diffrax.AbstractStepSizeController[Any, Any]):
    """Another controller, whose next step is part of the state, and which stops."""

    inner: Any
    """None for steps of size 1."""
    end: Any
    stop: Any
    times: Any
    budget: Any
    limit: int
    tol: Any

    def wrap(self, direction: Any) -> Any:
        return self

    def init(self, *_: Any, **__: Any) -> Any:
        return self.end, None

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        old: _Control = controller_state
        y_error, worst = y_error if isinstance(y_error, _Judged) else (y_error, None)
        covered = True if worst is None else worst <= self.tol
        if self.inner is None:
            keep, begin, end, jumped, inner, result = (
                jnp.asarray(True),
                t1,
                t1 + 1,
                False,
                (),
                diffrax.RESULTS.successful,
            )
        else:
            keep, begin, end, jumped, inner, result = self.inner.adapt_step_size(
                t0, t1, y0, y1_candidate, args, y_error, error_order, old.inner
            )
            begin = jnp.minimum(begin, self.stop)
            end = _not_beyond(begin, end, self.stop, keep)
        reached = keep & jnp.any((self.times > t0) & (self.times <= begin))
        bound = old.error if worst is None else jnp.maximum(old.error, worst.astype(old.error.dtype))
        new = _Control(inner, end, old.taken + 1, jnp.where(reached, 0, old.since + 1), bound, jnp.asarray(True))
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, old)
        # a step that has left the cells has not happened
        new = jax.tree.map(lambda a, b: jnp.where(covered, a, b), new, old._replace(end=t1, covered=jnp.asarray(False)))
        keep, begin, end = keep & covered, jnp.where(covered, begin, t0), jnp.where(covered, end, t1)
        full = (new.taken >= self.budget) | (new.since >= self.limit) | (begin >= self.times[-1])
        pause = diffrax.RESULTS.where(full | ~new.covered, diffrax.RESULTS.event_occurred, diffrax.RESULTS.successful)
        result = diffrax.RESULTS.where(covered, result, diffrax.RESULTS.successful)
        result = diffrax.RESULTS.where(result == diffrax.RESULTS.successful, pause, result)
        return keep, begin, end, jumped, new, result


class _Judged(NamedTuple):
    """The error of a step, and the largest error bound of attention in its stages."""

    error: Any
    worst: Any


class _Watched(NamedTuple):
    """Points, and a component whose velocity is the largest error bound of attention: stages pass on no more."""

    points: Any
    mark: Any


class _Guarded(diffrax.AbstractWrappedSolver[Any]):
    """Another solver, whose points stay spread over the mesh, and which reports error bounds of attention."""

    solver: Any
    mesh: Mesh | None = eqx.field(static=True)
    watched: bool = eqx.field(static=True)
    unit: Any
    """Of the time in which steps are counted."""

    @property
    def scan_kind(self) -> str:
        return "lax"

    @property
    def term_compatible_contr_kwargs(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] as in diffrax
        return self.solver.term_compatible_contr_kwargs

    @property
    def term_structure(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] as in diffrax
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] as in diffrax
        return self.solver.interpolation_cls

    def order(self, terms: Any) -> Any:
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, self._lifted(y0), args)

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        made = self.solver.step(terms, t0, t1, self._lifted(y0), args, solver_state, made_jump)
        if not self.watched:
            return (*_spread_over(made[:-1], y0, self.mesh), made[-1])
        y, error, inside, remembered, result = made
        # increments are velocities times the step; a method without stages has only one
        increments = inside["k"].mark if "k" in inside else inside["y1"].mark
        # two roundings by which a bound may have become smaller
        worst = jnp.max(increments) / ((t1 - t0) * self.unit) * (1 + 4 * jnp.finfo(y0.dtype).eps)
        plain = jax.tree.map(lambda part: part.points, inside, is_leaf=lambda part: isinstance(part, _Watched))
        return y.points, _Judged(None if error is None else error.points, worst), plain, remembered, result

    def _lifted(self, points: Array) -> Any:
        return _Watched(points, jnp.zeros((), points.dtype)) if self.watched else points


def begin(problem: Problem, points: Any, mesh: Mesh | None) -> State:
    """Before the first step from these points; costs no velocity."""
    return _on(mesh, _begin, problem, points)


def advance(
    problem: Problem, state: State, since: Any, times: np.ndarray, budget: int, mesh: Mesh | None
) -> tuple[State, Ending]:
    """Steps until `budget` of them are taken, the last of these times or the end is reached, or no step is possible."""
    dtype = problem.mu.points.dtype
    return _on(mesh, _advance, problem, state, np.asarray(since), times.astype(dtype), np.asarray(budget))


def _on(mesh: Mesh | None, program: Any, *arguments: Any) -> Any:
    if mesh is None:
        return program(*arguments, None)
    # the mesh is set while the program is traced, so attention goes round the ring
    with jax.set_mesh(mesh):
        return program(*arguments, mesh)


@eqx.filter_jit
def _begin(problem: Problem, points: Array, mesh: Mesh | None) -> State:
    term, solver, controller = _parts(problem, mesh)
    t0, t1 = problem.start, problem.stop
    end, control = t0 + 1, ()
    if controller is not None:
        # the first step of `diffeqsolve`, which looks at no velocity for it
        first = jnp.asarray(0.01, t0.dtype)
        end, control = controller.init(term, t0, t1, points, first, None, solver.func, solver.error_order(term))
    end = jnp.minimum(end, t1)
    state = State(points, t0, end, jnp.asarray(False), solver.init(term, t0, end, points, None), control)
    return _spread_over(jax.tree.map(jnp.asarray, state), points, mesh)


@eqx.filter_jit
def _advance(
    problem: Problem, state: State, since: Any, times: Any, budget: Any, mesh: Mesh | None
) -> tuple[State, Ending]:
    term, solver, inner = _parts(problem, mesh)
    settings, points, adaptive = problem.settings, state.points, problem.segment is None
    zero, yes = jnp.zeros((), points.dtype), jnp.asarray(True)
    control = _Control(state.control, state.end, jnp.zeros((), int), jnp.asarray(since), zero, yes)
    limit = settings.limit if adaptive else np.iinfo(np.int64).max
    subs = [diffrax.SubSaveAt(t1=True), *([diffrax.SubSaveAt(ts=times)] if adaptive else [])]
    solution = diffrax.diffeqsolve(
        term,
        solver,
        state.begin,
        problem.stop,
        None,
        points,
        saveat=diffrax.SaveAt(subs=subs, solver_state=True, controller_state=True, made_jump=True),
        stepsize_controller=_Carried(inner, state.end, problem.stop, times, budget, limit, settings.tol),
        adjoint=diffrax.ForwardMode(),
        max_steps=None,
        throw=False,
        solver_state=state.solver,
        controller_state=control,
        made_jump=state.jumped,
    )
    ended = cast(_Control, solution.controller_state)
    ts, ys = cast(Any, solution.ts), cast(Any, solution.ys)
    new = State(ys[0][0], ts[0][0], ended.end, solution.made_jump, solution.solver_state, ended.inner)
    new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, state)
    good = (solution.result == diffrax.RESULTS.successful) | (solution.result == diffrax.RESULTS.event_occurred)
    ok = good if adaptive else jnp.all(jnp.isfinite(new.points)) | (new.begin < problem.stop)
    there = jnp.where(new.begin < problem.stop, jnp.inf, new.begin)
    found, known = (ys[1], ts[1]) if adaptive else (new.points[None], there[None])
    ending = Ending(found, known, ended.taken, ended.since, ended.error, ended.covered, ok)
    return _spread_over((new, ending), points, mesh)


def _parts(problem: Problem, mesh: Mesh | None) -> tuple[Any, Any, Any]:
    """Term, solver and control, under a trace."""
    dtype = problem.mu.points.dtype
    field, solver = _driven_by(problem, mesh), problem.settings.solver
    # loops over stages without derivatives, and no cost for them
    solver = type(solver)(scan_kind="lax") if hasattr(solver, "scan_kind") else solver
    unit = 1 if problem.segment is None else problem.segment[1]
    solver = _Guarded(solver, mesh, problem.plans is not None, unit)
    if problem.segment is not None:
        return in_steps(field, *problem.segment), solver, None
    jumps = stacked(problem.jumps, dtype) if problem.jumps else None
    return in_pieces(field, jumps), solver, controlled(problem.start, problem.stop, jumps, problem.settings)


def _driven_by(problem: Problem, mesh: Mesh | None) -> Field:
    """The velocity, whose attention follows the plans if there are any."""
    field, plans = field_of(problem.layers, problem.mu), problem.plans

    def watching(index: Any, t: Any, y: Any) -> Any:
        if not isinstance(y, _Watched):
            return _spread_over(field(index, t, y), y, mesh)
        with following(cast(Plans, plans)) as follow:
            velocity = field(index, t, y.points)
        worst = jnp.max(jnp.stack(follow.errors)) if follow.errors else jnp.zeros_like(y.mark)
        return _Watched(velocity, worst.astype(y.mark.dtype))

    # diffrax looks at the field half a dozen times: under jit it is traced only once
    return jax.jit(watching)


def _spread_over(tree: Any, points: Any, mesh: Mesh | None) -> Any:
    """With rows over the mesh, in arrays of the shape of the points and in stacks of such; all else everywhere."""
    if mesh is None:
        return tree
    place = lambda leaf: over(mesh, *axes_of(jnp.shape(leaf), points.shape))  # noqa: E731
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, place(leaf)), tree)


def axes_of(shape: tuple[int, ...], points: tuple[int, ...]) -> list[str | None]:
    """Which axis of an array of the state has the tokens."""
    return [TOKENS] if shape == points else [None, TOKENS] if shape[1:] == points else []


def _not_beyond(begin: Array, end: Array, t1: Array, keep: Array) -> Array:
    """The end of the next step, at most t1; at t1 if hardly anything would be left. As in diffrax."""
    hardly = jax.lax.fori_loop(0, 100, lambda _, t: eqxi.prevbefore(t), jnp.asarray(t1))
    return jnp.where(end > hardly, jnp.where(keep, t1, begin + 0.5 * (t1 - begin)), end)
