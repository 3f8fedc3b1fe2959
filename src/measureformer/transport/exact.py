"""Exact transport in any dimension, on the host: assignment for few equal weights, else the network simplex."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np

from measureformer.errors import ToleranceError, TooManyAtomsError
from measureformer.transport.sparse import Atoms, SparseCoupling, fixed, library, same_weights

LARGEST = 50_000_000
"""Entries of the (n, m) matrix of costs up to which exact solvers are tried: 7000 atoms a side, some 20 seconds."""

ASSIGNED = 100, 1000
"""Atoms up to which assignment is at least as fast as the network simplex: in at most three dimensions, and in more."""

GAP = 1e-9
"""Largest duality gap of an optimal plan, in units of the size of the clouds; in practice it is a rounding."""


def exact_plan(atoms: Atoms, p: float, *, potentials: bool) -> SparseCoupling:
    """An optimal plan; under a trace it is found on the host, when the program runs."""
    n, m = len(atoms.a), len(atoms.b)
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


def solved(atoms: Atoms, p: float, *, potentials: bool = True) -> SparseCoupling:
    """An optimal plan: of the network simplex, or for few equal weights of assignment, which gives no potentials.

    Potentials satisfy every constraint f_i + g_j ≤ cost up to its last rounding, those of passive atoms too.
    """
    rows, columns = np.flatnonzero(atoms.a), np.flatnonzero(atoms.b)
    a, b = atoms.a[rows], atoms.b[columns]
    full = len(a) == len(atoms.a) and len(b) == len(atoms.b)
    x, y = (atoms.x, atoms.y) if full or potentials else (atoms.x[rows], atoms.y[columns])
    cost, unit = costs(x, y, p)
    inner = cost[np.ix_(rows, columns)] if potentials and not full else cost
    if not potentials and len(a) <= ASSIGNED[x.shape[1] > 3] and same_weights(a, b):
        from scipy.optimize import linear_sum_assignment

        i, j = linear_sum_assignment(inner)
        mass, f, g = np.full(len(a), 1 / len(a)), a, b  # no potentials, and none are asked for
    else:
        i, j, mass, f, g = _certified(inner, a.astype(np.float64), b.astype(np.float64))
    longest = float(inner[i, j].max())
    scale = unit * longest ** (1 / p) if longest > 0 else 1.0
    i, j = rows[i], columns[j]
    if not potentials:
        return SparseCoupling(i, j, mass, None, None, scale)
    if not full:
        f = _transformed(cost[:, columns], g)
    step = _step(cost)
    g = np.minimum.reduce([(cost[k : k + step] - f[k : k + step, None]).min(axis=0) for k in range(0, len(f), step)])
    factor = (unit / scale) ** p
    return SparseCoupling(i, j, mass, f * factor, g * factor, scale)


def _certified(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """(i, j, mass, f, g): a vertex whose optimality was checked by the duals."""
    b *= a.sum() / b.sum()
    i, j, mass, g = vertex(cost, a, b)
    # the potentials of the tree err by a rounding per edge: transformed once more they are feasible
    f = _transformed(cost, g)
    gap = float(mass @ cost[i, j] - a @ f - b @ g)
    if not gap <= GAP:
        raise ToleranceError(
            got=f"a plan of the network simplex whose duality gap is {gap:.2g} in units of the clouds' size",
            need=f"at most {GAP:g}, or it may not be optimal",
            do="Merge atoms of nearly no weight with their neighbours, or rescale the weights.",
        )
    return i, j, mass, f, g


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
            do="Merge atoms of nearly no weight with their neighbours, or rescale the weights.",
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
