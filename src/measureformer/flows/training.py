"""What training computes: the flow of stacked layers, and the loss. Pure JAX; goes through jit and vmap.

Layers are kept as stacks over the pieces of depth, so that one loop goes through them and a batch of networks is one
more axis. A head with V = W = 0 stays so under every update: networks with fewer heads fit into the arrays of those
with more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError
from measureformer.flows.schedule import Schedule, scheduled
from measureformer.flows.settings import Accuracy, Settings, settings_of
from measureformer.maps.attention import Attention
from measureformer.measures import Discrete
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import check_fields
from measureformer.numerics.random import normal
from measureformer.numerics.types import Key


@dataclass(frozen=True)
class Depth:
    """Discretisation of the depth [0, 1] of a trained flow.

    Arguments:
        pieces: number of intervals of equal length on which the heads are constant.
        solver: "euler", a residual network, or "rk4".
        steps: equal steps of the solver in each piece.

    >>> import measureformer as mf
    >>> mf.flows.Depth(3, solver="euler", steps=4).layers
    12
    """

    pieces: int
    solver: Literal["euler", "rk4"] = "rk4"
    steps: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.solver not in ("euler", "rk4"):
            raise OptionError(got=f"solver = {self.solver!r}", need="one of euler, rk4", do="Leave it out.")
        positive_int(self.pieces, "pieces")
        positive_int(self.steps, "steps")

    @property
    def layers(self) -> int:
        """Total number of steps of the solver."""
        return self.pieces * self.steps

    @property
    def schedule(self) -> Schedule:
        """The schedule of a flow that is evaluated as it was trained."""
        return scheduled(np.array([0.0, 1.0]), self.pieces, self.layers).until(1.0)

    @property
    def settings(self) -> Settings:
        """Settings of such a flow."""
        return settings_of(self.solver, self.steps, Accuracy())[0]


class Stack(NamedTuple):
    """Heads of all layers: Q, K, V, W of `Attention` with the pieces of the depth as first axis, (p, h, d, d)."""

    Q: Any
    K: Any
    V: Any
    W: Any


class Problem(NamedTuple):
    """Contexts, queries and targets in arrays of one size; padded atoms have no mass, padded queries no share."""

    points: Any
    """(k, n, d)"""
    log_weights: Any
    """(k, n)"""
    x: Any
    """(k, m, d)"""
    y: Any
    """(k, m, d)"""
    shares: Any
    """(k, m): what each query counts in the loss; they sum to 1."""


def resting(key: Key, dim: int, heads: int, pieces: int) -> Stack:
    """Gaussian Q, K, V and W = 0: the flow starts as the identity."""
    Q, K, V = normal(key, (3, pieces, heads, dim, dim)) / np.sqrt(dim)
    return Stack(Q, K, V, np.zeros_like(V))


def loss(stack: Stack, problem: Problem, depth: Depth) -> Array:
    """Σ shares · |T[mu](x) − y|², the mean over all queries."""

    def one(points: Array, log_weights: Array, x: Array, y: Array, shares: Array) -> Array:
        return jnp.sum(shares * jnp.sum((moved(stack, Discrete(points, log_weights), x, depth) - y) ** 2, axis=1))

    return jnp.sum(jax.vmap(one)(*problem))


def moved(stack: Stack, mu: Discrete, x: Array, depth: Depth) -> Array:
    """T[mu](x): atoms and queries move together; queries are passive."""
    n, rows, dtype = mu.n, jnp.concatenate([mu.points, x]), x.dtype

    def velocity(heads: Stack, rows: Array) -> Array:
        layer = Attention(*heads, scale=jnp.ones((), dtype))
        return layer.evaluate(mu.with_points(rows[:n]), rows, None)

    step, size = _STEPS[depth.solver], 1 / (stack.Q.shape[0] * depth.steps)

    # going back, a piece is computed again: memory for a state per piece, and for the steps of one piece
    @jax.checkpoint
    def through_piece(rows: Array, heads: Stack) -> tuple[Array, None]:
        def one(rows: Array, _: None = None) -> tuple[Array, None]:
            return step(lambda rows: velocity(heads, rows), rows, size), None

        # a loop of one turn would be compiled like any other
        return one(rows) if depth.steps == 1 else jax.lax.scan(one, rows, None, depth.steps)

    return jax.lax.scan(through_piece, rows, stack)[0][n:]


def _euler(velocity: Any, rows: Array, size: float) -> Array:
    return rows + size * velocity(rows)


def _rk4(velocity: Any, rows: Array, size: float) -> Array:
    first = velocity(rows)
    second = velocity(rows + size / 2 * first)
    third = velocity(rows + size / 2 * second)
    return rows + size / 6 * (first + 2 * second + 2 * third + velocity(rows + size * third))


_STEPS = {"euler": _euler, "rk4": _rk4}


class FlowLoss(eqx.Module):
    """The loss as an objective of the loop that trains: all data are seen in each update."""

    problem: Problem
    depth: Depth = eqx.field(static=True)

    def __call__(self, stack: Stack, key: Any, step: Any) -> Array:
        return loss(stack, self.problem, self.depth)
