"""Equal steps without control, some at a time: a residual network."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from measureformer.flows.flow_map import Depthwise
from measureformer.flows.integrate import NOT_FINITE, SUCCESS, Settings, in_steps, solver_called
from measureformer.flows.walk import AbstractWalk, Stand, Went, chosen, driven_by, plain, spread_over
from measureformer.flows.watch import Plans, Watch, unwatched, watched


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

    def go(self, stand: Stand, budget: int) -> Went:
        plan, i = self.plan, stand.segment
        segment = np.asarray(plan.steps[i], self.dtype), np.asarray(plan.counts[i]), np.asarray(plan.pieces[i])
        problem = self.layers, self.mu, self.settings, segment
        before = int(stand.state.taken)
        state, finite, watch = self._call(_march, *problem, self.plans, stand.state, np.asarray(budget))
        taken, covered = int(state.taken) - before, bool(watch.covered)
        stand = stand._replace(state=state, error=max(stand.error, float(watch.error)))
        if int(state.taken) < int(plan.counts[i]):
            return Went(stand, [], taken, covered)
        reached, found = stand.reached, []
        if i == int(plan.ends[reached]):
            if not finite:
                return Went(stand._replace(code=NOT_FINITE), [], taken)
            reached, found = reached + 1, [state.points]
        state = self._set_out(state.points, state.points if found else state.safe)
        return Went(Stand(state, reached, 0, i + 1, error=stand.error), found, taken)

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

    def piece(self, stand: Stand) -> int:
        return int(self.plan.pieces[min(stand.segment, len(self.plan.pieces) - 1)])

    def _set_out(self, points: Any, safe: Any) -> Marching:
        # which plans there are changes nothing here, and would only compile another program
        plans = None if self.plans is None else ()
        return self._call(_set_out_equally, self.layers, self.mu, self.settings, plans, points, safe)


@eqx.filter_jit
def _set_out_equally(
    layers: Depthwise,
    mu: Any,
    settings: Settings,
    plans: Plans | None,
    points: Array,
    safe: Array,
    mesh: Mesh | None,
) -> Marching:
    one = jnp.ones((), points.dtype)
    term = in_steps(driven_by(layers, mu, plans, mesh), one, jnp.zeros((), int))
    y = watched(points, plans)
    remembered = solver_called(settings.solver).init(term, jnp.zeros((), points.dtype), one, y, None)
    return spread_over(Marching(points, jnp.zeros((), int), remembered, safe), points, mesh)


@eqx.filter_jit
def _march(
    layers: Depthwise,
    mu: Any,
    settings: Settings,
    segment: Any,
    plans: Plans | None,
    state: Marching,
    budget: Array,
    mesh: Mesh | None,
) -> tuple[Marching, Array, Watch]:
    """Steps to the end of the segment, or as many as the budget allows; and whether the points are finite."""
    step, count, piece = segment
    term, solver = in_steps(driven_by(layers, mu, plans, mesh), step, piece), plain(solver_called(settings.solver))
    end = jnp.minimum(count, state.taken + budget)

    def one(carry: tuple[Marching, Watch]) -> tuple[Marching, Watch]:
        state, watch = carry
        s = state.taken.astype(state.points.dtype)
        made = solver.step(term, s, s + 1, watched(state.points, plans), None, state.solver, False)
        points, _, _, remembered, worst = unwatched(made, plans, step)
        new = Marching(points, state.taken + 1, remembered, state.safe)
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, state)
        if plans is None:
            return spread_over(new, state.points, mesh), watch
        covered = worst <= settings.tol
        return chosen(covered, new, state), watch.then(worst, covered)

    def goes_on(carry: tuple[Marching, Watch]) -> Array:
        return (carry[0].taken < end) & carry[1].covered

    state, watch = jax.lax.while_loop(goes_on, one, (state, Watch.begun(mu.points.dtype)))
    return state, jnp.all(jnp.isfinite(state.points)), watch
