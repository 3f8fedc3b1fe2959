"""Functions of sequences that the claims share."""

from __future__ import annotations

import numpy as np


def wave(X: np.ndarray) -> np.ndarray:
    """0.5 sin(2π x_i) + mean: permutation equivariant, (n, d) or (batch, n, d)."""
    return 0.5 * np.sin(2 * np.pi * X) + X.mean(axis=(-2, -1), keepdims=True)


def running_sum(X: np.ndarray) -> np.ndarray:
    """Σ_{j ≤ i} x_j: depends on the order of tokens."""
    return np.cumsum(X, axis=-2)
