"""`SparseCoupling`: a coupling with few atoms, and its cost as a differentiable function of points and weights.

A basic coupling of n and m atoms has at most n + m − 1 atoms itself, so a plan is a list and never an (n, m) matrix.

Derivatives follow from the envelope theorem: the cost is a minimum over couplings and a maximum over potentials, so its
derivative in the points is that of the cost at a fixed plan, and its derivative in the weights is the potential.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


class Atoms(NamedTuple):
    """Two clouds with weights that sum to 1: x (n, d) with a (n,), y (m, d) with b (m,)."""

    x: Any
    a: Any
    y: Any
    b: Any


class SparseCoupling(NamedTuple):
    """`mass[e]` moves from atom i[e] to atom j[e]; f, g are optimal potentials for the cost (|x−y|/scale)^p."""

    i: Any
    j: Any
    mass: Any
    f: Any
    g: Any
    scale: Any


class Cost(NamedTuple):
    """The transport cost scale^p · power. The power is of the order of 1, so a large p neither over- nor underflows."""

    scale: Any
    power: Any


def library(*arrays: Any) -> ModuleType:
    """`jax.numpy` if one of the arrays is a tracer, else NumPy: in eager JAX every new size would compile."""
    return jnp if any(isinstance(array, Tracer) for array in arrays) else np


def fixed(tree: Any) -> Any:
    """The same arrays as constants of differentiation."""
    return jax.lax.stop_gradient(tree) if library(*jax.tree.leaves(tree)) is jnp else tree


def lengths(moves: Any) -> Any:
    """Euclidean norms along the last axis; squares neither over- nor underflow, and the derivative at 0 is 0."""
    if library(moves) is np:
        unit = float(np.abs(moves).max(initial=0)) or 1.0
        return unit * np.sqrt(((moves / unit) ** 2).sum(axis=-1))
    largest = fixed(jnp.max(jnp.abs(moves), initial=0))
    unit = jnp.where(largest > 0, largest, 1)
    squares = ((moves / unit) ** 2).sum(axis=-1)
    apart = squares > 0
    return unit * jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)


def coupling_cost(atoms: Atoms, plan: SparseCoupling, p: float) -> Cost:
    """The cost of an optimal plan. Its derivatives are those of the optimal cost, wherever that has any."""
    xp = library(*atoms)
    moved = lengths(atoms.x[plan.i] - atoms.y[plan.j])
    if p == math.inf:
        return Cost(xp.max(xp.where(plan.mass > 0, moved, xp.zeros_like(moved))), 1.0)
    # steps without mass may be longer than the scale, and their powers overflow
    steps = xp.where(plan.mass > 0, moved / plan.scale, xp.zeros_like(moved))
    power = xp.sum(plan.mass * steps**p)
    if xp is jnp:
        # zero, with the derivative of the cost in the weights: the potentials
        power += plan.f @ (atoms.a - fixed(atoms.a)) + plan.g @ (atoms.b - fixed(atoms.b))
    return Cost(plan.scale, power)


def largest_move(moved: Any, mass: Any) -> Any:
    """The longest distance over which mass is moved, or 1 if nothing moves: the scale of a plan."""
    xp = library(moved, mass)
    longest = xp.max(xp.where(mass > 0, moved, xp.zeros_like(moved)))
    return xp.where(longest > 0, longest, xp.ones_like(longest))


def noise(weights: Any) -> float:
    """Masses up to this one may be roundings: of weights that sum to 1, and of sums of them in float64."""
    return 16 * float(np.finfo(weights.dtype).eps) + 8 * len(weights) * float(np.finfo(np.float64).eps)


def root(power: Any, p: float) -> Any:
    """power^{1/p}, with derivative 0 at 0, where there is none."""
    if library(power) is np:
        return power ** (1 / p)
    positive = power > 0
    return jnp.where(positive, jnp.where(positive, power, 1) ** (1 / p), 0)


def same_weights(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether there are as many weights in a as in b, all equal up to rounding."""
    n = len(a)
    if a.strides == b.strides == (0,):
        return n == len(b)
    return n == len(b) and max(np.ptp(a), np.ptp(b)) <= 8 * np.finfo(a.dtype).eps / n
