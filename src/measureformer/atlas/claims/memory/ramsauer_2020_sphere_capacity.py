"""A modern memory stores exponentially many random patterns: the constants of the theorem, and what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats, sphere
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Modern, ramsauer20_capacity, ramsauer20_separation

ANCHORS = ((1.0, 3.0, 20, 0.001, 3.15461, 7.41), (1.0, 1.0, 75, 0.001, 1.37188, 10.97))


@dataclass(frozen=True)
class Config:
    trials: int = 20
    least: int = 16
    most: int = 28
    patterns: int = 1024


def _constant(beta: float, K: float, d: int, p: float, *, lambert: bool) -> float:
    found = ramsauer20_capacity(beta, K, d, p)
    return found.c if lambert else found.b / abs(found.a + math.log(found.b))


def _largest(rng: np.random.Generator, config: Config, K: float, d: int) -> float:
    """The number of patterns up to which all are stored, in the middle of the trials; at most `config.patterns`."""
    M = K * math.sqrt(d - 1)
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


def _outcome(key: Any, config: Config, *, lambert: bool) -> Outcome:
    rng = generator(key)
    checks: list[Check] = []
    for beta, K, d, p, c, n in ANCHORS:
        found = _constant(beta, K, d, p, lambert=lambert)
        checks.append(Check(f"K = {K:g}, d = {d}: c", found, c - 1e-4, c + 1e-4))
        bound = math.sqrt(p) * found ** ((d - 1) / 4)
        checks.append(Check(f"K = {K:g}, d = {d}: bound on the number of patterns", bound, n - 0.01, n + 0.01))
        X = np.stack([sphere(rng, int(n), d, K * math.sqrt(d - 1)) for _ in range(config.trials)])
        needed = ramsauer20_separation(beta, int(n), K * math.sqrt(d - 1))
        all_stored = np.mean([Modern.store(part, beta).separation().min() >= needed for part in X])
        checks.append(
            Check(f"K = {K:g}, d = {d}: share of trials in which all are stored", float(all_stored), low=1 - p)
        )
    dims = np.arange(config.least, config.most + 1, 4)
    measured = np.array([_largest(rng, config, 1.5, int(d)) for d in dims])
    bounds = [ramsauer20_capacity(1.0, 1.5, int(d), 0.001).patterns for d in dims]
    checks.append(Check("smallest measured number over the bound", float((measured / bounds).min()), low=1.0))
    figure = Figure(
        "How many patterns a modern memory stores",
        "dimension d",
        "patterns",
        (
            Series("measured, all stored in half of the trials", floats(dims), floats(measured), "points"),
            Series("bound of the theorem, p = 0.001", floats(dims), tuple(bounds), "dashed"),
        ),
        yscale="log",
        caption=f"K = 1.5, β = 1, {config.trials} trials; {config.patterns} patterns are the most that were tried.",
    )
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, lambert=True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, lambert=False)


claim = Claim(
    name="ramsauer-2020-sphere-capacity",
    title="Exponentially many patterns",
    statement=(
        "Of random patterns on the sphere of radius K√(d−1), at least √p c^{(d−1)/4} are stored with probability 1 "
        "− p, with c = b/W₀(e^{a + ln b}): c ≥ 3.1546 for K = 3, d = 20 and c ≥ 1.3718 for K = 1, d = 75, at β = 1, "
        "p = 0.001."
    ),
    hypotheses=("independent patterns, uniform on the sphere", "c ≥ (2/√p)^{4/(d−1)}"),
    reference="ramsauer2020, Theorem 3",
    run=_run,
    control=_control,
    control_statement="A logarithm in place of Lambert's function.",
    quick=Config(),
    full=Config(trials=40, most=36, patterns=4096),
)
