"""Exact transport in any dimension, on the host: assignment for equal weights, the network simplex for others."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from measureformer.errors import ToleranceError, TooManyAtomsError
from measureformer.numerics.arrays import is_traced
from measureformer.transport.sparse import Atoms, SparseCoupling, fixed, largest_move

LARGEST = 50_000_000
"""Entries of the (n, m) matrix of costs up to which exact solvers are tried: 7000 atoms a side, some 20 seconds."""


def exact_plan(atoms: Atoms, p: float, *, potentials: bool) -> SparseCoupling:
    """An optimal plan; under a trace it is found on the host, when the program runs."""
    _require_small(len(atoms.a), len(atoms.b))
    # assignment gives no potentials
    matched = None if potentials else assignment(atoms, p)
    return on_host(network_simplex, atoms, p) if matched is None else matched


def on_host(solve: Callable[[Atoms, float], SparseCoupling], atoms: Atoms, p: float) -> SparseCoupling:
    """`solve` on concrete arrays, also from inside a compiled program."""
    if not is_traced(atoms):
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


def assignment(atoms: Atoms, p: float) -> SparseCoupling | None:
    """An optimal plan without potentials if both clouds have as many atoms with mass, all of equal weight."""
    rows, columns = np.flatnonzero(atoms.a), np.flatnonzero(atoms.b)
    n, a, b = len(rows), atoms.a[rows], atoms.b[columns]
    if n != len(columns) or max(np.ptp(a), np.ptp(b)) > 8 * np.finfo(a.dtype).eps / n:
        return None
    from scipy.optimize import linear_sum_assignment

    distances = pairwise(atoms.x[rows], atoms.y[columns])
    i, j = linear_sum_assignment((distances / (distances.max() or 1)) ** p)
    mass, moved = np.full(n, 1 / n), distances[i, j]
    return SparseCoupling(rows[i], columns[j], mass, None, None, largest_move(moved, mass))


def network_simplex(atoms: Atoms, p: float) -> SparseCoupling:
    """A basic optimal plan, with potentials that satisfy every constraint f_i + g_j ≤ cost up to its last rounding."""
    rows, columns = np.flatnonzero(atoms.a), np.flatnonzero(atoms.b)
    distances = pairwise(atoms.x, atoms.y)
    unit = distances.max() or 1.0
    cost = (distances / unit) ** p
    i, j, mass, g = vertex(cost[rows][:, columns], atoms.a[rows], atoms.b[columns])
    i, j = rows[i], columns[j]
    # the potentials of the tree err by a rounding per edge: transformed once more they are feasible, passive atoms' too
    f = (cost[:, columns] - g).min(axis=1)
    g = (cost - f[:, None]).min(axis=0)
    scale = largest_move(distances[i, j], mass)
    factor = (unit / scale) ** p
    return SparseCoupling(i, j, mass, f * factor, g * factor, scale)


def vertex(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """(i, j, mass, g): an optimal vertex of the transport polytope for positive weights, and the potential of b."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    plan, _, _, g, code = _solver()(a, b * (a.sum() / b.sum()), np.ascontiguousarray(cost), 2**62, 1)
    if code != 1:
        raise ToleranceError(
            got=f"a network simplex that ended with code {code}",
            need="an optimal plan",
            do="Merge atoms of nearly no weight with their neighbours, or rescale the weights.",
        )
    i, j = np.nonzero(plan)
    return i, j, plan[i, j], g


def pairwise(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Euclidean distances (n, m), in float64."""
    from scipy.spatial.distance import cdist

    # squares of numbers of the order of 1 neither overflow nor vanish
    unit = max(np.abs(x).max(), np.abs(y).max()) or 1.0
    return unit * cdist(x / unit, y / unit)


def _require_small(n: int, m: int) -> None:
    if n * m > LARGEST:
        raise TooManyAtomsError(
            got=f"{n} and {m} atoms off the line",
            need=f"n·m ≤ {LARGEST:.0e} for an exact solver",
            do="mf.wasserstein_bracket(mu, nu, p) gives certified lower and upper values for many more.",
        )


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
