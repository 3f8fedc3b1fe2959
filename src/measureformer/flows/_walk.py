"""A flow that is taken some steps at a time: what lies between two calls is small, complete, and can be kept on disk.

The first driver of `flow` is one compiled program from the first time to the last, which has derivatives. Here the same
steps, of the same solver under the same control, are taken in a Python loop around one compiled program that stops at
the next of the times, or after a number of steps. Where it stops changes no bit of the answer.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from measureformer.flows._integrate import (
    LIMIT,
    NO_STEPS_LEFT,
    NOT_FINITE,
    SUCCESS,
    Settings,
    controlled,
    in_pieces,
    in_steps,
    solver_called,
    stacked,
)
from measureformer.flows._map import Depthwise, field_of
from measureformer.flows._plan import Plan
from measureformer.numerics.arrays import on_device
from measureformer.numerics.mesh import TOKENS, over, placed

FIRST = 0.01
"""The first step, before any error is known: that of `diffeqsolve`, which looks at no velocity for it."""


class Stand(NamedTuple):
    """How far a walk has come: all that the next step needs."""

    state: Any
    """Arrays: the points, and what solver and control remember."""
    reached: int = 0
    """How many of the times after the start."""
    steps: int = 0
    """Adaptive steps since the last of them, rejected ones included."""
    segment: int = 0
    """Which of the segments of equal steps."""
    code: int = SUCCESS


class AbstractWalk(abc.ABC):
    """From the start of a plan to its end, some steps at a time; rows stay spread over the mesh, if there is one."""

    def __init__(self, layers: Depthwise, mu: Any, plan: Plan, settings: Settings, mesh: Mesh | None) -> None:
        self.layers, self.mu, self.plan, self.settings, self.mesh = layers, mu, plan, settings, mesh
        self.dtype = mu.points.dtype
        # in the precision of the points, as the compiled programs see them
        self.times = [np.asarray(t, self.dtype) for t in plan.times]

    def done(self, stand: Stand) -> bool:
        return stand.code != SUCCESS or stand.reached == len(self.times)

    @abc.abstractmethod
    def start(self) -> Stand:
        """Before the first step."""

    @abc.abstractmethod
    def go(self, stand: Stand, budget: int) -> tuple[Stand, list[Any], int]:
        """On to the next time, or `budget` steps: where it stands, the points at times reached, and steps taken."""

    @abc.abstractmethod
    def valid(self, stand: Stand) -> tuple[Any, Any]:
        """Time and points of the last state that is known to be good."""

    @abc.abstractmethod
    def time(self, stand: Stand) -> float:
        """The time that has been reached."""

    @abc.abstractmethod
    def possible(self, stand: Stand) -> bool:
        """Whether the walk can have come to these counts, which may be anybody's."""

    def placed(self, array: np.ndarray) -> Any:
        """An array of the state where it belongs."""
        if self.mesh is None:
            return on_device(array)
        return placed(array, over(self.mesh, *_axes(array.shape, self.mu.points.shape)))

    def _call(self, program: Any, *arguments: Any) -> Any:
        if self.mesh is None:
            return program(*arguments, None)
        # the mesh is set while the program is traced, so attention goes round the ring
        with jax.set_mesh(self.mesh):
            return program(*arguments, self.mesh)


class Going(NamedTuple):
    """Between two adaptive steps, the next of which goes from `begin` to `end`."""

    points: Array
    begin: Array
    end: Array
    jumped: Array
    solver: Any
    """For methods whose last stage is the first of the next step: that velocity."""
    controller: Any
    """The errors of the last two steps."""
    ok: Array


class Step(NamedTuple):
    """The last step that was accepted, with what is needed to look inside; `end` is −inf if there was none."""

    begin: Array
    end: Array
    inside: Any


class AdaptiveWalk(AbstractWalk):
    """Steps under control of their error."""

    def __init__(self, layers: Depthwise, mu: Any, plan: Plan, settings: Settings, mesh: Mesh | None) -> None:
        super().__init__(layers, mu, plan, settings, mesh)
        jumps = tuple(np.asarray(t, self.dtype) for t in plan.jumps)
        self._problem = layers, mu, settings, (np.asarray(plan.start, self.dtype), self.times[-1], jumps)

    def start(self) -> Stand:
        return Stand(self._call(_set_out, *self._problem))

    def go(self, stand: Stand, budget: int) -> tuple[Stand, list[Any], int]:
        most = np.asarray(min(budget, LIMIT - stand.steps))
        target = self.times[stand.reached]
        state, step, left = self._call(_advance, *self._problem, stand.state, target, most)
        taken, end, reached = int(most - left), np.asarray(step.end), stand.reached
        found = []
        while reached < len(self.times) and self.times[reached] <= end:
            found.append(self._call(_inside, self.settings.solver, step, self.times[reached]))
            reached += 1
        steps = 0 if found else stand.steps + taken
        code = NO_STEPS_LEFT if steps == LIMIT else SUCCESS
        return Stand(state, reached, steps, 0, code if state.ok else NOT_FINITE), found, taken

    def possible(self, stand: Stand) -> bool:
        counted = 0 <= stand.reached <= len(self.times) and 0 <= stand.steps <= LIMIT and stand.segment == 0
        return counted and stand.code in (NO_STEPS_LEFT if stand.steps == LIMIT else SUCCESS, NOT_FINITE)

    def valid(self, stand: Stand) -> tuple[Any, Any]:
        return stand.state.begin, stand.state.points

    def time(self, stand: Stand) -> float:
        return float(stand.state.begin)


