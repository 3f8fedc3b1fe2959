"""A modern memory stores exponentially many random patterns: the constants of the theorem, and what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.memory_patterns import sphere
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern, ramsauer20_capacity
from measureformer.memory.retrieval import ramsauer20_separation

ANCHORS = ((1.0, 3.0, 20, 0.001, 3.15461, 7.41), (1.0, 1.0, 75, 0.001, 1.37188, 10.97))


@dataclass(frozen=True)
class Config:
    trials: int = 20
    least: int = 16
    most: int = 28
    patterns: int = 1024


def _largest(rng: np.random.Generator, config: Config, M: float, d: int) -> float:
    """The number of patterns up to which all are stored, in the middle of the trials; at most `config.patterns`."""
    counts = np.unique(np.geomspace(2, config.patterns, 17).round().astype(int))
    needed = np.array([ramsauer20_separation(1.0, n, M) for n in counts])
    stored: list[int] = []
    for _ in range(config.trials):
        X = sphere(rng, config.patterns, d, M)
        # the largest inner product among the first n patterns, for every n
        earlier = np.where(np.tri(config.patterns, k=-1, dtype=bool), X @ X.T, -np.inf).max(axis=1)
        least = M**2 - np.maximum.accumulate(earlier)[counts - 1]
        good = least >= needed
        stored.append(int(counts[good.cumprod().sum() - 1]) if good[0] else 1)
    return float(np.median(stored))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)

    def radius(K: float, d: int) -> float:
        return K if variant == "radius-k" else K * math.sqrt(d - 1)

    checks: list[Check] = []
    for beta, K, d, p, c, n in ANCHORS:
        name, theorem = f"K = {K:g}, d = {d}", ramsauer20_capacity(beta, K, d, p)
        found = theorem.b / abs(theorem.a + math.log(theorem.b)) if variant == "logarithm" else theorem.c
        bound = math.sqrt(p) * found ** ((d - 1) / 4)
        needed = ramsauer20_separation(beta, int(n), radius(K, d))
        X = [sphere(rng, int(n), d, radius(K, d)) for _ in range(config.trials)]
        stored = np.mean([Modern.store(part, beta).separation().min() >= needed for part in X])
        checks += [
            Check(f"{name}: c", found, c - 1e-4, c + 1e-4, rejected_by="logarithm"),
            Check(f"{name}: bound on the number of patterns", bound, n - 0.01, n + 0.01, rejected_by="logarithm"),
            Check(f"{name}: share of trials in which all are stored", stored, low=1 - p, rejected_by="radius-k"),
        ]
    dims = np.arange(config.least, config.most + 1, 4)
    measured = np.array([_largest(rng, config, radius(1.5, d), d) for d in dims.tolist()])
    bounds = np.array([ramsauer20_capacity(1.0, 1.5, d, 0.001).patterns for d in dims.tolist()])
    checks.append(
        Check("smallest measured number over the bound", (measured / bounds).min(), low=1.0, rejected_by="radius-k")
    )
    return Outcome(tuple(checks), _figure(config, dims, measured, bounds) if variant == "claim" else None)


def _figure(config: Config, dims: np.ndarray, measured: np.ndarray, bounds: np.ndarray) -> Figure:
    return Figure(
        "How many patterns a modern memory stores",
        "dimension d",
        "patterns",
        (
            Series("measured, all stored in half of the trials", dims, measured, "points", role="measured"),
            Series("bound of the theorem, p = 0.001", dims, bounds, "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"K = 1.5, β = 1, {config.trials} trials; {config.patterns} patterns are the most that were tried.",
    )


claim = Claim(
    name="ramsauer-2020-sphere-capacity",
    title="Exponentially many patterns",
    kind="theorem",
    statement=(
        "Of random patterns on the sphere of radius K√(d−1), at least √p c^{(d−1)/4} are stored with probability 1 "
        "− p, with c = b/W₀(e^{a + ln b}): c ≥ 3.1546 for K = 3, d = 20 and c ≥ 1.3718 for K = 1, d = 75, at β = 1, "
        "p = 0.001."
    ),
    hypotheses=("independent patterns, uniform on the sphere", "c ≥ (2/√p)^{4/(d−1)}"),
    reference="ramsauer2020, Theorem 3",
    measure=measure,
    controls={
        "logarithm": "A logarithm in place of Lambert's function.",
        "radius-k": "The sphere has the radius K: the factor √(d−1) is forgotten.",
    },
    quick=Config(),
    full=Config(trials=40, most=36, patterns=4096),
)
