"""A digit drawn by hand, and what a memory of real ones makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import measureformer as mf
from measureformer.errors import ShapeError
from measureformer.figures.figure import Figure, Series

SIDE, FINE = 8, 32
PEN = 2.2
"""Half of the width of the pen, in cells of the fine raster."""
SHOWN = 16
"""Updates in the figure; later ones change little."""
EACH = 10
"""Stored pictures of each digit."""


@dataclass(frozen=True)
class Recall:
    """From a drawing to what the memory answers; pictures are (8, 8) with values in [−1, 1], ink is 1."""

    drawn: np.ndarray
    first: np.ndarray
    """After one update, which is one layer of attention."""
    last: np.ndarray
    nearest: np.ndarray
    """The stored picture that is nearest to the answer."""
    label: int
    energies: np.ndarray
    steps: int
    share: float
    """How much of the attention rests on the nearest picture at the end."""


class Store(NamedTuple):
    """Pictures as patterns: centred and of length 1, so that what all digits share does not drown what they differ
    in."""

    patterns: np.ndarray
    """(n, 64)"""
    labels: np.ndarray
    mean: np.ndarray
    length: float
    """The mean length of the centred pictures, to show patterns as pictures again."""

    def pattern(self, picture: Any) -> np.ndarray:
        centred = np.asarray(picture, float).reshape(-1) - self.mean
        return centred / max(float(np.linalg.norm(centred)), 1e-12)

    def picture(self, pattern: Any) -> np.ndarray:
        return np.clip(self.mean + self.length * np.asarray(pattern), -1, 1).reshape(SIDE, SIDE)


@cache
def stored() -> Store:
    """`EACH` pictures of each digit, as patterns.

    >>> stored().patterns.shape
    (100, 64)
    """
    images, labels = mf.memory.digits()
    chosen = np.concatenate([np.flatnonzero(labels == digit)[:EACH] for digit in range(10)])
    flat = images[chosen].reshape(len(chosen), -1)
    centred = flat - flat.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return Store(centred / norms, labels[chosen], flat.mean(axis=0), float(norms.mean()))


def raster(points: Any) -> np.ndarray:
    """Points of a pen in the unit square as a picture of 8 × 8, in the way the stored digits were made.

    The drawing is moved to the middle and made as large as a digit; each pixel is the share of ink in 4 × 4 cells.

    >>> raster([[0.5, 0.1], [0.5, 0.5], [0.5, 0.9]]).shape, float(raster(np.zeros((0, 2))).max())
    ((8, 8), -1.0)
    """
    points = np.asarray(points, float).reshape(-1, np.shape(points)[-1] if np.size(points) else 2)
    if points.shape[1] != 2:
        raise ShapeError(got=f"points in R^{points.shape[1]}", need="points in the plane", do="Pass (n, 2).")
    if not len(points):
        return np.full((SIDE, SIDE), -1.0)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (FINE - 2 * PEN) / max(high[1] - low[1], high[0] - low[0], 0.2)
    pixels = (points - (low + high) / 2) * scale
    y, x = np.mgrid[0:FINE, 0:FINE] + 0.5 - FINE / 2
    near = np.hypot(x[..., None] - pixels[:, 0], -y[..., None] - pixels[:, 1]).min(axis=2) < PEN
    return near.reshape(SIDE, 4, SIDE, 4).mean(axis=(1, 3)) * 2 - 1


def line(corners: Any, gap: float = 0.02) -> list[list[float]]:
    """Points of a pen that goes from corner to corner.

    >>> len(line([[0.0, 0.0], [0.0, 1.0]], gap=0.25))
    5
    """
    corners = np.asarray(corners, float)
    parts = [corners[:1]]
    for a, b in pairwise(corners):
        many = max(1, round(float(np.linalg.norm(b - a)) / gap))
        parts.append(a + (b - a) * np.arange(1, many + 1)[:, None] / many)
    return np.concatenate(parts).tolist()


def recall(points: Any, beta: float) -> Recall:
    """What the memory of `stored` makes of the drawing, at inverse temperature beta.

    >>> recall([[0.5, 0.1 + 0.05 * k] for k in range(17)], 20.0).label
    1
    """
    kept, drawn = stored(), raster(points)
    memory = mf.memory.Modern.store(kept.patterns, beta)
    query = kept.pattern(drawn)
    found, first = memory.retrieve(query), np.asarray(memory.update(query))
    last = np.asarray(found.state)
    nearest = int(np.argmin(np.sum((kept.patterns - last) ** 2, axis=1)))
    logits = beta * kept.patterns @ last
    share = float(1 / np.sum(np.exp(logits - logits[nearest])))
    return Recall(
        drawn,
        kept.picture(first),
        kept.picture(last),
        kept.picture(kept.patterns[nearest]),
        int(kept.labels[nearest]),
        found.trace.energies,
        int(found.trace.steps),
        share,
    )


def figure(found: Recall) -> Figure:
    """The energy, which never rises."""
    energies = found.energies[:SHOWN]
    curves = (Series("energy", range(len(energies)), energies, "points", role="measured"),)
    return Figure("Energy while recalling", "update", "energy", curves)


def warm_up() -> None:
    recall([[0.5, 0.5]], 1.0)