def _parts(layers: Depthwise, mu: Any, settings: Settings, span: Any, mesh: Mesh | None) -> tuple[Any, Any, Any]:
    """Term, solver and control of an adaptive walk, under a trace."""
    t0, t1, jumps = span[0], span[1], stacked(span[2], mu.points.dtype) if span[2] else None
    solver = _plain(solver_called(settings.solver))
    return in_pieces(_field(layers, mu, mesh), jumps), solver, controlled(t0, t1, jumps, settings)


@eqx.filter_jit
def _set_out(layers: Depthwise, mu: Any, settings: Settings, span: Any, mesh: Mesh | None) -> Going:
    term, solver, controller = _parts(layers, mu, settings, span, mesh)
    (t0, t1, _), y = span, mu.points
    first = jnp.asarray(FIRST, y.dtype)
    end, remembered = controller.init(term, t0, t1, y, first, None, solver.func, solver.error_order(term))
    end = jnp.minimum(end, t1)
    no, yes = jnp.asarray(False), jnp.asarray(True)
    going = Going(y, t0, end, no, solver.init(term, t0, end, y, None), remembered, yes)
    return _spread(jax.tree.map(jnp.asarray, going), y, mesh)


@eqx.filter_jit
def _advance(
    layers: Depthwise,
    mu: Any,
    settings: Settings,
    span: Any,
    state: Going,
    target: Array,
    budget: Array,
    mesh: Mesh | None,
) -> tuple[Going, Step, Array]:
    """Steps until one ends at the target or behind it, the budget is used up, or there is no going on."""
    import diffrax

    term, solver, controller = _parts(layers, mu, settings, span, mesh)
    t1 = span[1]

    def attempt(state: Going) -> Any:
        return solver.step(term, state.begin, state.end, state.points, None, state.solver, state.jumped)

    def goes_on(carry: tuple[Going, Step, Array]) -> Array:
        state, step, left = carry
        return (left > 0) & state.ok & (step.end < target) & (state.begin < t1)

    def one(carry: tuple[Going, Step, Array]) -> tuple[Going, Step, Array]:
        old, step, left = carry
        points, error, inside, remembered, _ = attempt(old)
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        order = solver.error_order(term)
        keep, begin, end, jumped, control, result = controller.adapt_step_size(
            old.begin, old.end, old.points, points, None, error, order, old.controller
        )
        begin = jnp.minimum(begin, t1)
        end = _not_beyond(begin, end, t1, keep)
        new = Going(points, begin, end, jumped, remembered, control, result == diffrax.RESULTS.successful)
        # what the control says counts for rejected steps too; the rest only if the step is kept
        new = new._replace(
            **{k: _chosen(keep, getattr(new, k), getattr(old, k)) for k in ("points", "jumped", "solver")}
        )
        step = _chosen(keep, Step(old.begin, old.end, inside), step)
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, old)
        return *_spread((new, step), mu.points, mesh), left - 1

    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), eqx.filter_eval_shape(attempt, state)[2])
    never = jnp.full((), -jnp.inf, t1.dtype)
    return jax.lax.while_loop(goes_on, one, (state, _spread(Step(never, never, nowhere), mu.points, mesh), budget))


@eqx.filter_jit
def _inside(solver: str, step: Step, t: Array, mesh: Mesh | None) -> Array:
    """The points at a time within the step."""
    found = solver_called(solver).interpolation_cls(t0=step.begin, t1=step.end, **step.inside).evaluate(t)
    return _spread(found, found, mesh)


def _not_beyond(begin: Array, end: Array, t1: Array, keep: Array) -> Array:
    """The end of the next step, at most t1; at t1 if hardly anything would be left. As in diffrax."""
    hardly = jax.lax.fori_loop(0, 100, lambda _, t: eqxi.prevbefore(t), jnp.asarray(t1))
    return jnp.where(end > hardly, jnp.where(keep, t1, begin + 0.5 * (t1 - begin)), end)


class Marching(NamedTuple):
    """Within a segment of equal steps."""

    points: Array
    taken: Array
    solver: Any
    safe: Array
    """The points at the last of the times, which are finite."""


