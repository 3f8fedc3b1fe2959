"""Confidence intervals of probabilities, without JAX."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

Z95 = 1.959963984540054
"""Quantile of the normal law: 95 % of it lie within."""


def wilson(share: ArrayLike, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % confidence interval of a probability, from the share of independent trials."""
    share, z2 = np.asarray(share, float), Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 * np.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    # at 0 and 1 an end is the share itself, which rounding would miss
    low, high = np.clip(centre - half, 0, share), np.clip(centre + half, share, 1)
    return np.asarray(low), np.asarray(high)
