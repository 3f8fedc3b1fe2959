"""Problems for the grid, random and adversarial, with answers in long double."""

from __future__ import annotations

from typing import Any

import numpy as np

FAMILIES = (
    "uniform",
    "gaussian",
    "far clouds",
    "duplicates",
    "anisotropic",
    "rank one",
    "heavy tails",
    "one heavy key",
    "spread weights",
    "one point",
    "no mass",
)


def cloud(rng: np.random.Generator, n: int, d: int, family: str, scale: float) -> np.ndarray:
    if family == "uniform":
        return rng.uniform(-scale, scale, (n, d))
    x = scale * rng.normal(size=(n, d))
    if family == "far clouds":
        return x + rng.normal(size=d) * rng.choice([1, 30, 1e3, 1e6])
    if family == "duplicates":
        return x[rng.integers(0, max(1, n // 20), n)]
    if family == "anisotropic":
        return x * 10.0 ** -np.arange(d)
    if family == "rank one":
        return x[:, :1] * rng.normal(size=d) + 1e-9 * scale * rng.normal(size=(n, d))
    if family == "heavy tails":
        return x * rng.pareto(2.5, size=(n, 1))
    if family == "one point":
        return np.repeat(x[:1], n, 0)
    return x


def problem(seed: int, m: int, n: int, d: int) -> tuple[Any, ...]:
    """Queries, keys, values, log-weights, and the name of the family, everything drawn from the seed."""
    rng = np.random.default_rng(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    scales = 10.0 ** rng.uniform(-2, 0.6, 2)
    q, k = (cloud(rng, rows, d, family, scale) for rows, scale in zip((m, n), scales, strict=True))
    if family == "far clouds":
        # only one side: with both far away the logits are astronomical
        q = q - q.mean(0)
    v = rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-3, 0)
    log_weights = rng.normal(size=n) - np.log(n)
    if family == "one heavy key":
        log_weights[rng.integers(n)] += 40
    if family == "spread weights":
        log_weights *= 30
    if family == "no mass":
        log_weights[rng.uniform(size=n) < 0.7] = -np.inf
        log_weights[0] = 0
    return q, k, v, log_weights, family


def exact(q: Any, k: Any, v: Any, log_weights: Any, visible: Any = True) -> tuple[np.ndarray, np.ndarray]:
    """Attention in long double, straight from the definition."""
    q, k, v, log_weights = (np.asarray(a).astype(np.longdouble) for a in (q, k, v, log_weights))
    logits = sum(np.multiply.outer(q[:, i], k[:, i]) for i in range(q.shape[1])) + log_weights
    logits = np.where(visible, logits, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    p = np.exp(logits - top)
    total = p.sum(axis=1, keepdims=True)
    return p @ v / total, (top + np.log(total))[:, 0]


def shares(out: Any, values: np.ndarray, log_z: np.ndarray) -> tuple[float, float]:
    """Worst error over its bound: of values and of the log-normaliser. At most 1 if the certificate holds."""
    error = np.linalg.norm(np.asarray(out.values) - values, axis=1) / np.asarray(out.error_bound)
    log_error = np.abs(np.asarray(out.log_normalizer) - log_z) / np.asarray(out.log_normalizer_error)
    return float(error.max()), float(log_error.max())
