"""Plans for attention inside a larger program: made outside, handed in, and taken in the order of the calls.

A velocity says nothing about how its attention is computed. While it is traced within `following(plans)`, the first
call of `attend` takes the first of the plans, and so on; the first call beyond them is asked for, and answered with
zeros. So a program is traced once to learn the queries and keys of an attention, and once more to use its plan.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.grid.grid import Grid, grid_attention, relative_tolerance
from measureformer.attention.grid.plan import GridPlan
from measureformer.attention.grid.planner import make_plan

Plans = tuple[tuple[GridPlan, ...], ...]
"""For each call of `attend` one plan per head."""


class Follow:
    """How far a trace has come: plans that are left, what is asked for beyond them, and the errors of the others."""

    def __init__(self, plans: Plans) -> None:
        self.left = list(plans)
        self.asked: Any = None
        self.errors: list[Array] = []

    def attend(self, arrays: Any, times: Any) -> list[Any]:
        """Values, bound of their error, log-normaliser, bound of its error, as `attend` would."""
        q, k, v, log_weights = arrays
        if not self.left:
            self.asked = (arrays, times) if self.asked is None else self.asked
            rows = jnp.zeros(q.shape[:-1], q.dtype)
            return [jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype), rows, rows, rows]
        plans, lead = self.left.pop(0), q.shape[:-2]
        each = []
        for index, plan in zip(np.ndindex(*lead), plans, strict=True):
            own = log_weights if log_weights.ndim == 1 else log_weights[index]
            each.append(grid_attention(Grid(plan), (q[index], k[index], v[index], own), times, None))
        out = [jnp.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*each, strict=True)]
        self.errors.append(jnp.maximum(jnp.max(out[1]), jnp.max(out[3])))
        return out


_FOLLOWED: ContextVar[Follow | None] = ContextVar("followed", default=None)


@contextmanager
def following(plans: Plans) -> Generator[Follow]:
    """While something is traced: its attention takes these plans."""
    follow = Follow(plans)
    token = _FOLLOWED.set(follow)
    try:
        yield follow
    finally:
        _FOLLOWED.reset(token)


def followed() -> Follow | None:
    """What attention that may choose has to follow, if anything."""
    return _FOLLOWED.get()


def plans_of_heads(arrays: Any, times: Any, tol: float, margin: float) -> tuple[GridPlan, ...]:
    """One plan per head for concrete queries and keys, with which values and log-normaliser are within tol."""
    q, k, v, log_weights = (np.asarray(a, np.float64) for a in arrays)
    pair = None if times is None else (np.asarray(times[0], np.float64), np.asarray(times[1], np.float64))
    made = []
    for index in np.ndindex(*q.shape[:-2]):
        own = log_weights if log_weights.ndim == 1 else log_weights[index]
        wanted = relative_tolerance(tol, v[index][own > -np.inf])
        columns = 1 + v.shape[-1]
        made.append(make_plan(q[index], k[index], own, tol=wanted, margin=margin, columns=columns, times=pair))
    return tuple(made)
