"""Distances of many samples to the uniform law on [0, 1], in one compiled program for all sample sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Key, generator, once
from measureformer.measures import Discrete
from measureformer.numerics.arrays import on_device
from measureformer.transport import wasserstein


@eqx.filter_jit
def _distances(samples: Array, log_weights: Array, law: Discrete, p: float) -> Array:
    return jax.lax.map(lambda points: wasserstein(Discrete(points, log_weights), law, p), samples, batch_size=100)


@once
def distances(
    key: Key, sizes: tuple[int, ...], repetitions: int, grid: int, p: float, stratified: bool = False
) -> list[np.ndarray]:
    """W_p(μ_N, U[0,1]) for each N and repetition, the law being `grid` midpoints.

    Stratified points lie one in each interval of length 1/N, and are not independent.
    """
    rng = generator(key)
    law = Discrete.uniform(((np.arange(grid) + 0.5) / grid)[:, None])
    found: list[np.ndarray] = []
    for n in sizes:
        samples, log_weights = np.zeros((repetitions, max(sizes), 1)), np.full(max(sizes), -np.inf)
        samples[:, :n] = rng.uniform(size=(repetitions, n, 1))
        if stratified:
            samples[:, :n] = (np.arange(n)[:, None] + samples[:, :n]) / n
        log_weights[:n] = -math.log(n)
        found.append(np.asarray(_distances(on_device(samples), on_device(log_weights), law, p)))
    return found


def means_and_errors(found: list[np.ndarray], factors: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """Means and five standard errors, each times its factor."""
    pairs = [(f * v.mean(), f * 5 * v.std() / math.sqrt(len(v))) for v, f in zip(found, factors, strict=True)]
    means, errors = np.array(pairs).T
    return means, errors
