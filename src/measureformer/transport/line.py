"""Transport on the line: sort both measures and match their quantiles. Optimal for every p ≥ 1, ∞ included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.transport.sparse import (
    Atoms,
    Cost,
    SparseCoupling,
    coupling_cost,
    fixed,
    largest_move,
    library,
    noise,
    same_weights,
)

LARGEST = 1e30
"""Powers of distances are cut there, in units of the longest distance over which mass is moved."""


def line_cost(atoms: Atoms, p: float) -> Cost:
    """The cost of `line_plan`; for equal weights the sorted places are matched and no plan is made."""
    if library(*atoms) is not np:
        return coupling_cost(atoms, line_plan(atoms, p, potentials=True), p)
    if not same_weights(atoms.a, atoms.b):
        return coupling_cost(atoms, line_plan(atoms, p, potentials=False), p)
    moved = np.sort(atoms.x[:, 0])
    moved -= np.sort(atoms.y[:, 0])
    np.abs(moved, out=moved)
    longest = moved.max()
    if p == math.inf:
        return Cost(longest, 1.0)
    scale = longest if longest > 0 else np.ones_like(longest)
    moved /= scale
    return Cost(scale, np.mean(moved**p))


def line_plan(atoms: Atoms, p: float, *, potentials: bool) -> SparseCoupling:
    """The monotone coupling of two measures on the line, with its potentials if they are wanted: two sorts, one merge.

    Statement   Monotone couplings are optimal for costs that are convex in x − y. f_i + g_j equals the cost along the
                coupling, and is at most the cost elsewhere.
    Ref         peyre2019, Section 2.6.
    """
    xp = library(*atoms)
    x, a, y, b = fixed(Atoms(atoms.x[:, 0], atoms.a, atoms.y[:, 0], atoms.b))
    order_x, order_y = xp.argsort(x), xp.argsort(y)
    rounding = noise(a)
    if p == math.inf:
        # partial sums in float32 would err by more than the weight of an atom
        a, b = (weights.astype(np.float64) / weights.sum(dtype=np.float64) for weights in (a, b))
    i, j, mass = staircase(a[order_x], b[order_y])
    i, j = order_x[i], order_y[j]
    moved = xp.abs(x[i] - y[j])
    if p == math.inf:
        # rounding errors of the partial sums are no mass: W_∞ would see them
        return SparseCoupling(i, j, xp.where(mass > rounding, mass, xp.zeros_like(mass)), None, None, None)
    scale = largest_move(moved, mass)
    # a step without mass may be so long that its power, which potentials need, overflows
    steps = xp.minimum(moved / scale, LARGEST ** (1 / p))
    pair = _potentials(i, j, steps**p, len(x), len(y)) if potentials else (None, None)
    return SparseCoupling(i, j, mass, *pair, scale)


def staircase(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """The coupling of two weight vectors in their given order: n + m − 1 steps (i, j, mass), some of mass 0.

    Both intervals [0, 1] are cut at the partial sums. From one step to the next either i or j grows by one.
    """
    xp = library(a, b)
    n, m = a.shape[0], b.shape[0]
    ends_a, ends_b = xp.cumsum(a), xp.cumsum(b)
    cuts = xp.concatenate([ends_a[:-1], ends_b[:-1]])
    # two increasing runs: a stable sort merges them in linear time
    order = xp.argsort(cuts, stable=True)
    i = xp.concatenate([xp.zeros(1, order.dtype), xp.cumsum(order < n - 1)])
    cuts = xp.concatenate([xp.zeros(1, cuts.dtype), cuts[order], xp.maximum(ends_a[-1:], ends_b[-1:])])
    return i, xp.arange(n + m - 1) - i, xp.diff(cuts)


def _potentials(i: Any, j: Any, cost: Any, n: int, m: int) -> tuple[Any, Any]:
    """f, g with f_i + g_j = cost on the staircase: each step changes one index, and so determines one new value."""
    xp = library(cost)
    rises = xp.diff(cost)
    nothing = xp.zeros(1, cost.dtype)
    new_row = xp.diff(i) != 0
    along_f = xp.concatenate([nothing, xp.cumsum(xp.where(new_row, rises, xp.zeros_like(rises)))])
    along_g = cost[0] + xp.concatenate([nothing, xp.cumsum(xp.where(new_row, xp.zeros_like(rises), rises))])
    if xp is np:
        f, g = np.empty(n, cost.dtype), np.empty(m, cost.dtype)
        f[i], g[j] = along_f, along_g
        return f, g
    return xp.zeros(n, cost.dtype).at[i].set(along_f), xp.zeros(m, cost.dtype).at[j].set(along_g)
