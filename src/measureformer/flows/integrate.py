"""Solving y' = field(piece, y) with diffrax: adaptive steps under error control, or equal steps (a residual network).

Internal to flows. The field is constant in time on pieces, numbered by `piece`: layers of a network whose parameters
depend on depth. Errors are measured in the largest coordinate: unlike a mean over tokens, this does not change when
tokens are repeated or pad rows added, so that the flow stays a function of the measure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.flows.schedule import Schedule

LIMIT = 4096
"""Steps that an adaptive solver may take, rejected ones included."""

SOLVERS = {"tsit5": "Tsit5", "dopri8": "Dopri8", "heun": "Heun", "rk4": "RK4", "euler": "Euler"}
"""Name here -> name of the class, in diffrax or in `rk4.py`."""

WITHOUT_ERROR = ("euler", "rk4")
"""Methods without an error estimate, which need a number of steps."""

SUCCESS, NO_STEPS_LEFT, NOT_FINITE = 0, 1, 2

Field = Callable[[Any, Any], Any]


class Settings(eqx.Module):
    """How to solve; rtol and atol count for adaptive steps only."""

    solver: str = eqx.field(static=True)
    rtol: Any
    atol: Any
    tol: Any = None
    """Of attention on a grid; None if it streams."""


class Solved(NamedTuple):
    states: Any
    """The state at the times, stacked; NaN at those that were not reached."""
    code: Array
    last_time: Array
    last: Any
    """The last state that an adaptive solver accepted."""


def solve(field: Field, start: Any, plan: Schedule, settings: Settings, *, forward: bool = False) -> Solved:
    """The states at the times of the plan. Reverse mode has bounded memory; `forward` allows forward mode as well."""
    run = _by_equal_steps if plan.most else _adaptively
    # diffrax looks at the field half a dozen times: under jit it is traced only once
    return run(jax.jit(field), start, plan, settings, forward)


def _adaptively(field: Field, start: Any, plan: Schedule, settings: Settings, forward: bool) -> Solved:
    import diffrax

    dtype = jax.tree.leaves(start)[0].dtype
    t0, times = jnp.asarray(plan.start, dtype), stacked(plan.times, dtype)
    jumps = stacked(plan.jumps, dtype) if plan.jumps else None
    found = diffrax.diffeqsolve(
        in_pieces(field, jumps),
        solver_called(settings.solver),
        t0,
        times[-1],
        None,
        start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=controlled(t0, times[-1], jumps, settings),
        adjoint=_adjoint(forward),
        max_steps=LIMIT,
        throw=False,
    )
    assert found.ts is not None
    assert found.ys is not None
    (states, last), last_time = found.ys, found.ts[1][0]
    ok = found.result == diffrax.RESULTS.successful
    exhausted = found.result == diffrax.RESULTS.max_steps_reached
    code = jnp.where(ok, SUCCESS, jnp.where(exhausted, NO_STEPS_LEFT, NOT_FINITE))
    states = jax.tree.map(lambda y: _known(y, ok | (times <= last_time)), states)
    return Solved(states, code, last_time, jax.tree.map(lambda y: y[0], last))


def _by_equal_steps(field: Field, start: Any, plan: Schedule, settings: Settings, forward: bool) -> Solved:
    """In units of steps, so that a step of Euler's method is y + h · v in floating point too: a residual layer."""
    import diffrax

    dtype = jax.tree.leaves(start)[0].dtype

    def advance(y: Any, segment: Any) -> tuple[Any, Any]:
        step, count, piece = segment
        found = diffrax.diffeqsolve(
            in_steps(field, step, piece),
            solver_called(settings.solver),
            jnp.zeros((), dtype),
            count.astype(dtype),
            jnp.ones((), dtype),
            y,
            saveat=diffrax.SaveAt(t1=True),
            adjoint=_adjoint(forward),
            max_steps=plan.most,
            throw=False,
        )
        y = jax.tree.map(lambda saved: saved[0], found.ys)
        return y, y

    segments = stacked(plan.steps, dtype), stacked(plan.counts, int), stacked(plan.pieces, int)
    _, states = jax.lax.scan(advance, start, segments)
    states = jax.tree.map(lambda y: y[stacked(plan.ends, int)], states)
    finite = jnp.all(jnp.stack([_finite(y) for y in jax.tree.leaves(states)]), axis=0)
    times = jnp.concatenate([jnp.asarray(plan.start, dtype)[None], stacked(plan.times, dtype)])
    history = jax.tree.map(lambda y, ys: jnp.concatenate([y[None], ys]), start, states)
    last = jnp.sum(jnp.cumprod(finite.astype(int)))
    code = jnp.where(jnp.all(finite), SUCCESS, NOT_FINITE)
    return Solved(states, code, times[last], jax.tree.map(lambda y: y[last], history))


def controlled(t0: Array, t1: Array, jumps: Array | None, settings: Settings) -> Any:
    """The control of adaptive steps from t0 to t1."""
    import diffrax

    controller = diffrax.PIDController(
        rtol=jnp.asarray(settings.rtol, t0.dtype),
        atol=jnp.asarray(settings.atol, t0.dtype),
        norm=_largest,
        # a smaller step is lost in the rounding of the time: the solution is about to overflow
        dtmin=16 * float(jnp.finfo(t0.dtype).eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1)),
        force_dtmin=False,
    )
    return controller if jumps is None else diffrax.ClipStepSizeController(controller, jump_ts=jumps)


def in_pieces(field: Field, jumps: Array | None) -> Any:
    """The field as a function of time, whose piece changes at the jumps."""
    import diffrax

    return diffrax.ODETerm(lambda t, y, _: field(0 if jumps is None else jnp.searchsorted(jumps, t, side="right"), y))


def in_steps(field: Field, step: Array, piece: Array) -> Any:
    """One piece of the field, in units of steps."""
    import diffrax

    return diffrax.ODETerm(lambda s, y, _: jax.tree.map(lambda v: step * v, field(piece, y)))


def solver_called(name: str) -> Any:
    """The method of this name."""
    if name == "rk4":
        from measureformer.flows.rk4 import RK4

        return RK4()
    import diffrax

    return getattr(diffrax, SOLVERS[name])()


def _adjoint(forward: bool) -> Any:
    import diffrax

    # recursive checkpoints are the fastest way back, but know no forward mode, which singular values need
    return diffrax.DirectAdjoint() if forward else diffrax.RecursiveCheckpointAdjoint()


def stacked(scalars: tuple[Any, ...], dtype: Any) -> Array:
    """Scalars of a plan as one array."""
    return jnp.stack([jnp.asarray(value, dtype) for value in scalars])


def _largest(tree: Any) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree)]))


def _finite(states: Array) -> Array:
    return jnp.all(jnp.isfinite(states), axis=tuple(range(1, states.ndim)))


def _known(states: Array, reached: Array) -> Array:
    return jnp.where(reached.reshape(-1, *[1] * (states.ndim - 1)), states, jnp.nan)
