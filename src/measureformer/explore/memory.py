"""A digit drawn by hand, and what a memory of real ones makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.errors import ShapeError
from measureformer.explore.drawing import series
from measureformer.result import Figure

SIDE, FINE = 8, 32
PEN = 1.7
"""Half of the width of the pen, in cells of the fine raster."""
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


@cache
def stored() -> tuple[np.ndarray, np.ndarray]:
    """`EACH` pictures of each digit, as patterns (n, 64), and which digits they are."""
    images, labels = mf.memory.digits()
    chosen = np.concatenate([np.flatnonzero(labels == digit)[:EACH] for digit in range(10)])
    return images[chosen].reshape(len(chosen), -1), labels[chosen]


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
    scale = (FINE - 4 * PEN) / max(high[1] - low[1], high[0] - low[0], 0.2)
    pixels = (points - (low + high) / 2) * scale
    y, x = np.mgrid[0:FINE, 0:FINE] + 0.5 - FINE / 2
    near = np.hypot(x[..., None] - pixels[:, 0], -y[..., None] - pixels[:, 1]).min(axis=2) < PEN
    return near.reshape(SIDE, 4, SIDE, 4).mean(axis=(1, 3)) * 2 - 1


def recall(points: Any, beta: float) -> Recall:
    """What the memory of `stored` makes of the drawing, at inverse temperature beta.

    >>> images, _ = stored()
    >>> recall([[0.5, 0.1 + 0.05 * k] for k in range(17)], 1.0).label
    1
    """
    patterns, labels = stored()
    memory = mf.memory.Modern.store(patterns, beta)
    query = raster(points).reshape(-1)
    found = memory.retrieve(query)
    last = np.asarray(found.state)
    nearest = int(np.argmin(np.sum((patterns - last) ** 2, axis=1)))
    logits = beta * patterns @ last
    share = float(1 / np.sum(np.exp(logits - logits[nearest])))
    first = np.asarray(memory.update(query))
    shaped = (part.reshape(SIDE, SIDE) for part in (query, first, last, patterns[nearest]))
    return Recall(*shaped, int(labels[nearest]), found.trace.energies, int(found.trace.steps), share)


def figure(found: Recall) -> Figure:
    """The energy, which never rises."""
    steps = np.arange(len(found.energies))
    return Figure("Energy while recalling", "update", "energy", (series("energy", steps, found.energies, "points"),))


def warm_up() -> None:
    recall([[0.5, 0.5]], 1.0)
