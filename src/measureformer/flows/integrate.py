"""Solving y' = field(piece, y) with diffrax: adaptive steps under error control, or equal steps (a residual network).

Internal to flows. The field is constant in time on pieces, numbered by `piece`: layers of a network whose parameters
depend on depth. Errors are measured in the largest coordinate: unlike a mean over tokens, this does not change when
tokens are repeated or pad rows added, so that the flow stays a function of the measure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings

SUCCESS, NO_STEPS_LEFT, NOT_FINITE, STOPPED = 0, 1, 2, 3

CHECKPOINTS = 90
"""States that reverse mode stores."""

Field = Callable[[Any, Any, Any], Any]
"""(piece, t, y) ↦ y'."""


class Solved(NamedTuple):
    states: Any
    """The state at the times, stacked; NaN at those that were not reached."""
    code: Array
    last_time: Array
    last: Any
    """The last state that an adaptive solver accepted."""


def solve(
    field: Field,
    start: Any,
    schedule: Schedule,
    settings: Settings,
    *,
    forward: bool = False,
    stop: Callable[[Any, Any], Any] | None = None,
) -> Solved:
    """The states at the times of the schedule. Reverse mode has bounded memory; `forward` allows forward mode as well.

    Adaptive steps end where `stop(t, y)` holds after a step.
    """
    # diffrax looks at the field half a dozen times: under jit it is traced only once
    field = jax.jit(field)
    if schedule.most:
        return _by_equal_steps(field, start, schedule, settings, forward)
    return _adaptively(field, start, schedule, settings, forward, stop)


def _adaptively(field: Field, start: Any, schedule: Schedule, settings: Settings, forward: bool, stop: Any) -> Solved:
    import diffrax

    dtype = jax.tree.leaves(start)[0].dtype
    t0, times = jnp.asarray(schedule.start, dtype), stacked(schedule.times, dtype)
    jumps = stacked(schedule.jumps, dtype) if schedule.jumps else None
    found = diffrax.diffeqsolve(
        in_pieces(field, jumps),
        settings.solver,
        t0,
        times[-1],
        None,
        start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=controlled(t0, times[-1], jumps, settings),
        adjoint=_adjoint(forward),
        max_steps=settings.limit,
        event=None if stop is None else diffrax.Event(lambda t, y, args, **_: stop(t, y)),
        throw=False,
    )
    assert found.ts is not None
    assert found.ys is not None
    (states, last), last_time = found.ys, found.ts[1][0]
    ok = found.result == diffrax.RESULTS.successful
    exhausted = found.result == diffrax.RESULTS.max_steps_reached
    stopped = found.result == diffrax.RESULTS.event_occurred
    failure = jnp.where(exhausted, NO_STEPS_LEFT, jnp.where(stopped, STOPPED, NOT_FINITE))
    code = jnp.where(ok, SUCCESS, failure)
    states = jax.tree.map(lambda y: _known(y, ok | (times <= last_time)), states)
    return Solved(states, code, last_time, jax.tree.map(lambda y: y[0], last))


def _by_equal_steps(field: Field, start: Any, schedule: Schedule, settings: Settings, forward: bool) -> Solved:
    """In units of steps, so that a step of Euler's method is y + h · v in floating point too: a residual layer."""
    import diffrax

    dtype = jax.tree.leaves(start)[0].dtype

    def advance(y: Any, segment: Any) -> tuple[Any, Any]:
        begin, step, count, piece = segment
        found = diffrax.diffeqsolve(
            in_steps(field, begin, step, piece),
            settings.solver,
            jnp.zeros((), dtype),
            count.astype(dtype),
            jnp.ones((), dtype),
            y,
            saveat=diffrax.SaveAt(t1=True),
            adjoint=_adjoint(forward),
            max_steps=schedule.most,
            throw=False,
        )
        y = jax.tree.map(lambda saved: saved[0], found.ys)
        return y, y

    steps, counts = stacked(schedule.steps, dtype), stacked(schedule.counts, int)
    lengths = steps * counts.astype(dtype)
    begins = jnp.asarray(schedule.start, dtype) + jnp.cumsum(lengths) - lengths
    segments = begins, steps, counts, stacked(schedule.pieces, int)
    _, states = jax.lax.scan(advance, start, segments)
    states = jax.tree.map(lambda y: y[stacked(schedule.ends, int)], states)
    finite = jnp.all(jnp.stack([_finite(y) for y in jax.tree.leaves(states)]), axis=0)
    times = jnp.concatenate([jnp.asarray(schedule.start, dtype)[None], stacked(schedule.times, dtype)])
    history = jax.tree.map(lambda y, ys: jnp.concatenate([y[None], ys]), start, states)
    last = jnp.sum(jnp.cumprod(finite.astype(int)))
    code = jnp.where(jnp.all(finite), SUCCESS, NOT_FINITE)
    return Solved(states, code, times[last], jax.tree.map(lambda y: y[last], history))


def controlled(t0: Array, t1: Array, jumps: Array | None, settings: Settings) -> Any:
    """The control of adaptive steps from t0 to t1."""
    import diffrax

    given = settings.control
    own = {name: jnp.asarray(getattr(given, name), t0.dtype) for name in ("rtol", "atol")}
    if given.dtmin is None:
        # a smaller step is lost in the rounding of the time: the solution is about to overflow
        own["dtmin"] = 16 * float(jnp.finfo(t0.dtype).eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
        given = dataclasses.replace(given, force_dtmin=False)
    controller = dataclasses.replace(given, **own)
    return controller if jumps is None else diffrax.ClipStepSizeController(controller, jump_ts=jumps)


def in_pieces(field: Field, jumps: Array | None) -> Any:
    """The field as a function of time, whose piece changes at the jumps."""
    import diffrax

    def piece(t: Any) -> Any:
        return 0 if jumps is None else jnp.searchsorted(jumps, t, side="right")

    return diffrax.ODETerm(lambda t, y, _: field(piece(t), t, y))


def in_steps(field: Field, begin: Array, step: Array, piece: Array) -> Any:
    """One piece of the field, in units of steps."""
    import diffrax

    def scaled(s: Any, y: Any, _: Any) -> Any:
        return jax.tree.map(lambda v: step * v, field(piece, begin + s * step, y))

    return diffrax.ODETerm(scaled)


def _adjoint(forward: bool) -> Any:
    import diffrax

    # recursive checkpoints are the fastest way back, but know no forward mode, which singular values need
    return diffrax.DirectAdjoint() if forward else diffrax.RecursiveCheckpointAdjoint(checkpoints=CHECKPOINTS)


def stacked(scalars: tuple[Any, ...], dtype: Any) -> Array:
    """Scalars of a schedule as one array."""
    return jnp.stack([jnp.asarray(value, dtype) for value in scalars])


def _finite(states: Array) -> Array:
    return jnp.all(jnp.isfinite(states), axis=tuple(range(1, states.ndim)))


def _known(states: Array, reached: Array) -> Array:
    return jnp.where(reached.reshape(-1, *[1] * (states.ndim - 1)), states, jnp.nan)
