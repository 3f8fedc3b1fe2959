"""Clouds in cells, and the transform of a potential without looking at every pair of atoms."""

from __future__ import annotations

import numpy as np

CELL = 64


def cells(points: np.ndarray, size: int) -> list[np.ndarray]:
    """The indices of the points in groups of at most `size`, by halving along the longest side again and again."""
    done: list[np.ndarray] = []
    waiting = [np.arange(len(points))]
    while waiting:
        group = waiting.pop()
        if len(group) <= size:
            done.append(group)
            continue
        coordinates = points[group]
        longest = np.ptp(coordinates, axis=0).argmax()
        half = len(group) // 2
        order = np.argpartition(coordinates[:, longest], half)
        waiting += [group[order[:half]], group[order[half:]]]
    return done


def c_transform(x: np.ndarray, f: np.ndarray, y: np.ndarray, p: float) -> np.ndarray:
    """g(y) = min over the atoms x of |x−y|^p − f(x), for every y: the largest g with f(x) + g(y) ≤ |x−y|^p.

    Atoms x are searched cell by cell, for all y of a cell at once, and a cell of x is left out if for no y of the cell
    it can beat one fixed atom x*. Let z, r and w, ρ be centres and radii of the two cells. On the first, f is at most
    h + ⟨s, x−z⟩ with a fitted slope s; the cost is convex, so it is at least its tangent at z. Gradients ∇ of the cost
    at distance ≤ δ from each other differ by at most L(δ). Hence for all x and y of the two cells

        cost(x,y) − f(x) − (cost(x*,y) − f(x*)) ≥ cost(z,w) − h − (|∇(z,w) − s| + L(ρ)) r
                                                  − (cost(x*,w) − f(x*)) − ρ L(|z−x*|).
    """
    from scipy.spatial.distance import cdist

    groups = cells(x, CELL)
    z, r, slope, h = _fits(x, f, groups)
    found, largest = np.empty(len(y)), np.abs(f).max()
    for group in cells(y, CELL):
        queries = y[group]
        w = queries.mean(axis=0)
        rho = np.sqrt(((queries - w) ** 2).sum(axis=1)).max()
        moves = z - w
        distance = np.sqrt((moves**2).sum(axis=1))
        likely = groups[(distance**p - h).argmin()]
        to_likely = np.sqrt(((x[likely] - w) ** 2).sum(axis=1))
        star = (to_likely**p - f[likely]).argmin()
        reach = np.maximum(distance, to_likely[star]) + rho
        # at distance 0 the cost is least, and 0 is one of its subgradients
        gradient = moves * (p * np.where(distance > 0, distance, 1) ** (p - 2))[:, None]
        steepness = np.sqrt(((gradient - slope) ** 2).sum(axis=1)) + _change(rho, distance - rho, reach, p)
        away = np.sqrt(((z - x[likely[star]]) ** 2).sum(axis=1))
        closest = np.minimum(distance, to_likely[star]) - rho - away / 2
        least = distance**p - h - steepness * r - rho * _change(away, closest, reach, p)
        rounding = 1e-12 * (reach**p + largest)
        near = np.flatnonzero(least <= to_likely[star] ** p - f[likely[star]] + rounding)
        candidates = np.concatenate([groups[k] for k in near])
        found[group] = (cdist(queries, x[candidates]) ** p - f[candidates]).min(axis=1)
    return found


def _fits(x: np.ndarray, f: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Per cell: centre, radius, and slope and height of an affine function that lies above f."""
    # shorter cells are filled up with atoms of their own
    index = np.stack([np.resize(group, max(map(len, groups))) for group in groups])
    z = x[index].mean(axis=1)
    offsets = x[index] - z[:, None]
    r = np.sqrt((offsets**2).sum(axis=-1)).max(axis=1)
    slope = (np.linalg.pinv(offsets) @ (f[index] - f[index].mean(axis=1, keepdims=True))[:, :, None])[:, :, 0]
    h = (f[index] - np.einsum("ksd,kd->ks", offsets, slope)).max(axis=1)
    return z, r, slope, h


def _change(delta: np.ndarray | float, closest: np.ndarray, reach: np.ndarray, p: float) -> np.ndarray:
    """L(δ): the change of the gradient of v ↦ |v|^p over a distance δ along which closest ≤ |v| ≤ reach."""
    if p >= 2:
        return p * (p - 1) * reach ** (p - 2) * delta
    # Hölder's bound holds everywhere; away from 0 the second derivative, p |v|^{p−2} at most, gives a better one
    smooth = p * np.where(closest > 0, closest, 1) ** (p - 2) * delta
    return np.minimum(p * 2 ** (2 - p) * delta ** (p - 1), np.where(closest > 0, smooth, np.inf))
