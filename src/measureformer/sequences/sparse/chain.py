"""Hamiltonian paths: through all tokens along connections. A path, a reason why there is none, or unknown."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csgraph as _untyped
from scipy.sparse import csr_array

csgraph: Any = _untyped
EXACT, LARGEST = 12, 20_000
"""Up to so many tokens all subsets are gone through; up to so many connections a 0-1 program is solved."""


class Found(NamedTuple):
    """A path, or else a reason why there is none, or else neither: unknown."""

    path: tuple[int, ...] | None = None
    obstruction: str = ""


def hamiltonian_path(step: np.ndarray, seconds: float = 2.0) -> Found:
    """A path through all vertices of the directed graph with edges a → b where step[a, b].

    Tried in turn: orders that suit the usual patterns, obstructions, and search. With few vertices the search goes
    through all subsets, otherwise through rotations of a path along edges in both directions and a 0-1 program, until
    time is up.
    """
    n = len(step)
    step = step & ~np.eye(n, dtype=bool)
    for order in _candidates(step):
        if step[order[:-1], order[1:]].all():
            return Found(tuple(int(i) for i in order))
    if reason := _obstruction(step):
        return Found(obstruction=reason)
    if n <= EXACT:
        path = _through_subsets(step)
        return Found(path) if path else Found(obstruction="none of the orders of the tokens is a path")
    until = time.monotonic() + seconds
    path = _rotated(step & step.T, until)
    if path is not None or step.sum() > LARGEST:
        return Found(path)
    return _by_cuts(step, until)


def path_cover(step: np.ndarray) -> list[list[int]]:
    """Few paths that together go through every vertex once: from a largest matching, its circles opened."""
    n = len(step)
    follows = _matching(step & ~np.eye(n, dtype=bool))
    before = np.full(n, -1)
    before[follows[follows >= 0]] = np.flatnonzero(follows >= 0)
    paths: list[list[int]] = []
    seen = np.zeros(n, bool)
    for start in (*np.flatnonzero(before < 0), *range(n)):
        path: list[int] = []
        at = int(start)
        while at >= 0 and not seen[at]:
            seen[at] = True
            path.append(at)
            at = int(follows[at])
        if path:
            paths.append(path)
    return paths


def _candidates(step: np.ndarray) -> list[np.ndarray]:
    n = len(step)
    order = np.arange(n)
    found = [order, order[::-1]]
    # relabelled windows, stars and the like: in an order of small bandwidth, and tokens that are seen by all at the end
    either = step | step.T
    hubs = either.sum(axis=1) == n - 1
    for rest in (order, np.flatnonzero(~hubs)):
        if len(rest):
            walk = csgraph.reverse_cuthill_mckee(csr_array(either[np.ix_(rest, rest)]), symmetric_mode=True)
            ordered = np.concatenate([rest[walk], np.setdiff1d(order, rest)])
            found += [ordered, ordered[::-1]]
    return found


def _matching(step: np.ndarray) -> np.ndarray:
    """For each vertex the one that follows it, or −1; no vertex follows two."""
    return np.asarray(csgraph.maximum_bipartite_matching(csr_array(step), perm_type="column"))


def _obstruction(step: np.ndarray) -> str:
    n = len(step)
    count, part = csgraph.connected_components(csr_array(step | step.T), directed=False)
    if count > 1:
        pieces = " and ".join(f"token {int(np.flatnonzero(part == i)[0])}" for i in range(2))
        return f"the tokens fall into {count} parts without connections, e.g. those of {pieces}"
    matched = int((_matching(step) >= 0).sum())
    if matched < n - 1:
        return f"at most {matched} of the n − 1 = {n - 1} steps of a path can be chosen at once"
    for vertex in range(n) if n <= 512 else ():
        rest = np.delete(np.arange(n), vertex)
        parts, _ = csgraph.connected_components(csr_array((step | step.T)[np.ix_(rest, rest)]), directed=False)
        if parts > 2:
            return f"without token {vertex} the others fall into {parts} parts, and a path passes it once"
    return ""


def _through_subsets(step: np.ndarray) -> tuple[int, ...] | None:
    """All sets of visited vertices, by number: ends[S] are the vertices at which a path through S can end."""
    n = len(step)
    successors = [int(sum(1 << b for b in np.flatnonzero(row))) for row in step]
    predecessors = [int(sum(1 << a for a in np.flatnonzero(row))) for row in step.T]
    ends = [0] * (1 << n)
    for v in range(n):
        ends[1 << v] = 1 << v
    for visited in range(1, 1 << n):
        left = ends[visited]
        while left:
            v = (left & -left).bit_length() - 1
            left &= left - 1
            new = successors[v] & ~visited
            while new:
                bit = new & -new
                ends[visited | bit] |= bit
                new &= new - 1
    visited = (1 << n) - 1
    if not ends[visited]:
        return None
    path: list[int] = []
    candidates = ends[visited]
    while True:
        v = (candidates & -candidates).bit_length() - 1
        path.append(v)
        visited &= ~(1 << v)
        if not visited:
            return tuple(reversed(path))
        candidates = ends[visited] & predecessors[v]


def _rotated(both: np.ndarray, until: float) -> tuple[int, ...] | None:
    """Pósa's rotations: a path that cannot go on is turned round behind a neighbour of its end."""
    n, rng = len(both), np.random.default_rng(0)
    neighbours = [np.flatnonzero(row) for row in both]
    path = np.zeros(n, int)
    path[0] = int(both.sum(axis=1).argmin())
    length, free = 1, np.ones(n, bool)
    free[path[0]] = False
    for step in range(40 * n + 1000):
        if length == n:
            return tuple(path.tolist())
        if step % 64 == 0 and time.monotonic() > until:
            return None
        near = neighbours[int(path[length - 1])]
        new = near[free[near]]
        if len(new):
            path[length] = new[rng.integers(len(new))]
            free[path[length]] = False
            length += 1
        elif len(near):
            at = int(np.flatnonzero(path[:length] == near[rng.integers(len(near))])[0])
            path[at + 1 : length] = path[at + 1 : length][::-1].copy()
        else:
            return None
    return None


