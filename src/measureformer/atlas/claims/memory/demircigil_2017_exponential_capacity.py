"""A dense memory with F = e^z holds about 2^{d/2}/√d patterns, all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats, signs
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import CapacityCurve, Dense, Exponential, birthday_capacity, capacity


@dataclass(frozen=True)
class Config:
    least: int = 10
    most: int = 16
    trials: int = 60
    dim: int = 32
    patterns: int = 1500


def _curves(key: Any, config: Config, criterion: Any) -> list[CapacityCurve]:
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


def _outcome(key: Any, config: Config, curves: list[CapacityCurve], figure: Figure | None) -> Outcome:
    d = np.array([curve.dim for curve in curves])
    N = np.array([curve.capacity for curve in curves])
    ratios = N / np.array([birthday_capacity(int(bits)) for bits in d])
    slope = float(np.polyfit(d, np.log2(N) + 0.5 * np.log2(d), 1)[0])
    lost = int((~Dense.store(signs(generator(key), config.patterns, config.dim)).stable()).sum())
    checks = (
        Check("slope of log₂(N √d) in d", slope, 0.44, 0.56),
        Check("smallest N over √(2 ln 2 · 2^d/d)", float(ratios.min()), 0.6, 1.4),
        Check("largest N over √(2 ln 2 · 2^d/d)", float(ratios.max()), 0.6, 1.4),
        Check(f"of {config.patterns} patterns of {config.dim} bits, not fixed", float(lost), high=0.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    curves = _curves(key, config, "all")
    d = floats(np.array([curve.dim for curve in curves]))
    ends = [curve.interval for curve in curves]
    law = tuple(birthday_capacity(curve.dim) for curve in curves)
    figure = Figure(
        "Capacity with the exponential interaction",
        "bits d",
        "patterns that are all fixed with probability ½",
        (
            Series("measured", d, tuple(curve.capacity for curve in curves), "points"),
            Series("95 % intervals", d, tuple(low for low, _ in ends), "band", tuple(high for _, high in ends)),
            Series("√(2 ln 2 · 2^d/d)", d, law, "dashed"),
            Series("2^{d/2}", d, tuple(2 ** (x / 2) for x in d), "dashed"),
        ),
        yscale="log",
        caption=f"{config.trials} trials for each number of patterns.",
    )
    return _outcome(key, config, curves, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, _curves(key, config, "each"), None)


claim = Claim(
    name="demircigil-2017-exponential-capacity",
    title="Exponential capacity",
    statement=(
        "For F = e^z, all of N random patterns are fixed points with probability ½ at N ≈ √(2 ln 2 · 2^d/d): until "
        "a pair of patterns that differ in one bit turns up."
    ),
    hypotheses=("independent uniform patterns", "the criterion: all patterns are fixed, with probability ½"),
    reference="demircigil2017",
    run=_run,
    control=_control,
    control_statement="Half of the patterns are fixed: another criterion, and another law, with twice the exponent.",
    quick=Config(),
    full=Config(most=22, trials=200, dim=40, patterns=60_000),
)
