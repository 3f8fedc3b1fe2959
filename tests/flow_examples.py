"""Layers and clouds for the tests of flows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import measureformer as mf

DIM = 2


def head(seed: int = 0) -> mf.Attention:
    return mf.Attention.random(jax.random.key(seed), DIM)


def cloud(seed: int = 0, n: int = 7) -> mf.Discrete:
    rng = np.random.default_rng(seed)
    return mf.Discrete.weighted(rng.normal(size=(n, DIM)), rng.uniform(0.2, 1, n))


def largest(difference: Any) -> float:
    return float(np.abs(np.asarray(difference)).max())
