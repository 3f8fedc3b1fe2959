"""One token against n − 1: the constant grows like √n, until n reaches the exponential of the logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.regularity_heads import cluster_constant, prediction
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.regularity import ball


@dataclass(frozen=True)
class Config:
    growth: float = 12.0
    slope_growth: float = 16.0
    sizes: int = 6


def _slope(low: float, high: float, growth: float, count: int, sign: float) -> float:
    n = np.geomspace(low, high, count)
    return float(np.polyfit(np.log(n), [math.log(cluster_constant(m, growth, sign=sign)[0]) for m in n], 1)[0])


def _outcome(config: Config, sign: float, figure: Figure | None = None) -> Outcome:
    top = math.exp(config.growth)
    ratios = [
        cluster_constant(n, config.growth, sign=sign)[0] / prediction(n, config.growth)
        for n in np.geomspace(10, top / 10, config.sizes)
    ]
    # the factor 1 + G(1−p) bends the curve near n = e^G: the slope is taken two decades below
    rising = _slope(10, math.exp(config.slope_growth) / 100, config.slope_growth, config.sizes, sign)
    falling = _slope(10 * top, 1000 * top, config.growth, config.sizes, sign)
    best = max(cluster_constant(c * top, config.growth, sign=sign)[0] for c in (2.0, 2.6, 3.2))
    checks = (
        Check("constant over √(n−1) p (1 + G(1−p)), least", min(ratios), low=1 - 1e-9),
        Check("constant over √(n−1) p (1 + G(1−p)), largest", max(ratios), high=1.003),
        Check("exponent of n far below e^G", rising, 0.47, 0.53),
        Check("exponent of n far above e^G", falling, high=0.0),
        Check(
            "share of the bound (1 + s)e^s + s at n ≈ 2.6 e^G",
            best / ball(1.0, 1.0, math.sqrt(config.growth / 2)),
            0.5,
            1.0,
        ),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    top = math.exp(config.growth)
    n = np.geomspace(4, 1000 * top, 3 * config.sizes)
    sizes = tuple(map(float, n))
    found = [cluster_constant(m, config.growth) for m in sizes]
    bound = ball(1.0, 1.0, math.sqrt(config.growth / 2))
    figure = Figure(
        "One token against n − 1",
        "number of tokens n",
        "local constant",
        (
            Series("local constant", sizes, tuple(lower for lower, _ in found), "points"),
            Series("certified upper value", sizes, tuple(upper for _, upper in found), "line"),
            Series("√(n−1) p (1 + G(1−p))", sizes, tuple(prediction(m, config.growth) for m in sizes), "dashed"),
            Series("bound for measures in a ball", (sizes[0], sizes[-1]), (bound, bound), "line"),
        ),
        xscale="log",
        yscale="log",
        caption=f"X = R(−u, u, …, u), A = −I, V = I, G = 2R² = {config.growth:g}; saturation at n ≈ e^G = {top:.2g}.",
    )
    return _outcome(config, -1.0, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, 1.0)


claim = Claim(
    name="castin-2024-sqrt-growth",
    title="Worst-case growth √n, and where it ends",
    statement=(
        "For A = −|λ|I, V = I and n tokens R(−u, u, …, u), with G = 2|λ|R² and p = e^G/(e^G + n − 1): the local "
        "constant is at least √(n−1) p (1 + G(1−p)), which grows like √n for n ≪ e^G and falls for n ≫ e^G."
    ),
    hypotheses=("A has a negative eigenvalue", "one token stands apart from the others"),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="The same cloud for A = +I, whose tokens look at their own cluster.",
    quick=Config(),
    full=Config(sizes=30),
)