class EqualWalk(AbstractWalk):
    """Equal steps without control: a residual network."""

    def start(self) -> Stand:
        return Stand(self._set_out(self.mu.points, self.mu.points))

    def go(self, stand: Stand, budget: int) -> tuple[Stand, list[Any], int]:
        plan, i = self.plan, stand.segment
        segment = np.asarray(plan.steps[i], self.dtype), np.asarray(plan.counts[i]), np.asarray(plan.pieces[i])
        problem = self.layers, self.mu, self.settings, segment
        before = int(stand.state.taken)
        state, finite = self._call(_march, *problem, stand.state, np.asarray(budget))
        taken = int(state.taken) - before
        if int(state.taken) < int(plan.counts[i]):
            return stand._replace(state=state), [], taken
        reached, found = stand.reached, []
        if i == int(plan.ends[reached]):
            if not finite:
                return stand._replace(state=state, code=NOT_FINITE), [], taken
            reached, found = reached + 1, [state.points]
        state = self._set_out(state.points, state.points if found else state.safe)
        return Stand(state, reached, 0, i + 1), found, taken

    def possible(self, stand: Stand) -> bool:
        # the first segment after each of the times, and the end
        firsts = [0, *(int(end) + 1 for end in self.plan.ends), len(self.plan.steps) + 1]
        if not 0 <= stand.reached <= len(self.times) or stand.steps != 0 or stand.code not in (SUCCESS, NOT_FINITE):
            return False
        return firsts[stand.reached] <= stand.segment < firsts[stand.reached + 1]

    def valid(self, stand: Stand) -> tuple[Any, Any]:
        return [self.plan.start, *self.plan.times][stand.reached], stand.state.safe

    def time(self, stand: Stand) -> float:
        plan, i = self.plan, min(stand.segment, len(self.plan.steps) - 1)
        whole = sum(float(s) * int(c) for s, c in zip(plan.steps[: stand.segment], plan.counts, strict=False))
        return float(plan.start) + whole + float(plan.steps[i]) * int(stand.state.taken)

    def _set_out(self, points: Any, safe: Any) -> Marching:
        return self._call(_set_out_equally, self.layers, self.mu, self.settings, points, safe)


@eqx.filter_jit
def _set_out_equally(
    layers: Depthwise, mu: Any, settings: Settings, points: Array, safe: Array, mesh: Mesh | None
) -> Marching:
    one = jnp.ones((), points.dtype)
    term = in_steps(_field(layers, mu, mesh), one, jnp.zeros((), int))
    remembered = solver_called(settings.solver).init(term, jnp.zeros((), points.dtype), one, points, None)
    return _spread(Marching(points, jnp.zeros((), int), remembered, safe), points, mesh)


@eqx.filter_jit
def _march(
    layers: Depthwise, mu: Any, settings: Settings, segment: Any, state: Marching, budget: Array, mesh: Mesh | None
) -> tuple[Marching, Array]:
    """Steps to the end of the segment, or as many as the budget allows; and whether the points are finite."""
    step, count, piece = segment
    term, solver = in_steps(_field(layers, mu, mesh), step, piece), _plain(solver_called(settings.solver))
    end = jnp.minimum(count, state.taken + budget)

    def one(state: Marching) -> Marching:
        s = state.taken.astype(state.points.dtype)
        points, _, _, remembered, _ = solver.step(term, s, s + 1, state.points, None, state.solver, False)
        new = Marching(points, state.taken + 1, remembered, state.safe)
        return _spread(jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, state), state.points, mesh)

    state = jax.lax.while_loop(lambda state: state.taken < end, one, state)
    return state, jnp.all(jnp.isfinite(state.points))


def _field(layers: Depthwise, mu: Any, mesh: Mesh | None) -> Any:
    field = field_of(layers, mu)
    # diffrax looks at the field half a dozen times: under jit it is traced only once
    return jax.jit(lambda index, points: _spread(field(index, points), points, mesh))


def _plain(solver: Any) -> Any:
    """The solver with loops over stages that have no derivative, and no cost for one."""
    return type(solver)(scan_kind="lax") if hasattr(solver, "scan_kind") else solver


def _chosen(keep: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)


def _spread(tree: Any, points: Array, mesh: Mesh | None) -> Any:
    """With rows over the mesh, in arrays of the shape of the points and in stacks of such; all else everywhere."""
    if mesh is None:
        return tree

    def constrained(leaf: Any) -> Array:
        return jax.lax.with_sharding_constraint(leaf, over(mesh, *_axes(jnp.shape(leaf), points.shape)))

    return jax.tree.map(constrained, tree)


def _axes(shape: tuple[int, ...], points: tuple[int, ...]) -> list[str | None]:
    return [TOKENS] if shape == points else [None, TOKENS] if shape[1:] == points else []
