"""Random data for experiments: a NumPy generator that follows from the claim's key, and compiles nothing."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def generator(key: Any) -> np.random.Generator:
    """The same key gives the same numbers, on every machine."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
