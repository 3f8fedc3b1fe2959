"""Steps whose attention follows plans: each carries along how large the error bounds were.

A solver passes on no more than the state. So a bound is the velocity of one more component, which nobody reads; what
the stages of a step have said of it is found among their increments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention.grid import following
from measureformer.attention.grid.follow import Plans as Plans
from measureformer.flows.integrate import Field


class Watched(NamedTuple):
    """Points, and a component whose velocity is the largest error bound of attention."""

    points: Any
    mark: Any


class Watch(NamedTuple):
    """The largest bound in steps that were taken, and whether the last one kept to the cells."""

    error: Array
    covered: Array

    @staticmethod
    def begun(dtype: Any) -> Watch:
        return Watch(jnp.zeros((), dtype), jnp.asarray(True))

    def then(self, worst: Array, covered: Array) -> Watch:
        return Watch(jnp.where(covered, jnp.maximum(self.error, worst), self.error), covered)


def watching(field: Field, plans: Plans) -> Field:
    """The field with attention that takes these plans, in the order of its calls."""

    def both(index: Any, y: Watched) -> Watched:
        with following(plans) as follow:
            velocity = field(index, y.points)
        worst = jnp.max(jnp.stack(follow.errors)) if follow.errors else jnp.zeros_like(y.mark)
        return Watched(velocity, worst.astype(y.mark.dtype))

    return both


def watched(points: Array, plans: Plans | None) -> Any:
    """The state that a solver sees."""
    return points if plans is None else Watched(points, jnp.zeros((), points.dtype))


def unwatched(made: Any, plans: Plans | None, step: Array) -> tuple[Any, ...]:
    """What a solver's step has made, for the points alone, and the largest bound among its stages."""
    y, error, inside, remembered, _ = made
    if plans is None:
        return y, error, inside, remembered, jnp.zeros((), y.dtype)
    # increments are velocities times the step; a method without stages has only one
    increments = inside["k"].mark if "k" in inside else inside["y1"].mark
    # two roundings by which a bound may have become smaller
    worst = jnp.max(increments) / step * (1 + 4 * jnp.finfo(y.points.dtype).eps)
    error = None if error is None else error.points
    return y.points, error, jax.tree.map(lambda part: part.points, inside, is_leaf=_is_watched), remembered, worst


def _is_watched(part: Any) -> bool:
    return isinstance(part, Watched)
