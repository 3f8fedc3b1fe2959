"""A flow that is taken some steps at a time: what lies between two calls is small, complete, and can be kept on disk.

The first driver of `flow` is one compiled program from the first time to the last, which has derivatives. Here the same
steps, of the same solver under the same control, are taken in a Python loop around one compiled program that stops at
the next of the times, or after a number of steps. Where it stops changes no bit of the answer.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from measureformer.flows.flow_map import Depthwise, field_of
from measureformer.flows.integrate import SUCCESS, Settings
from measureformer.flows.schedule import Schedule
from measureformer.flows.watch import Plans, watching
from measureformer.numerics.arrays import on_device
from measureformer.parallel.mesh import TOKENS, over, placed


class Stand(NamedTuple):
    """How far a walk has come: all that the next step needs."""

    state: Any
    """Arrays: the points, and what solver and control remember."""
    reached: int = 0
    """How many of the times after the start."""
    steps: int = 0
    """Adaptive steps since the last of them, rejected ones included."""
    segment: int = 0
    """Which of the segments of equal steps."""
    code: int = SUCCESS
    error: float = 0.0
    """Largest error bound of attention in any velocity so far, if it follows plans."""


class Went(NamedTuple):
    """What a call has brought: where the walk stands, the points at times reached, how many steps it took."""

    stand: Stand
    found: list[Any]
    taken: int
    covered: bool = True
    """False if it ended before a step whose points would have left the cells of the plans."""


class AbstractWalk(abc.ABC):
    """From the start of a plan to its end, some steps at a time; rows stay spread over the mesh, if there is one."""

    def __init__(self, layers: Depthwise, mu: Any, plan: Schedule, settings: Settings, mesh: Mesh | None) -> None:
        self.layers, self.mu, self.plan, self.settings, self.mesh = layers, mu, plan, settings, mesh
        self.dtype = mu.points.dtype
        # of attention, which streams without
        self.plans: Plans | None = None
        # in the precision of the points, as the compiled programs see them
        self.times = [np.asarray(t, self.dtype) for t in plan.times]

    def done(self, stand: Stand) -> bool:
        return stand.code != SUCCESS or stand.reached == len(self.times)

    @abc.abstractmethod
    def start(self) -> Stand:
        """Before the first step."""

    @abc.abstractmethod
    def go(self, stand: Stand, budget: int) -> Went:
        """On to the next time, or `budget` steps."""

    @abc.abstractmethod
    def valid(self, stand: Stand) -> tuple[Any, Any]:
        """Time and points of the last state that is known to be good."""

    @abc.abstractmethod
    def time(self, stand: Stand) -> float:
        """The time that has been reached."""

    @abc.abstractmethod
    def piece(self, stand: Stand) -> int:
        """Which of the layers comes next."""

    @abc.abstractmethod
    def possible(self, stand: Stand) -> bool:
        """Whether the walk can have come to these counts, which may be anybody's."""

    def placed(self, array: np.ndarray) -> Any:
        """An array of the state where it belongs."""
        if self.mesh is None:
            return on_device(array)
        return placed(array, over(self.mesh, *_axes(array.shape, self.mu.points.shape)))

    def _call(self, program: Any, *arguments: Any) -> Any:
        if self.mesh is None:
            return program(*arguments, None)
        # the mesh is set while the program is traced, so attention goes round the ring
        with jax.set_mesh(self.mesh):
            return program(*arguments, self.mesh)


def driven_by(layers: Depthwise, mu: Any, plans: Plans | None, mesh: Mesh | None) -> Any:
    """The velocity, whose attention follows the plans if there are any."""
    field = field_of(layers, mu)
    # diffrax looks at the field half a dozen times: under jit it is traced only once
    if plans is not None:
        return jax.jit(watching(field, plans))
    return jax.jit(lambda index, points: spread_over(field(index, points), points, mesh))


def plain(solver: Any) -> Any:
    """The solver with loops over stages that have no derivative, and no cost for one."""
    return type(solver)(scan_kind="lax") if hasattr(solver, "scan_kind") else solver


def chosen(keep: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)


def spread_over(tree: Any, points: Array, mesh: Mesh | None) -> Any:
    """With rows over the mesh, in arrays of the shape of the points and in stacks of such; all else everywhere."""
    if mesh is None:
        return tree

    def constrained(leaf: Any) -> Array:
        return jax.lax.with_sharding_constraint(leaf, over(mesh, *_axes(jnp.shape(leaf), points.shape)))

    return jax.tree.map(constrained, tree)


def _axes(shape: tuple[int, ...], points: tuple[int, ...]) -> list[str | None]:
    return [TOKENS] if shape == points else [None, TOKENS] if shape[1:] == points else []
