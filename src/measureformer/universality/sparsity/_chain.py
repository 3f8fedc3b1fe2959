"""Hamiltonian paths: through all tokens along connections. A path, a reason why there is none, or unknown."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching, reverse_cuthill_mckee

EXACT = 16
"""Up to this many tokens all subsets are gone through."""


class Found(NamedTuple):
    """A path, or else a reason why there is none, or else neither: unknown."""

    path: tuple[int, ...] | None = None
    obstruction: str = ""


def hamiltonian_path(step: np.ndarray, seconds: Any = 2.0) -> Found:
    """A path through all vertices of the directed graph with edges a → b where step[a, b].

    Orders that suit the usual patterns come first, then obstructions, then search: over all subsets where there are few
    vertices; elsewhere by rotations of a path along edges in both directions, and depth first with the rarest neighbour
    first, until the time is over.
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
    return Found(_rotated(step & step.T, time.monotonic() + seconds / 2) or _searched(step, until))


def path_cover(step: np.ndarray) -> list[list[int]]:
    """Few paths that together go through every vertex once: from a largest matching, its circles opened."""
    n = len(step)
    follows = _matching(step & ~np.eye(n, dtype=bool))
    before = np.full(n, -1)
    before[follows[follows >= 0]] = np.flatnonzero(follows >= 0)
    paths, seen = [], np.zeros(n, bool)
    for start in (*np.flatnonzero(before < 0), *range(n)):
        path = []
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
            walk = reverse_cuthill_mckee(csr_array(either[np.ix_(rest, rest)]), symmetric_mode=True)
            ordered = np.concatenate([rest[walk], np.setdiff1d(order, rest)])
            found += [ordered, ordered[::-1]]
    return found


def _matching(step: np.ndarray) -> np.ndarray:
    """For each vertex the one that follows it, or −1; no vertex follows two."""
    return np.asarray(maximum_bipartite_matching(csr_array(step), perm_type="column"))


def _obstruction(step: np.ndarray) -> str:
    n = len(step)
    count, part = connected_components(csr_array(step | step.T), directed=False)
    if count > 1:
        pieces = " and ".join(f"token {int(np.flatnonzero(part == i)[0])}" for i in range(2))
        return f"the tokens fall into {count} parts without connections, e.g. those of {pieces}"
    matched = int((_matching(step) >= 0).sum())
    if matched < n - 1:
        return f"at most {matched} of the n − 1 = {n - 1} steps of a path can be chosen at once"
    for vertex in range(n) if n <= 512 else ():
        rest = np.delete(np.arange(n), vertex)
        parts, _ = connected_components(csr_array((step | step.T)[np.ix_(rest, rest)]), directed=False)
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
    path, candidates = [], ends[visited]
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
        near = neighbours[path[length - 1]]
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


def _searched(step: np.ndarray, until: float) -> tuple[int, ...] | None:
    n = len(step)
    neighbours = [np.flatnonzero(row) for row in step]
    starts = np.argsort(step.sum(axis=0), kind="stable")
    for start in starts:
        free = np.ones(n, bool)
        free[start] = False
        degree = step.sum(axis=1)
        path, open_ends = [int(start)], [_rarest(neighbours[start], free, degree)]
        while path:
            if len(path) == n:
                return tuple(path)
            if time.monotonic() > until:
                return None
            if open_ends[-1]:
                nxt = open_ends[-1].pop()
                free[nxt] = False
                path.append(nxt)
                open_ends.append(_rarest(neighbours[nxt], free, degree))
            else:
                open_ends.pop()
                free[path.pop()] = True
    return None


def _rarest(candidates: np.ndarray, free: np.ndarray, degree: np.ndarray) -> list[int]:
    """Free candidates, those with the fewest ways on last, which is where they are taken from."""
    left = candidates[free[candidates]]
    return left[np.argsort(-degree[left], kind="stable")].tolist()
