"""One compiled call of diffrax for all flows of this folder: adaptive steps that end at the requested times."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from measureformer.errors import BlowUpError, OptionError, StepLimitError
from measureformer.numerics.arrays import floats, host
from measureformer.numerics.buckets import bucket
from measureformer.numerics.types import ArrayLike

MAX_STEPS = 200_000
ORDER = 8
"""Of Dopri8."""


class Solved(NamedTuple):
    """States at the requested times that were reached, and where the last step ended."""

    states: Any
    last_time: float
    last_state: Any
    stopped: bool
    """Whether the field asked to stop before the last time."""


class AbstractField(eqx.Module):
    """A velocity (t, y) ↦ y', pure JAX. If it `stops`, `stop` is asked after each step whether to end there."""

    stops: ClassVar[bool] = False

    @abc.abstractmethod
    def velocity(self, t: Any, y: Any) -> Any:
        """The derivative of the state."""

    def stop(self, t: Any, y: Any, start: Any) -> Any:
        """Whether to end here."""
        raise NotImplementedError


def checked_tolerance(rtol: ArrayLike, dtype: Any) -> float:
    """A positive relative tolerance, not finer than the arithmetic."""
    tolerance = float(host(floats(rtol, "rtol")))
    if not 0 < tolerance < 1:
        raise OptionError(got=f"rtol = {tolerance:g}", need="0 < rtol < 1", do="Leave it out for the default.")
    return max(tolerance, 50 * float(np.finfo(dtype).eps))


def solve(
    field: AbstractField,
    state: Any,
    times: np.ndarray,
    *,
    rtol: float,
    atol: float,
    seen: Callable[[Any], Any] = lambda state: state,
) -> Solved:
    """Integrate from times[0] on; a flow that ends early is refused, with its last state as `seen` by the user."""
    count = len(times)
    # a new number of times compiles nothing: the last one is repeated
    padded = np.concatenate([times, np.full(bucket(count) - count, times[-1])])
    leaf = jax.tree.leaves(state)[0]
    found = _solve(field, state, *(np.asarray(a, leaf.dtype) for a in (padded, rtol, atol)))
    states, saved, stopped, full = jax.tree.map(np.asarray, found)
    # the end of the last step stands behind the times that were reached
    end = int(np.isfinite(saved).sum()) - 1
    reached, last = min(end, count), float(saved[end])
    states, last_state = (jax.tree.map(lambda a, i=i: a[i], states) for i in (slice(reached), end))
    if full:
        raise StepLimitError(
            got=f"{MAX_STEPS} steps, which lead to t = {last:.6g} only",
            need=f"fewer steps for the way to t = {times[-1]:g}",
            do="Ask for earlier times, or for less accuracy with rtol; `error.last` is the pair (time, state) reached.",
            last=(last, seen(last_state)),
        )
    good = np.logical_and.reduce([_finite(a) for a in jax.tree.leaves(states)])
    ended = all(np.isfinite(a).all() for a in jax.tree.leaves(last_state))
    if not (good.all() and ended) or (reached < count and not stopped):
        # the first state is given, and finite
        i = max(int(good.argmin() if not good.all() else reached) - 1, 0)
        raise BlowUpError(
            got=f"a state that is not finite soon after t = {times[i]:.6g}",
            need="finite velocities along the flow",
            do="Ask for earlier times, or rescale the layer; `error.last` is the last valid pair (time, state).",
            last=(float(times[i]), seen(jax.tree.map(lambda a: a[i], states))),
        )
    return Solved(states, last, last_state, bool(stopped))


def _finite(states: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(states).all(axis=tuple(range(1, states.ndim))))


def _control(rtol: Any, atol: Any, times: Any) -> Any:
    import diffrax

    # tokens that merge need steps at the limit of stability: with the error before last in view, none is rejected there
    control = diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=0.3, icoeff=0.4)
    # steps end at the requested times, so that no interpolation is between the method and the answer
    return diffrax.ClipStepSizeController(control, step_ts=times)


def _first_step(field: AbstractField, t: Any, y: Any, rtol: Any, atol: Any) -> Any:
    """The starting step of Hairer, Nørsett and Wanner (II.4): diffrax 0.7 would take 0.01, whatever the field."""
    size = lambda a: jnp.sqrt(jnp.mean((a / (atol + rtol * jnp.abs(flat))) ** 2))  # noqa: E731
    flat, back = ravel_pytree(y)
    v = ravel_pytree(field.velocity(t, y))[0]
    tiny = 0.01 * size(flat) / jnp.maximum(size(v), 1e-5)
    later = ravel_pytree(field.velocity(t + tiny, back(flat + tiny * v)))[0]
    steepest = jnp.maximum(size(v), size(later - v) / tiny)
    first = jnp.minimum(100 * tiny, (0.01 / jnp.maximum(steepest, 1e-15)) ** (1 / ORDER))
    # the old remedy where that is no number: a zero state, or a velocity that is about to blow up
    return jnp.where(jnp.isfinite(first) & (first > 0), first, 0.01)


@eqx.filter_jit
def _solve(field: AbstractField, state: Any, times: Any, rtol: Any, atol: Any) -> Any:
    import diffrax

    def cond(t: Any, y: Any, args: Any, **_: Any) -> Any:
        return field.stop(t, y, times[0])

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field.velocity(t, y)),
        diffrax.Dopri8(),
        times[0],
        times[-1],
        _first_step(field, times[0], state, rtol, atol),
        state,
        saveat=diffrax.SaveAt(ts=times, t1=True),
        stepsize_controller=_control(rtol, atol, times),
        max_steps=MAX_STEPS,
        adjoint=diffrax.ForwardMode(),
        event=diffrax.Event(cond) if field.stops else None,
        throw=False,
    )
    full = solution.result == diffrax.RESULTS.max_steps_reached
    return solution.ys, solution.ts, solution.result == diffrax.RESULTS.event_occurred, full
