"""A walk whose attention follows plans for a grid, made on the host and made anew when points have left their cells.

What a plan looks like depends on the points it was made for. These are part of the state that is saved, so that a run
that goes on later makes the very plans that it would have used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from measureformer.attention.grid import following, plans_of_heads
from measureformer.errors import OptionError, PlanError
from measureformer.flows.adaptive import AdaptiveWalk
from measureformer.flows.flow_map import Depthwise, field_of
from measureformer.flows.integrate import NOT_FINITE
from measureformer.flows.walk import AbstractWalk, Stand, Went
from measureformer.flows.watch import Plans

MARGINS = (0.25, 0.5, 1.0)
"""By which part of their half-widths cells reach beyond the points in them: the next one if a single step left them."""
SHARE = 0.7
"""Of the tolerance that a plan aims at: the bound of values grows while tokens spread."""


class Held(NamedTuple):
    """The state of the walk, and what its plans were made for."""

    inner: Any
    origin: Any
    piece: Any
    margin: Any
    """Which of MARGINS."""


class Following(AbstractWalk):
    """Takes the steps of another walk, with plans that cover them."""

    def __init__(self, walk: AbstractWalk) -> None:
        super().__init__(walk.layers, walk.mu, walk.plan, walk.settings, walk.mesh)
        self.walk = walk
        self._made: Any = None
        self._calls: int | None = None
        walk.plans = ()

    def start(self) -> Stand:
        begun = self.walk.start()
        return begun._replace(state=Held(begun.state, self.mu.points, np.asarray(0), np.asarray(0)))

    def go(self, stand: Stand, budget: int) -> Went:
        held: Held = stand.state
        self._follow(held)
        inner = stand._replace(state=held.inner)
        went = self.walk.go(inner, budget)
        held = held._replace(inner=went.stand.state)
        if not went.covered:
            return went._replace(stand=self._again(went.stand, held))
        return went._replace(stand=went.stand._replace(state=held))

    def _again(self, stand: Stand, held: Held) -> Stand:
        """Before the step that has left the cells, with what to try next."""
        points, piece, margin = stand.state.points, self.walk.piece(stand), int(held.margin)
        fresh = held.origin is points or np.array_equal(np.asarray(held.origin), np.asarray(points))
        if not fresh or int(held.piece) != piece:
            return stand._replace(state=held._replace(origin=points, piece=np.asarray(piece)))
        if margin + 1 < len(MARGINS):
            return stand._replace(state=held._replace(margin=np.asarray(margin + 1)))
        if not isinstance(self.walk, AdaptiveWalk):
            raise PlanError(
                got=f"steps of {float(self.plan.steps[stand.segment]):g}, in which tokens leave the cells of any grid",
                need="steps short enough for the grid",
                do="Take more steps, leave steps out, or leave tol out.",
            )
        shorter = held.inner.begin + (held.inner.end - held.inner.begin) / 2
        if not shorter > held.inner.begin:
            return stand._replace(state=held, code=NOT_FINITE)
        return stand._replace(state=held._replace(inner=held.inner._replace(end=shorter)))

    def _follow(self, held: Held) -> None:
        """The plans for these points, which are kept while nothing changes."""
        what = held.origin, int(held.piece), int(held.margin)
        if self._made is None or self._made[0] is not what[0] or self._made[1:] != what[1:]:
            self.walk.plans = self._planned(*what)
            self._made = what

    def _planned(self, origin: Any, piece: int, margin: int) -> Plans:
        """One after the other: what the second attention is asked depends on what the first one says."""
        plans: Plans = ()
        while self._calls is None or len(plans) < self._calls:
            asked = self._ask(piece, origin, plans)
            if asked is None:
                self._calls = len(plans)
                break
            arrays, times = jax.tree.map(np.asarray, asked)
            plans = (*plans, plans_of_heads(arrays, times, SHARE * float(self.settings.tol), MARGINS[margin]))
        if not plans:
            raise OptionError(
                got="tol for a velocity without softmax attention",
                need="an attention, whose error tol is a bound of",
                do="Leave tol out.",
            )
        return plans

    def _ask(self, piece: int, origin: Any, plans: Plans) -> Any:
        try:
            return _asked(self.layers, self.mu, np.asarray(piece), origin, plans)
        except jax.errors.UnexpectedTracerError as error:
            raise OptionError(
                got="tol for a velocity with attention inside of a loop, such as Sinkhorn's",
                need="attention that is computed once for each velocity",
                do="Leave tol out.",
            ) from error

    def valid(self, stand: Stand) -> tuple[Any, Any]:
        return self.walk.valid(stand._replace(state=stand.state.inner))

    def time(self, stand: Stand) -> float:
        return self.walk.time(stand._replace(state=stand.state.inner))

    def piece(self, stand: Stand) -> int:
        return self.walk.piece(stand._replace(state=stand.state.inner))

    def possible(self, stand: Stand) -> bool:
        held: Held = stand.state
        known = 0 <= int(held.margin) < len(MARGINS) and 0 <= int(held.piece) < len(self.layers.maps)
        return known and self.walk.possible(stand._replace(state=held.inner))


@eqx.filter_jit
def _asked(layers: Depthwise, mu: Any, piece: Any, points: Any, plans: Plans) -> Any:
    """Queries, keys, values, log-weights and times of the attention that comes after these plans; None if none does."""
    with following(plans) as follow:
        field_of(layers, mu)(piece, points)
    return follow.asked
