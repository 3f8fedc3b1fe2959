"""Random patterns for the claims of this chapter."""

from __future__ import annotations

import numpy as np


def signs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Independent uniform patterns of ±1."""
    return rng.integers(0, 2, (n, d)) * 2.0 - 1.0


def sphere(rng: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    """Independent uniform patterns on a sphere."""
    X = rng.normal(size=(n, d))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)
