"""`clusters`: which atoms belong together at a given distance, and how long that lasts along a flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import equinox as eqx
import numpy as np

from measureformer.errors import OptionError, ShapeError
from measureformer.measures import Discrete
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import finite, floats, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

NEIGHBOURS = 8
"""Neighbours that each atom names in the first round."""


class Clusters(eqx.Module):
    """The connected components of a cloud at one threshold; see `clusters`."""

    threshold: float
    count: int
    labels: np.ndarray
    """Number of the cluster of each atom, in order of first appearance; −1 for an atom without mass."""
    masses: np.ndarray
    """Mass of each cluster."""
    centers: np.ndarray
    """Centre of mass of each cluster."""


@overload
def clusters(mu: AbstractAtomic | ArrayLike, threshold: float) -> Clusters: ...
@overload
def clusters(mu: AbstractAtomic | ArrayLike, threshold: Sequence[float] | np.ndarray) -> tuple[Clusters, ...]: ...
@checked
def clusters(mu: AbstractAtomic | ArrayLike, threshold: ArrayLike) -> Clusters | tuple[Clusters, ...]:
    """Clusters of atoms: two atoms are in one if steps of length ≤ `threshold` lead from one to the other.

    Exact, in memory linear in n even where a whole cloud lies within one threshold: every atom names its nearest
    neighbours, then Borůvka's rounds join components through their nearest foreign atoms.

    Arguments:
        mu: a measure with atoms, or points (n, d); atoms without mass belong to no cluster.
        threshold: a Euclidean distance ≥ 0, or several, which give a tuple of `Clusters`.

    Cost        about n log n in low dimension; in high dimension the trees compare most pairs.

    >>> import measureformer as mf
    >>> found = mf.clustering.clusters([[0.0], [0.1], [0.2], [5.0]], 0.15)
    >>> found.count, found.labels.tolist(), found.masses.round(12).tolist()
    (2, [0, 0, 0, 1], [0.75, 0.25])
    """
    mu = mu if isinstance(mu, AbstractAtomic) else Discrete.uniform(mu)
    concrete(mu, "clusters")
    values = np.asarray(floats(threshold, "threshold"))
    finite(values, "threshold")
    if values.ndim > 1 or values.size == 0 or (values < 0).any():
        raise OptionError(
            got=f"threshold = {threshold!r}", need="a distance ≥ 0, or several", do="Pass e.g. 0.1 or [0.1, 0.01]."
        )
    if values.ndim == 1:
        return tuple(_clusters(mu, float(value)) for value in values)
    return _clusters(mu, float(values))


def _clusters(mu: AbstractAtomic, threshold: float) -> Clusters:
    weights, points = np.asarray(mu.weights), np.asarray(mu.points)
    felt = np.flatnonzero(weights > 0)
    # copies of a point need no search, and slow trees down
    distinct, copy = np.unique(points[felt] + 0.0, axis=0, return_inverse=True)
    group = components(distinct, threshold)[copy.reshape(-1)]
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    labels = np.full(mu.n, -1)
    labels[felt] = order[group.reshape(-1)]
    count, mass = len(first), weights[felt]
    masses = np.bincount(labels[felt], mass, count)
    sums = np.stack([np.bincount(labels[felt], mass * column, count) for column in points[felt].T], axis=1)
    return Clusters(threshold, count, labels, masses, sums / masses[:, None])


def components(points: np.ndarray, threshold: float) -> np.ndarray:
    """Labels of the connected components of distinct points, two being linked at distance ≤ threshold."""
    from scipy.spatial import KDTree

    n = len(points)
    if n == 1:
        return np.zeros(1, int)
    # the tree's bound is strict, and distances at the bound count here
    reach = np.nextafter(threshold, np.inf)
    named = min(NEIGHBOURS, n - 1)
    distance, other = map(np.asarray, KDTree(points).query(points, k=named + 1, distance_upper_bound=reach))
    here, place = np.nonzero(np.isfinite(distance))
    labels = _joined(n, np.arange(n), here, other[here, place])
    # an atom whose list is not full has named all its neighbours: unnamed links join two atoms with full lists
    open_ended = np.flatnonzero(np.isfinite(distance[:, -1])) if named < n - 1 else np.zeros(0, int)
    while len(open_ended):
        pairs = _foreign(points[open_ended], labels[open_ended], reach)
        if not len(pairs):
            break
        labels = _joined(n, labels, *open_ended[pairs].T)
    return labels


def _foreign(points: np.ndarray, labels: np.ndarray, reach: float) -> np.ndarray:
    """Pairs of points within reach with different labels: for each bit of the labels, the nearest point that differs.

    Different labels differ in a bit, so two trees for each bit find every component within reach of another one.
    """
    from scipy.spatial import KDTree

    _, labels = np.unique(labels, return_inverse=True)
    found = [np.zeros((0, 2), int)]
    for bit in range(int(labels.max()).bit_length()):
        zeros, ones = (np.flatnonzero((labels >> bit) & 1 == value) for value in (0, 1))
        # the smaller side asks
        few, many = sorted((zeros, ones), key=len)
        distance, nearest = map(np.asarray, KDTree(points[many]).query(points[few], distance_upper_bound=reach))
        hit = np.isfinite(distance)
        found.append(np.stack([few[hit], many[nearest[hit]]], axis=1))
    return np.concatenate(found)


def _joined(n: int, labels: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(here), np.int8), (labels[here], labels[there])), shape=(n, n))
    return connected_components(links, directed=False)[1][labels]


@checked
def cluster_counts(points: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Numbers of clusters along a trajectory, (t, k).

    Arguments:
        points: points at each time, (t, n, d).
        thresholds: one distance or k of them, as in `clusters`.

    >>> import numpy as np, measureformer as mf
    >>> path = np.linspace(1.0, 0.0, 3)[:, None, None] * np.array([[0.0], [1.0]])
    >>> mf.clustering.cluster_counts(path, [0.6, 0.1]).tolist()
    [[2, 2], [1, 2], [1, 1]]
    """
    frames = np.asarray(shaped(floats(points, "points"), "points", "t n d"))
    thresholds = np.atleast_1d(np.asarray(floats(thresholds, "thresholds")))
    return np.array([[found.count for found in clusters(frame, thresholds)] for frame in frames])


