"""Attention that follows plans for a grid: made on the host, and made anew when points have left their cells.

What a plan looks like depends on the points it was made for. These are part of the state that is saved, so that a run
that is resumed makes the very plans that it would have used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from measureformer.attention.grid import following, plans_of_heads
from measureformer.attention.grid.follow import Plans
from measureformer.errors import OptionError, PlanError
from measureformer.flows.flow_map import field_of
from measureformer.flows.velocity import Depthwise

MARGINS = (0.25, 0.5, 1.0)
"""By which part of their half-widths cells reach beyond the points in them: the next one if a single step left them."""
SHARE = 0.7
"""Of the tolerance that a plan aims at: the bound of values grows while tokens spread."""


class Held(NamedTuple):
    """What plans were made for."""

    origin: Any
    piece: Any
    margin: Any
    """Which of MARGINS."""


class Follower:
    """The plans for a velocity, one after the other."""

    def __init__(self, layers: Depthwise, mu: Any, tol: float) -> None:
        self.layers, self.mu, self.tol = layers, mu, tol
        self._made: tuple[Held, Plans] | None = None
        self._calls: int | None = None

    def plans(self, held: Held | None, t: Any) -> Plans:
        """The plans for these points, which are kept while nothing changes."""
        assert held is not None  # there is one wherever there is a follower
        if self._made is None or not _same(self._made[0], held):
            self._made = held, self._planned(held, t)
        return self._made[1]

    def next(self, held: Held | None, points: Any, piece: int) -> Held | None:
        """What to plan for after a step from these points has left the cells; None if only a shorter step helps."""
        assert held is not None
        fresh = held.origin is points or np.array_equal(np.asarray(held.origin), np.asarray(points))
        if not fresh or int(held.piece) != piece:
            return held._replace(origin=points, piece=np.asarray(piece))
        margin = int(held.margin) + 1
        return held._replace(margin=np.asarray(margin)) if margin < len(MARGINS) else None

    def refuse_long(self, step: float) -> None:
        """Refuse equal steps, which cannot be made shorter."""
        raise PlanError(
            got=f"steps of {step:g}, in which tokens leave the cells of any grid",
            need="steps short enough for the grid",
            do="Take more steps, leave steps out, or leave method out.",
        )

    def knows(self, held: Held) -> bool:
        """Whether these can have been written by a run."""
        return 0 <= int(held.margin) < len(MARGINS) and 0 <= int(held.piece) < len(self.layers.maps)

    def _planned(self, held: Held, t: Any) -> Plans:
        """One after the other: what the second attention is asked depends on what the first one says."""
        plans: Plans = ()
        while self._calls is None or len(plans) < self._calls:
            asked = self._ask(held, t, plans)
            if asked is None:
                self._calls = len(plans)
                break
            arrays, times = jax.tree.map(np.asarray, asked)
            plans = (*plans, plans_of_heads(arrays, times, SHARE * self.tol, MARGINS[int(held.margin)]))
        if not plans:
            raise OptionError(
                got="a grid for a velocity without softmax attention",
                need="an attention, whose error tol bounds",
                do="Leave method out.",
            )
        return plans

    def _ask(self, held: Held, t: Any, plans: Plans) -> Any:
        try:
            return _asked(self.layers, self.mu, np.asarray(held.piece), t, held.origin, plans)
        except jax.errors.UnexpectedTracerError as error:
            raise OptionError(
                got="a grid for a velocity with attention inside of a loop, such as Sinkhorn's",
                need="attention that is computed once for each velocity",
                do="Leave method out.",
            ) from error


def _same(one: Held, other: Held) -> bool:
    return one.origin is other.origin and all(int(a) == int(b) for a, b in zip(one[1:], other[1:], strict=True))


@eqx.filter_jit
def _asked(layers: Depthwise, mu: Any, piece: Any, t: Any, points: Any, plans: Plans) -> Any:
    """Queries, keys, values, log-weights and times of the attention that comes after these plans; None if none does."""
    with following(plans) as follow:
        field_of(layers, mu)(piece, t, points)
    return follow.asked
