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
from measureformer.flows.integrate import Settings
from measureformer.flows.schedule import Schedule, planned
from measureformer.maps.attention import Attention
from measureformer.measures import Discrete
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.random import normal


@dataclass(frozen=True)
class Training:
    """How a flow is trained: the optimiser and its number of steps, and how the flow is solved meanwhile.

    `method` is "adam", whose `rate` falls to 0 as a cosine over the steps, or "descent", gradient descent with that
    `rate`. In each piece of the depth the solver takes `depth` equal steps: "euler", a residual network, or "rk4".
    Training ends early when the loss is at most `tol`.

    >>> import measureformer as mf
    >>> mf.flows.Training(steps=200, solver="euler", depth=2).method
    'adam'
    """

    steps: int = 1000
    method: Literal["adam", "descent"] = "adam"
    rate: float = 0.03
    solver: Literal["euler", "rk4"] = "rk4"
    depth: int = 1
    tol: float = 1e-8

    def __post_init__(self) -> None:
        for name, known in (("method", ("adam", "descent")), ("solver", ("euler", "rk4"))):
            if getattr(self, name) not in known:
                raise OptionError(
                    got=f"{name} = {getattr(self, name)!r}", need=f"one of {', '.join(known)}", do="Leave it out."
                )
        positive_int(self.steps, "steps")
        positive_int(self.depth, "depth")
        for name in ("rate", "tol"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 < value < np.inf):
                raise OptionError(got=f"{name} = {value!r}", need="a positive number", do="Leave it out.")

    def plan(self, pieces: int) -> Schedule:
        """The times of the flow, for one that is evaluated as it was trained."""
        return planned(np.array([0.0, 1.0]), pieces, pieces * self.depth).until(1.0)

    def settings(self, dtype: Any) -> Settings:
        rtol, atol = (1e-4, 1e-5) if dtype == np.float32 else (1e-6, 1e-6)
        return Settings(self.solver, np.asarray(rtol), np.asarray(atol))

    @property
    def optimizer(self) -> Any:
        import optax

        if self.method == "descent":
            return optax.sgd(self.rate)
        return optax.adam(optax.cosine_decay_schedule(self.rate, self.steps))


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


def resting(key: Any, dim: int, heads: int, pieces: int) -> Stack:
    """Gaussian Q, K, V, and W = 0: nothing moves yet, so that the first loss is that of the identity."""
    Q, K, V = normal(key, (3, pieces, heads, dim, dim)) / np.sqrt(dim)
    return Stack(Q, K, V, np.zeros_like(V))


def loss(stack: Stack, problem: Problem, training: Training) -> Array:
    """Σ shares · |T[mu](x) − y|², the mean over all queries."""

    def one(points: Array, log_weights: Array, x: Array, y: Array, shares: Array) -> Array:
        return jnp.sum(shares * jnp.sum((moved(stack, Discrete(points, log_weights), x, training) - y) ** 2, axis=1))

    return jnp.sum(jax.vmap(one)(*problem))


def moved(stack: Stack, mu: Discrete, x: Array, training: Training) -> Array:
    """T[mu](x): atoms and queries move together, and queries are seen by nobody."""
    n, rows, dtype = mu.n, jnp.concatenate([mu.points, x]), x.dtype

    def velocity(heads: Stack, rows: Array) -> Array:
        layer = Attention(*heads, scale=jnp.ones((), dtype))
        return layer.evaluate(mu.with_points(rows[:n]), rows, None)

    step, size = _STEPS[training.solver], 1 / (stack.Q.shape[0] * training.depth)

    # going back, a piece is computed again: memory for a state per piece, and for the steps of one piece
    @jax.checkpoint
    def through_piece(rows: Array, heads: Stack) -> tuple[Array, None]:
        def one(rows: Array, _: None = None) -> tuple[Array, None]:
            return step(lambda rows: velocity(heads, rows), rows, size), None

        # a loop of one turn would be compiled like any other
        return one(rows) if training.depth == 1 else jax.lax.scan(one, rows, None, training.depth)

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
    training: Training = eqx.field(static=True)

    def __call__(self, stack: Stack, key: Any, step: Any) -> Array:
        return loss(stack, self.problem, self.training)
