"""Maps that know positions: a sequence of n tokens is a measure on space–time, token i at time (i + 1)/n, in slot i."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import NoClosedFormError, TimeError
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import host, is_traced, needs_jax
from measureformer.numerics.types import ArrayLike

NEAR = 1e-3
"""How far from its slot a time may be, in slots: float32 at n = 10⁴ is that far."""


def slot(times: Any, n: int) -> Array:
    """The slot of each time."""
    return jnp.clip(jnp.round(times * n).astype(int) - 1, 0, n - 1)


def slots(mu: Any, n: int) -> tuple[Array, Array]:
    """Points (n, d) and log-masses (n,) of the slots; an empty slot is at 0 with mass 0."""
    at, lw = slot(mu.times, n), mu.log_weights
    top = jax.ops.segment_max(lw, at, n)
    top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0, top))
    mass = jnp.exp(lw - top[at])
    total = jax.ops.segment_sum(mass, at, n)
    there = total > 0
    safe = jnp.where(there, total, 1)
    points = jax.ops.segment_sum(mass[:, None] * mu.points, at, n) / safe[:, None]
    return points, jnp.where(there, jnp.log(safe) + top, -jnp.inf)


def refuse_off_slots(mu: AbstractMeasure, t: ArrayLike | None, n: int, name: str) -> None:
    """Refuse times between slots, and a slot with two different tokens. Tracers are not checked."""
    if not isinstance(mu, AbstractAtomic):
        raise NoClosedFormError(
            got=f"{name} on a {type(mu).__name__}", need="tokens at positions", do="Use mf.SpaceTime.sequence(tokens)."
        )
    if is_traced(mu, t) or needs_jax(mu):
        return
    own: Any = getattr(mu, "times", None)
    for what, times in (("an atom", host(own)), ("a query", host(t))):
        place = np.asarray(times) * n
        off = np.abs(place - np.clip(np.round(place), 1, n)) > NEAR
        if off.any():
            raise TimeError(
                got=f"{what} at time {float(np.asarray(times)[off][0]):g} for {name} of {n} tokens",
                need=f"times 1/{n}, 2/{n}, …, 1",
                do="It is made for one number of tokens: use mf.SpaceTime.sequence(tokens) with as many.",
            )
    lw, times, points = (cast("np.ndarray", host(part)) for part in (mu.log_weights, own, mu.points))
    felt = lw > -np.inf
    place = np.round(times[felt] * n).astype(int)
    order = np.argsort(place, kind="stable")
    place, points = place[order], points[felt][order]
    twice = (place[1:] == place[:-1]) & (points[1:] != points[:-1]).any(axis=1)
    if twice.any():
        raise TimeError(
            got=f"two different tokens at position {place[:-1][twice][0] - 1}",
            need="one token at each position",
            do="Give every token a time of its own, as mf.SpaceTime.sequence does.",
        )