def _by_cuts(step: np.ndarray, until: float) -> Found:
    """One step into and one out of every vertex, as a 0-1 program; circles that come out are forbidden, one by one.

    A further vertex, joined to all, turns paths into circles. If the program has no solution there is no path.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(step)
    closed = np.pad(step, (0, 1), constant_values=True)
    closed[n, n] = False
    a, b = np.nonzero(closed)
    ones, every = np.ones(len(a)), np.arange(len(a))
    degrees = csr_array((np.r_[ones, ones], (np.r_[a, n + 1 + b], np.r_[every, every])), shape=(2 * n + 2, len(a)))
    rules = [LinearConstraint(degrees, 1, 1)]  # pyright: ignore[reportArgumentType] sparse matrices are taken
    while (left := until - time.monotonic()) > 0:
        found = milp(
            np.zeros(len(a)), constraints=rules, integrality=ones, bounds=Bounds(0, 1), options={"time_limit": left}
        )
        if found.status == 2:
            return Found(obstruction="no choice of one step from each token is a path: a 0-1 program has no solution")
        if found.x is None:
            return Found()
        follows = np.full(n + 1, -1)
        chosen = cast("np.ndarray", found.x) > 0.5
        follows[a[chosen]] = b[chosen]
        circles = _circles(follows)
        if len(circles) == 1:
            path = circles[0]
            at = path.index(n)
            return Found((*path[at + 1 :], *path[:at]))
        for circle in circles:
            inside = np.zeros(n + 1, bool)
            inside[circle] = True
            rules.append(LinearConstraint((inside[a] & inside[b]).astype(float)[None], -np.inf, len(circle) - 1))
    return Found()


def _circles(follows: np.ndarray) -> list[list[int]]:
    seen = np.zeros(len(follows), bool)
    circles: list[list[int]] = []
    for start in range(len(follows)):
        circle: list[int] = []
        at = start
        while not seen[at]:
            seen[at] = True
            circle.append(at)
            at = int(follows[at])
        if circle:
            circles.append(circle)
    return circles
