"""Exact transport in any dimension, on the host: assignment for few equal weights, else the network simplex."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from measureformer.errors import OptionError, ToleranceError, TooManyAtomsError
from measureformer.transport.sparse import Atoms, SparseCoupling, fixed, library, noise, same_weights

LARGEST = 50_000_000
"""Entries of the (n, m) matrix of costs up to which exact solvers are tried: 7000 atoms a side, some 20 seconds."""

ASSIGNED = 100, 1000
"""Atoms up to which assignment is at least as fast as the network simplex: in at most three dimensions, and in more."""

GAP = 1e-9
"""Largest duality gap of an optimal plan, in units of the size of the clouds; in practice it is a rounding.

Beyond p = 2 it is the largest relative error of W_p: powers of short distances vanish beside those of long ones.
"""

MOST = 100.0
"""Where costs are cut at first for large p, in units of the optimal one: the solver errs in proportion to the largest.

An optimal plan moves no mass m by a step that costs more than 1/m.
"""

MERGE = "Merge atoms of nearly no weight with their neighbours, or rescale the weights."

TRIES = 8
"""For large p: plans until one is certified, each in better units or with costs cut later."""

STEEPEST = 10_000
"""Largest p off the line: powers of distances that differ by a rounding are still the same up to 10⁻¹²."""


def exact_plan(atoms: Atoms, p: float, *, potentials: bool) -> SparseCoupling:
    """An optimal plan; under a trace it is found on the host, when the program runs."""
    n, m = len(atoms.a), len(atoms.b)
    if p > STEEPEST:
        raise OptionError(
            got=f"p = {p:g} on R^{atoms.x.shape[1]}",
            need=f"p ≤ {STEEPEST} off the line, where roundings of distances do not decide",
            do=f"Take p = {STEEPEST}: W_p increases to W_∞.",
        )
    if n * m > LARGEST:
        raise TooManyAtomsError(
            got=f"{n} and {m} atoms off the line",
            need=f"n·m ≤ {LARGEST:.0e} for an exact solver",
            do="mf.wasserstein_bracket(mu, nu, p) gives certified lower and upper values for many more.",
        )
    return on_host(partial(solved, potentials=potentials), atoms, p)


def on_host(solve: Callable[[Atoms, float], SparseCoupling], atoms: Atoms, p: float) -> SparseCoupling:
    """`solve` on concrete arrays, also from inside a compiled program."""
    if library(*atoms) is np:
        return solve(Atoms(*map(np.asarray, atoms)), p)
    n, m, kind = len(atoms.a), len(atoms.b), atoms.a.dtype
    shape = jax.ShapeDtypeStruct
    index, mass = shape((n + m - 1,), np.int32), shape((n + m - 1,), kind)
    shapes = SparseCoupling(index, index, mass, shape((n,), kind), shape((m,), kind), shape((), kind))

    def called(*arrays: Any) -> SparseCoupling:
        plan = solve(Atoms(*map(np.asarray, arrays)), p)
        # as many steps as any basic plan may have; the rest moves nothing from the first atom to the first
        missing = n + m - 1 - len(plan.mass)
        steps = (np.pad(entries, (0, missing)) for entries in plan[:3])
        return SparseCoupling(*(np.asarray(e, s.dtype) for e, s in zip((*steps, *plan[3:]), shapes, strict=True)))

    return SparseCoupling(*jax.pure_callback(called, shapes, *fixed(atoms), vmap_method="sequential"))


class Vertex(NamedTuple):
    """A vertex of the transport polytope, feasible potentials, and the cost by which it may fail to be optimal."""

    i: np.ndarray
    j: np.ndarray
    mass: np.ndarray
    f: np.ndarray
    g: np.ndarray
    gap: float


def solved(atoms: Atoms, p: float, *, potentials: bool = True) -> SparseCoupling:
    """An optimal plan: of the network simplex, or for few equal weights of assignment, which gives no potentials.

    Potentials satisfy every constraint f_i + g_j ≤ cost up to its last rounding, those of passive atoms too.
    """
    rows, columns = np.flatnonzero(atoms.a), np.flatnonzero(atoms.b)
    full = len(rows) == len(atoms.a) and len(columns) == len(atoms.b)
    active = atoms if full else Atoms(atoms.x[rows], atoms.a[rows], atoms.y[columns], atoms.b[columns])
    cost, unit, found = _optimal(active, p, potentials=potentials)
    longest = float(cost[found.i, found.j].max(initial=0))
    scale = unit * longest ** (1 / p) if longest > 0 else 1.0
    i, j = rows[found.i], columns[found.j]
    if not potentials:
        return SparseCoupling(i, j, found.mass, None, None, scale)
    f = found.f
    if not full:
        cost = _powers(atoms.x, atoms.y, unit, p)
        f = _transformed(cost[:, columns], found.g)
    step = _step(cost)
    g = np.minimum.reduce([(cost[k : k + step] - f[k : k + step, None]).min(axis=0) for k in range(0, len(f), step)])
    factor = (unit / scale) ** p
    return SparseCoupling(i, j, found.mass, f * factor, g * factor, scale)


def _optimal(atoms: Atoms, p: float, *, potentials: bool) -> tuple[np.ndarray, float, Vertex]:
    """The costs, their unit, and a vertex that is optimal for them."""
    x, a, y, b = atoms
    cost, unit = costs(x, y, p)
    few = not potentials and len(a) <= ASSIGNED[x.shape[1] > 3] and same_weights(a, b)
    found = _assigned(cost) if few else _certified(cost, a, b)
    if p <= 2:
        if not found.gap <= GAP:
            _not_optimal(f"{found.gap:.2g} in units of the clouds' size", f"{GAP:g}", MERGE)
        return cost, unit, found
    found = _without_rounding(found, noise(a))
    if _sharp(cost, found, p, math.inf) or not (near := _near(atoms, p)):
        return cost, unit, found
    most, value = MOST, 0.0
    for _ in range(TRIES):
        cost = np.minimum(_powers(x, y, near, p), most)
        found = _without_rounding(_certified(cost, a, b), noise(a))
        if _sharp(cost, found, p, most):
            return cost, near, found
        paid = cost[found.i, found.j]
        value = float(found.mass @ paid)
        if 0 < value < 0.5 and paid.max() < most:
            near *= value ** (1 / p)
        else:
            most *= 10
    share = found.gap / value if value else math.inf
    return _not_optimal(
        f"{share:.2g} in units of its cost",
        f"{p * GAP:g}",
        f"Take a smaller p, or {MERGE[0].lower()}{MERGE[1:]}",
    )


def _sharp(cost: np.ndarray, found: Vertex, p: float, most: float) -> bool:
    """Whether W_p has the relative error GAP at most, and the plan takes no step whose cost was cut."""
    paid = cost[found.i, found.j]
    return bool(found.gap < p * GAP * (found.mass @ paid) and paid.max(initial=0) < most)


def _near(atoms: Atoms, p: float) -> float:
    """A distance not far above W_p, of a plan that is found by way of smaller exponents.

    In units of the cost of an optimal plan for q/2, that of an optimal plan for q is at least as large as the mass of
    the longest step of the former, so that it does not vanish.
    """
    x, a, y, b = atoms
    cost, near = costs(x, y, 2)
    q = 2.0
    while q < p:
        i, j, mass, _ = vertex(cost, *_balanced(a, b))
        real = mass > noise(a)
        moved, q = np.sqrt(((x[i[real]] / near - y[j[real]] / near) ** 2).sum(axis=1)), min(2 * q, p)
        if not (longest := float(moved.max(initial=0))):
            return 0.0
        near *= longest * float(mass[real] @ (moved / longest) ** q) ** (1 / q)
        cost = np.minimum(_powers(x, y, near, q), 10 * MOST)
    return near


def _assigned(cost: np.ndarray) -> Vertex:
    from scipy.optimize import linear_sum_assignment

    n = len(cost)
    i, j = linear_sum_assignment(cost)
    none = np.empty(0)  # no potentials, and none are asked for: its duals err by a rounding a step
    return Vertex(i, j, np.full(n, 1 / n), none, none, n * float(np.finfo(np.float64).eps))


def _certified(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Vertex:
    """A vertex whose optimality can be seen from the duals."""
    a, b = _balanced(a, b)
    i, j, mass, g = vertex(cost, a, b)
    # the potentials of the tree err by a rounding per edge: transformed once more they are feasible
    f = _transformed(cost, g)
    terms = mass * cost[i, j], -a * f, -b * g
    # pairwise sums and the potentials err by so much: potentials of the order of 1 say nothing of much smaller costs
    rounding = 32 * float(np.finfo(np.float64).eps) * sum(float(np.abs(term).sum()) for term in terms)
    return Vertex(i, j, mass, f, g, sum(float(term.sum()) for term in terms) + rounding)


def _balanced(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a, b * (a.sum() / b.sum())


def _without_rounding(found: Vertex, least: float) -> Vertex:
    """The same plan without masses that are roundings of the weights: a large p would see them."""
    real = found.mass > least
    return found._replace(i=found.i[real], j=found.j[real], mass=found.mass[real])


def _not_optimal(gap: str, most: str, do: str) -> NoReturn:
    raise ToleranceError(
        got=f"a plan of the network simplex whose duality gap is {gap}",
        need=f"at most {most}, or it may not be optimal",
        do=do,
    )


def _transformed(cost: np.ndarray, g: np.ndarray) -> np.ndarray:
    """min_j cost_ij − g_j for every i, in blocks that fit into the cache."""
    step = _step(cost)
    return np.concatenate([(cost[k : k + step] - g).min(axis=1) for k in range(0, len(cost), step)])


def _step(cost: np.ndarray) -> int:
    return max(1, 2**15 // cost.shape[1])


def vertex(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """(i, j, mass, g): an optimal vertex of the transport polytope, and the potential of b; weights > 0 in float64."""
    plan, _, _, g, code = _solver()(a, b, cost, 2**62, 1)
    if code != 1:
        raise ToleranceError(
            got=f"a network simplex that ended with code {code}",
            need="an optimal plan",
            do=MERGE,
        )
    # many times as fast as `np.nonzero` of numbers
    i, j = np.divmod(np.flatnonzero(plan != 0), len(b))
    return i, j, plan[i, j], g


def costs(x: np.ndarray, y: np.ndarray, p: float) -> tuple[np.ndarray, float]:
    """(|x_i − y_j|/unit)^p in float64, the largest of the order of 1, and the unit."""
    from scipy.spatial.distance import cdist

    # the size of the clouds: powers neither overflow nor vanish, and some pair is at least half of it apart
    low, high = np.minimum(x.min(axis=0), y.min(axis=0)), np.maximum(x.max(axis=0), y.max(axis=0))
    unit = float((high - low).max()) or 1.0
    cost = cdist(x / unit, y / unit, "sqeuclidean" if p == 2 else "euclidean")
    if p not in (1, 2):
        largest = float(cost.max()) or 1.0
        cost /= largest
        np.power(cost, p, out=cost)
        unit *= largest
    return cost, unit


def _powers(x: np.ndarray, y: np.ndarray, unit: float, p: float) -> np.ndarray:
    """(|x_i − y_j|/unit)^p, none of them infinite."""
    from scipy.spatial.distance import cdist

    distances = cdist(x / unit, y / unit)
    return np.power(np.minimum(distances, 1e300 ** (1 / p), out=distances), p, out=distances)


@cache
def _solver() -> Callable[..., tuple[Any, ...]]:
    """POT's network simplex in C++, without the array libraries that POT would import beside it."""
    probed = {"torch": "PYTORCH", "jax": "JAX", "cupy": "CUPY", "tensorflow": "TENSORFLOW"}
    names = [f"POT_BACKEND_DISABLE_{word}" for module, word in probed.items() if module not in sys.modules]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ot.lp.emd_wrap import emd_c  # pyright: ignore[reportMissingModuleSource, reportAttributeAccessIssue]
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return emd_c