class Plateau(NamedTuple):
    """A number of clusters and how long it lasted: seen from `start` to `end`, and no longer at `after`."""

    number: int
    start: float
    end: float
    after: float
    """The next saved time, with another count: the event lies in (end, after]. Infinite for the last plateau."""


@checked
def plateaux(times: ArrayLike, counts: ArrayLike) -> tuple[Plateau, ...]:
    """The intervals on which the number of clusters is constant, in order.

    Metastable states have a large `after / start`.

    Arguments:
        times: increasing times, (t,).
        counts: number of clusters at each time, (t,): one column of `cluster_counts`.

    >>> import measureformer as mf
    >>> [tuple(p) for p in mf.clustering.plateaux([0.0, 1.0, 2.0, 3.0], [4, 4, 2, 2])]
    [(4, 0.0, 1.0, 2.0), (2, 2.0, 3.0, inf)]
    """
    times = np.asarray(shaped(floats(times, "times"), "times", "t"))
    counts = np.asarray(counts)
    if counts.shape != times.shape or len(times) == 0:
        raise ShapeError(
            got=f"{times.shape} times and counts of shape {counts.shape}",
            need="one count per time",
            do="Take one column of cluster_counts.",
        )
    starts = np.flatnonzero(np.diff(counts, prepend=counts[0] - 1))
    ends = np.append(starts[1:], len(times))
    after = np.append(times, np.inf)
    return tuple(
        Plateau(int(counts[i]), float(times[i]), float(times[j - 1]), float(after[j]))
        for i, j in zip(starts, ends, strict=True)
    )


@checked
def merge_times(times: ArrayLike, points: ArrayLike, threshold: float) -> np.ndarray:
    """When clusters merge along a trajectory: one time for each cluster that is lost.

    Bisection along straight lines between saved times places each event, to second order in the gap between them.
    Clusters that split again are not subtracted.

    Arguments:
        times: increasing times, (t,).
        points: points at each time, (t, n, d).
        threshold: a distance, as in `clusters`.

    >>> import numpy as np, measureformer as mf
    >>> path = np.array([1.0, 0.5, 0.0])[:, None, None] * np.array([[0.0], [1.0]])
    >>> mf.clustering.merge_times([0.0, 1.0, 2.0], path, 0.25).round(6).tolist()
    [1.5]
    """
    times = np.asarray(shaped(floats(times, "times"), "times", "t"))
    clouds = np.asarray(shaped(floats(points, "points"), "points", "t n d"))
    if len(times) != len(clouds):
        raise ShapeError(
            got=f"{len(times)} times for {len(clouds)} clouds",
            need="one cloud per time",
            do="Pass traj.times, traj.points.",
        )
    counts = cluster_counts(clouds, threshold)[:, 0]
    events: list[float] = []
    for i in np.flatnonzero(np.diff(counts) < 0):
        events += _between(times[i : i + 2], clouds[i : i + 2], int(counts[i]), int(counts[i + 1]), threshold)
    return np.array(events)


def _between(times: np.ndarray, points: np.ndarray, before: int, after: int, threshold: float) -> list[float]:
    """The times at which the count falls from `before` to `after`, one for each cluster."""
    found: list[float] = []
    low = 0.0
    for wanted in range(before - 1, after - 1, -1):
        high = 1.0
        for _ in range(20):
            middle = 0.5 * (low + high)
            cloud = (1 - middle) * points[0] + middle * points[1]
            low, high = (low, middle) if clusters(cloud, threshold).count <= wanted else (middle, high)
        found.append(float((1 - high) * times[0] + high * times[1]))
    return found
