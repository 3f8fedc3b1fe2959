"""`FlowMap`: where a point is taken among the tokens of a measure. The flow as an in-context map."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from measureformer.errors import BlowUpError, StepLimitError
from measureformer.flows.integrate import NO_STEPS_LEFT, NOT_FINITE, Field, Solved, solve
from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings, name_of
from measureformer.flows.velocity import Depthwise, alike
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import at_own_atoms
from measureformer.maps.rows import all_rows
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import at_once, cast, common_dtype, host, is_traced


class FlowMap(AbstractInContextMap):
    """φ_t: (mu, x) ↦ the position at time t of a passive token that starts at x among the tokens of mu.

    An in-context map like any other, made by `traj.map(t)`.

    Statement   ∂_t φ_t[mu](x) = v[φ_t[mu]♯mu](φ_t[mu](x)), φ_0[mu](x) = x;  φ_{t+s} = φ_t ⋄ φ_s if v does not depend
                on depth
    Ref         furuya2025, equations (13) and (14).

    >>> import measureformer as mf
    >>> traj = mf.flow(mf.Linear([[1.0]]), mf.Discrete.dirac([1.0]), [0.0, 1.0])
    >>> (traj.map(1.0) @ traj.map(0.5))(mf.Discrete.dirac([3.0]), [2.0]).round(4).tolist()
    [8.9634]
    """

    velocity: Depthwise
    schedule: Schedule
    settings: Settings

    @property
    def in_dim(self) -> int | None:
        return self.velocity.maps[0].in_dim

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        if not is_traced(self, mu, x, t):
            # on concrete arrays it is asked why it has no finite value
            solved = at_once(eqx.filter_jit(with_passengers), *cast((self, mu, x, t), common_dtype(self, mu, x)))
            refuse_failure(solved, mu.with_points(solved.last[0]), self.settings)
            return self.velocity.settled(solved.states[1][-1])
        if at_own_atoms(mu, x, t):
            return particles(self.velocity, mu, self.schedule, self.settings, forward=True).states[-1]
        return self.velocity.settled(with_passengers(self, mu, x, t).states[1][-1])

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        self.velocity.maps[0].examine(mu, x, t)

    def __str__(self) -> str:
        return f"FlowMap({', '.join(map(str, self.velocity.maps))})"


def particles(
    velocity: Depthwise, mu: AbstractAtomic, schedule: Schedule, settings: Settings, *, forward: bool = False
) -> Solved:
    """The atoms of mu along the schedule."""
    solved = solve(field_of(velocity, mu), mu.points, schedule, settings, forward=forward)
    return solved._replace(states=velocity.settled(solved.states))


def field_of(velocity: Depthwise, mu: AbstractAtomic) -> Field:
    """Velocities of the atoms of mu as a function of their positions."""

    def field(index: int | Array, t: Any, points: Array) -> Array:
        return alike(velocity.at(index, t).at_atoms(mu.with_points(points)), points)

    return field


def with_passengers(phi: FlowMap, mu: AbstractAtomic, x: Array, t: Array | None) -> Solved:
    """The atoms of mu and passive tokens x, as pairs of arrays: attention reads only the former."""

    def field(index: int | Array, time: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        G, moved = phi.velocity.at(index, time), mu.with_points(state[0])
        return alike(G.at_atoms(moved), state[0]), alike(G.evaluate(moved, state[1], t), state[1])

    return solve(field, (mu.points, x), phi.schedule, phi.settings, forward=True)


def refuse_failure(solved: Solved, last: Any, settings: Settings) -> None:
    """Raise the named error of a solution that ended early, with its last valid state."""
    code, time = int(solved.code), float(solved.last_time)
    if code == NO_STEPS_LEFT:
        raise StepLimitError(
            got=f"{settings.limit} steps of {name_of(settings.solver)}, which lead to t = {time:.6g} only",
            need="fewer steps",
            do="Loosen the tolerances, rescale the velocity, or go on from the pair (time, measure) in `error.last`.",
            last=(time, last),
        )
    if code == NOT_FINITE:
        size = max(float(abs(host(leaf)).max(initial=0.0)) for leaf in jax.tree.leaves(getattr(last, "points", last)))
        raise BlowUpError(
            got=f"a flow that stops being finite soon after t = {time:.6g}, with coordinates up to {size:.3g}",
            need="a solution up to the last time",
            do="Ask for earlier times; `error.last` holds the pair (time, measure) of the last valid state.",
            last=(time, last),
        )
