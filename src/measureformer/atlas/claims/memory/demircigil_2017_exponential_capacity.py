"""A dense memory with F = e^z holds about 2^{d/2}/√d patterns, all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from measureformer.atlas.helpers.memory_patterns import signs
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.memory import Dense, Exponential, birthday_capacity, capacity
from measureformer.memory.capacity_curve import CapacityCurve


@dataclass(frozen=True)
class Config:
    least: int = 10
    most: int = 16
    trials: int = 60
    dim: int = 32
    patterns: int = 1500


@once
def _curves(key: Key, config: Config, criterion: Literal["all", "each"]) -> list[CapacityCurve]:
    curves: list[CapacityCurve] = []
    # half of the patterns are fixed up to nearly 2^d of them: for that, fewer bits
    dims = range(config.least, config.most + 1, 6) if criterion == "all" else (6, 9)
    trials = config.trials if criterion == "all" else config.trials // 5
    for d in dims:
        reach = np.geomspace(0.3, 3, 7) if criterion == "all" else np.geomspace(0.5, 2 ** (d / 2), 8)
        counts = np.unique(np.round(birthday_capacity(d) * reach).astype(int))
        curves.append(
            capacity(Exponential(), d, counts, jax.random.fold_in(key, d), trials=trials, criterion=criterion)
        )
    return curves


@once
def _lost(key: Key, config: Config, *, neighbours: bool) -> int:
    """How many patterns of a large memory are not fixed; with `neighbours`, two of them differ in one bit."""
    X = signs(generator(key), config.patterns, config.dim)
    if neighbours:
        X[1] = X[0] * np.where(np.arange(config.dim) == 0, -1, 1)
    return int((~Dense.store(X).stable()).sum())


def measure(key: Key, config: Config, variant: str) -> Outcome:
    curves = _curves(key, config, "each" if variant == "half-of-the-patterns" else "all")
    d, N = np.array([curve.dim for curve in curves]), np.array([curve.capacity for curve in curves])
    law = np.array([birthday_capacity(curve.dim) for curve in curves])
    slope = np.polyfit(d, np.log2(N) + 0.5 * np.log2(d), 1)[0]
    lost = _lost(key, config, neighbours=variant == "neighbours")
    half = "half-of-the-patterns"
    checks = (
        Check("slope of log₂(N √d) in d", slope, 0.44, 0.56, rejected_by=half),
        Check("smallest N over √(2 ln 2 · 2^d/d)", (N / law).min(), 0.6, 1.4, rejected_by=half),
        Check("largest N over √(2 ln 2 · 2^d/d)", (N / law).max(), 0.6, 1.4, rejected_by=half),
        Check(
            f"of {config.patterns} patterns of {config.dim} bits, not fixed", lost, high=0.0, rejected_by="neighbours"
        ),
    )
    return Outcome(checks, _figure(config, curves, d, law) if variant == "claim" else None)


def _figure(config: Config, curves: list[CapacityCurve], d: np.ndarray, law: np.ndarray) -> Figure:
    low, high = np.array([curve.interval for curve in curves]).T
    return Figure(
        "Capacity with the exponential interaction",
        "bits d",
        "patterns that are all fixed with probability ½",
        (
            Series("measured", d, [curve.capacity for curve in curves], "points", role="measured"),
            Series("95 % intervals", d, low, "band", high, role="measured"),
            Series("√(2 ln 2 · 2^d/d)", d, law, "dashed", role="theory"),
            Series("2^{d/2}", d, 2 ** (d / 2), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"{config.trials} trials for each number of patterns.",
    )


claim = Claim(
    name="demircigil-2017-exponential-capacity",
    title="Exponential capacity",
    kind="observation",
    statement=(
        "For F = e^z, all of N random patterns are fixed points with probability ½ at about N = √(2 ln 2 · 2^d/d), "
        "the birthday problem of a pair of patterns that differ in one bit. Observed: N within 40 % of it, and an "
        "exponent of 2 within 0.06 of d/2."
    ),
    hypotheses=("independent uniform patterns", "the criterion: all patterns are fixed, with probability ½"),
    reference="demircigil2017",
    measure=measure,
    controls={
        "half-of-the-patterns": "Half of the patterns are fixed: another criterion, and a law with twice the exponent.",
        "neighbours": "The patterns are not independent: two of them differ in one bit.",
    },
    quick=Config(),
    full=Config(most=22, trials=200, dim=40, patterns=60_000),
)
