"""Distances of many samples to the uniform law on [0, 1], in one compiled program for all sample sizes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.measures import Discrete
from measureformer.numerics.arrays import on_device
from measureformer.transport import wasserstein


@eqx.filter_jit
def _distances(samples: Array, log_weights: Array, law: Discrete, p: float) -> Array:
    return jax.lax.map(lambda points: wasserstein(Discrete(points, log_weights), law, p), samples, batch_size=100)


@lru_cache(maxsize=4)
def distances(
    entropy: tuple[int, ...], sizes: tuple[int, ...], repetitions: int, grid: int, p: float, stratified: bool = False
) -> tuple[np.ndarray, ...]:
    """W_p(μ_N, U[0,1]) for each N and repetition, the law being `grid` midpoints; cached for claim and control.

    Stratified points lie one in each interval of length 1/N, and are not independent.
    """
    rng = np.random.default_rng(entropy)
    law = Discrete.uniform(((np.arange(grid) + 0.5) / grid)[:, None])
    found = []
    for n in sizes:
        samples, log_weights = np.zeros((repetitions, max(sizes), 1)), np.full(max(sizes), -np.inf)
        samples[:, :n] = rng.uniform(size=(repetitions, n, 1))
        if stratified:
            samples[:, :n] = (np.arange(n)[:, None] + samples[:, :n]) / n
        log_weights[:n] = -math.log(n)
        found.append(np.asarray(_distances(on_device(samples), on_device(log_weights), law, p)))
    return tuple(found)


def entropy_of(key: Any) -> tuple[int, ...]:
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def mean_and_error(values: np.ndarray, factor: float) -> tuple[float, float]:
    """The mean and five standard errors, times a factor."""
    return factor * float(values.mean()), factor * 5 * float(values.std()) / math.sqrt(len(values))
