"""`obstruction`: how close the push-forwards of a measure come to another measure."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from measureformer.errors import TooManyAtomsError
from measureformer.measures import AbstractMeasure
from measureformer.structure.black_box import Atoms, atoms_of, w1
from measureformer.transport.sparse import Atoms as Pair
from measureformer.transport.wasserstein import optimal_coupling

LARGEST = 12
"""Atoms of mu: on the line all 2^n sets of atoms that may lie to the left are looked at."""
DIRECTIONS = 64


class Obstruction(eqx.Module):
    """The smallest W_1(T♯mu, nu) over all maps T lies between `lower` and `upper`; `points` attain the latter."""

    lower: float
    upper: float
    points: np.ndarray
    """T(x_i), in the order of the atoms of mu."""


def obstruction(mu: AbstractMeasure, nu: AbstractMeasure) -> Obstruction:
    """Smallest W_1 distance from a push-forward T♯mu to nu: 0 iff mu can be pushed to nu.

    A positive lower bound shows that no in-context map, continuous or not, takes mu to nu. On the line both bounds are
    exact. In higher dimensions the upper bound comes from a descent that alternates transport to nu and medians, the
    lower bound from projections onto lines, which shorten distances.

    Arguments:
        mu: the measure to push, a `Discrete` of at most 12 atoms.
        nu: the target, a `Discrete`.

    Statement   on the line an optimal T♯mu cuts the quantile function of nu into pieces of lengths a_i, in some order,
                and puts atom i at the median of its piece; min_y W_1(δ_y, nu) is the mean distance to the median of nu
    Cost        2^n n in the number n ≤ 12 of atoms of mu, times 64 directions off the line.
    Ref         furuya2026.

    >>> import measureformer as mf
    >>> two = mf.Discrete.uniform([[-1.0], [1.0]])
    >>> mf.structure.obstruction(mf.Discrete.dirac([0.0]), two).lower
    1.0
    >>> round(mf.structure.obstruction(two, mf.Discrete.weighted([[-1.0], [1.0]], [1.0, 2.0])).lower, 12)
    0.333333333333
    """
    source, target = atoms_of(mu), atoms_of(nu, "nu")
    if source.n > LARGEST:
        raise TooManyAtomsError(
            got=f"{source.n} atoms", need=f"at most {LARGEST}", do="Take a smaller witness: a few atoms show as much."
        )
    if target.points.shape[1] == 1:
        cost, places = _on_line(source.weights, target.points[:, 0], target.weights)
        return Obstruction(cost, cost, places[:, None])
    return _elsewhere(source, target)


def _on_line(a: np.ndarray, y: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Least cost and places: a shortest path over the sets of atoms that lie to the left."""
    order = np.argsort(y)
    y, levels = y[order], np.concatenate([[0.0], np.cumsum(b[order] / b.sum())])
    integral = np.concatenate([[0.0], np.cumsum(y * np.diff(levels))])
    n, a = len(a), a / a.sum()
    sums = np.zeros(1)
    for weight in a:
        sums = np.concatenate([sums, sums + weight])

    def quantile_integral(u: np.ndarray) -> np.ndarray:
        """∫_0^u Q, exact: the quantile function is a staircase."""
        return np.interp(u, levels, integral)

    def median(start: Any, end: Any) -> Any:
        return y[np.clip(np.searchsorted(levels, (start + end) / 2, side="left") - 1, 0, len(y) - 1)]

    sets = np.arange(2**n)
    best, last = np.full(2**n, np.inf), np.full(2**n, -1)
    best[0] = 0
    sizes = (sets[:, None] >> np.arange(n) & 1).sum(axis=1)
    for size in range(n):
        layer = sets[sizes == size]
        for i in range(n):
            free = layer[(layer >> i & 1) == 0]
            start, end = sums[free], sums[free | 1 << i]
            half = (start + end) / 2
            # ∫|Q − median| over the piece: what lies above the median minus what lies below; the median cancels
            cost = quantile_integral(end) - 2 * quantile_integral(half) + quantile_integral(start)
            grown = free | 1 << i
            better = best[free] + cost < best[grown] - 1e-15
            best[grown[better]], last[grown[better]] = (best[free] + cost)[better], i
    places, left = np.empty(n), 2**n - 1
    while left:
        i = int(last[left])
        places[i] = float(median(sums[left ^ 1 << i], sums[left]))
        left ^= 1 << i
    return max(float(best[-1]), 0.0), places


def _elsewhere(mu: Atoms, nu: Atoms) -> Obstruction:
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(DIRECTIONS, nu.points.shape[1]))
    directions = np.concatenate([directions, np.eye(nu.points.shape[1])])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lower, best, points = 0.0, np.inf, np.empty((mu.n, nu.points.shape[1]))
    for direction in directions:
        cost, places = _on_line(mu.weights, nu.points @ direction, nu.weights)
        lower = max(lower, cost)
        centre = nu.weights @ nu.points / nu.weights.sum()
        start = centre + (places - centre @ direction)[:, None] * direction
        moved, value = _descent(mu, nu, start)
        if value < best:
            best, points = value, moved
    return Obstruction(min(lower, best), best, points)


def _descent(mu: Atoms, nu: Atoms, start: np.ndarray) -> tuple[np.ndarray, float]:
    """Transport to nu and medians of what each atom sends, in turns; the cost never grows."""
    y, value = start, w1(Atoms(start, mu.weights), nu)
    a, b = mu.weights / mu.weights.sum(), nu.weights / nu.weights.sum()
    for _ in range(30):
        plan = optimal_coupling(Pair(y, a, nu.points, b), 1.0, potentials=False)
        moved = y.copy()
        for i in range(mu.n):
            sent = plan.i == i
            moved[i] = geometric_median(nu.points[plan.j[sent]], np.asarray(plan.mass)[sent], y[i])
        new = w1(Atoms(moved, mu.weights), nu)
        if not new < value - 1e-12 * (1 + value):
            break
        y, value = moved, new
    return y, value


def geometric_median(points: np.ndarray, weights: np.ndarray, start: np.ndarray, steps: int = 60) -> np.ndarray:
    """Weiszfeld's iteration; the data points themselves are candidates, where the iteration would stall."""

    def cost(y: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(points - y, axis=1))

    best = min([start, *points], key=cost)
    y = weights @ points / weights.sum()
    for _ in range(steps):
        pull = weights / np.maximum(np.linalg.norm(points - y, axis=1), 1e-12)
        y = pull @ points / pull.sum()
    return min([best, y], key=cost)
