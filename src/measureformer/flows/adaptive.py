"""Adaptive steps, some at a time: those of `diffeqsolve`, in a program that can stop between any two."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from measureformer.flows.flow_map import Depthwise
from measureformer.flows.integrate import (
    LIMIT,
    NO_STEPS_LEFT,
    NOT_FINITE,
    SUCCESS,
    Settings,
    controlled,
    in_pieces,
    solver_called,
    stacked,
)
from measureformer.flows.schedule import Schedule
from measureformer.flows.walk import AbstractWalk, Stand, Went, chosen, driven_by, plain, spread_over
from measureformer.flows.watch import Plans, Watch, unwatched, watched

FIRST = 0.01
"""The first step, before any error is known: that of `diffeqsolve`, which looks at no velocity for it."""


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

    def __init__(self, layers: Depthwise, mu: Any, plan: Schedule, settings: Settings, mesh: Mesh | None) -> None:
        super().__init__(layers, mu, plan, settings, mesh)
        jumps = tuple(np.asarray(t, self.dtype) for t in plan.jumps)
        self._problem = layers, mu, settings, (np.asarray(plan.start, self.dtype), self.times[-1], jumps)

    def start(self) -> Stand:
        return Stand(self._call(_set_out, *self._problem, self.plans))

    def go(self, stand: Stand, budget: int) -> Went:
        most = np.asarray(min(budget, LIMIT - stand.steps))
        target = self.times[stand.reached]
        state, step, left, watch = self._call(_advance, *self._problem, self.plans, stand.state, target, most)
        taken, end, reached = int(most - left), np.asarray(step.end), stand.reached
        found = []
        while reached < len(self.times) and self.times[reached] <= end:
            found.append(self._call(_inside, self.settings.solver, step, self.times[reached]))
            reached += 1
        steps = 0 if found else stand.steps + taken
        code = NO_STEPS_LEFT if steps == LIMIT else SUCCESS
        error, covered = max(stand.error, float(watch.error)), bool(watch.covered)
        stand = Stand(state, reached, steps, 0, code if state.ok else NOT_FINITE, error)
        return Went(stand, found, taken, covered)

    def possible(self, stand: Stand) -> bool:
        counted = 0 <= stand.reached <= len(self.times) and 0 <= stand.steps <= LIMIT and stand.segment == 0
        return counted and stand.code in (NO_STEPS_LEFT if stand.steps == LIMIT else SUCCESS, NOT_FINITE)

    def valid(self, stand: Stand) -> tuple[Any, Any]:
        return stand.state.begin, stand.state.points

    def time(self, stand: Stand) -> float:
        return float(stand.state.begin)

    def piece(self, stand: Stand) -> int:
        return int(np.searchsorted([float(t) for t in self._problem[3][2]], self.time(stand), side="right"))


def _parts(
    layers: Depthwise, mu: Any, settings: Settings, span: Any, plans: Plans | None, mesh: Mesh | None
) -> tuple[Any, Any, Any]:
    """Term, solver and control of an adaptive walk, under a trace."""
    t0, t1, jumps = span[0], span[1], stacked(span[2], mu.points.dtype) if span[2] else None
    solver = plain(solver_called(settings.solver))
    return in_pieces(driven_by(layers, mu, plans, mesh), jumps), solver, controlled(t0, t1, jumps, settings)


@eqx.filter_jit
def _set_out(
    layers: Depthwise, mu: Any, settings: Settings, span: Any, plans: Plans | None, mesh: Mesh | None
) -> Going:
    term, solver, controller = _parts(layers, mu, settings, span, plans, mesh)
    (t0, t1, _), y = span, watched(mu.points, plans)
    first = jnp.asarray(FIRST, t0.dtype)
    end, remembered = controller.init(term, t0, t1, mu.points, first, None, solver.func, solver.error_order(term))
    end = jnp.minimum(end, t1)
    no, yes = jnp.asarray(False), jnp.asarray(True)
    going = Going(mu.points, t0, end, no, solver.init(term, t0, end, y, None), remembered, yes)
    return spread_over(jax.tree.map(jnp.asarray, going), mu.points, mesh)


@eqx.filter_jit
def _advance(
    layers: Depthwise,
    mu: Any,
    settings: Settings,
    span: Any,
    plans: Plans | None,
    state: Going,
    target: Array,
    budget: Array,
    mesh: Mesh | None,
) -> tuple[Going, Step, Array, Watch]:
    """Steps until one ends at the target or behind it, the budget is used up, or there is no going on."""
    import diffrax

    term, solver, controller = _parts(layers, mu, settings, span, plans, mesh)
    t1 = span[1]

    def attempt(state: Going) -> Any:
        y = watched(state.points, plans)
        made = solver.step(term, state.begin, state.end, y, None, state.solver, state.jumped)
        return unwatched(made, plans, state.end - state.begin)

    def goes_on(carry: tuple[Going, Step, Array, Watch]) -> Array:
        state, step, left, watch = carry
        return (left > 0) & state.ok & (step.end < target) & (state.begin < t1) & watch.covered

    def one(carry: tuple[Going, Step, Array, Watch]) -> tuple[Going, Step, Array, Watch]:
        old, step, left, watch = carry
        points, error, inside, remembered, worst = attempt(old)
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
            **{k: chosen(keep, getattr(new, k), getattr(old, k)) for k in ("points", "jumped", "solver")}
        )
        made = chosen(keep, Step(old.begin, old.end, inside), step)
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, old)
        if plans is None:
            return *spread_over((new, made), mu.points, mesh), left - 1, watch
        # a step that has left the cells has not happened
        covered = worst <= settings.tol
        new, made = chosen(covered, new, old), chosen(covered, made, step)
        return new, made, left - covered, watch.then(worst, covered)

    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), eqx.filter_eval_shape(attempt, state)[2])
    never = jnp.full((), -jnp.inf, t1.dtype)
    step = spread_over(Step(never, never, nowhere), mu.points, mesh)
    return jax.lax.while_loop(goes_on, one, (state, step, budget, Watch.begun(mu.points.dtype)))


@eqx.filter_jit
def _inside(solver: str, step: Step, t: Array, mesh: Mesh | None) -> Array:
    """The points at a time within the step."""
    found = solver_called(solver).interpolation_cls(t0=step.begin, t1=step.end, **step.inside).evaluate(t)
    return spread_over(found, found, mesh)


def _not_beyond(begin: Array, end: Array, t1: Array, keep: Array) -> Array:
    """The end of the next step, at most t1; at t1 if hardly anything would be left. As in diffrax."""
    hardly = jax.lax.fori_loop(0, 100, lambda _, t: eqxi.prevbefore(t), jnp.asarray(t1))
    return jnp.where(end > hardly, jnp.where(keep, t1, begin + 0.5 * (t1 - begin)), end)
