"""Numbers of operations of programs, counted from their traces: they are the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params


def operations(function: Callable[..., Any], *arguments: Any) -> int:
    """How many numbers the program of the function computes on the way, with the terms of its sums and products."""
    return _of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of(jaxpr: Any) -> int:
    return sum(map(_of_step, jaxpr.eqns))


def _of_step(step: Any) -> int:
    name, inside = step.primitive.name, [_of(getattr(part, "jaxpr", part)) for part in jaxprs_in_params(step.params)]
    if name == "while":
        raise NotImplementedError("a loop whose length the trace does not tell")
    if name == "cond":
        return max(inside)
    if inside:
        return step.params.get("length", 1) * sum(inside)
    made = sum(math.prod(out.aval.shape) for out in step.outvars)
    if name == "dot_general":
        (contracted, _), _ = step.params["dimension_numbers"]
        return made * math.prod(step.invars[0].aval.shape[axis] for axis in contracted)
    return max(made, *(math.prod(part.aval.shape) for part in step.invars)) if name.startswith("reduce") else made
