"""One token against n − 1: the constant grows like √n, until n reaches the exponential of the logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import attention, cluster_constant, prediction
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.regularity import lipschitz_ball


@dataclass(frozen=True)
class Config:
    growth: float = 12.0
    slope_growth: float = 16.0
    sizes: int = 6


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sign = 1.0 if variant == "attracting-head" else -1.0

    def constants(n: np.ndarray, growth: float) -> np.ndarray:
        return np.array([cluster_constant(m, growth, sign=sign)[0] for m in n])

    def slope(n: np.ndarray, growth: float) -> float:
        return np.polyfit(np.log(n), np.log(constants(n, growth)), 1)[0]

    growth, slope_growth = config.growth, config.slope_growth
    # what the statement calls G, for the cloud of that growth
    claimed = growth / 2 if variant == "half-the-exponent" else growth
    top = math.exp(claimed)
    n = np.geomspace(10, top / 10, config.sizes)
    frozen = variant == "frozen-attention"
    ratios = constants(n, growth) / [
        math.sqrt(m - 1) * attention(m, claimed) if frozen else prediction(m, claimed) for m in n
    ]
    # the factor 1 + G(1−p) bends the curve near n = e^G: the slope is taken two decades below
    rising = slope(np.geomspace(10, math.exp(slope_growth) / 100, config.sizes), slope_growth)
    falling = slope(np.geomspace(10 * top, 1000 * top, config.sizes), growth)
    bound = lipschitz_ball(1.0, 1.0, math.sqrt(growth / 2))
    best = constants(top * np.array([2.0, 2.6, 3.2]), growth).max()
    wrong, half = "attracting-head", "half-the-exponent"
    checks = (
        Check("constant over √(n−1) p (1 + G(1−p)), least", ratios.min(), low=1 - 1e-9, rejected_by=wrong),
        Check("constant over √(n−1) p (1 + G(1−p)), largest", ratios.max(), high=1.003, rejected_by="frozen-attention"),
        Check("exponent of n far below e^G", rising, 0.47, 0.53, rejected_by=wrong),
        Check("exponent of n far above e^G", falling, high=0.0, rejected_by=half),
        Check("share of the bound (1 + s)e^s + s at n ≈ 2.6 e^G", best / bound, 0.5, 1.0, rejected_by=(wrong, half)),
    )
    return Outcome(checks, _figure(config, bound) if variant == "claim" else None)


def _figure(config: Config, bound: float) -> Figure:
    top = math.exp(config.growth)
    n = np.geomspace(4, 1000 * top, 3 * config.sizes)
    lower, upper = np.array([cluster_constant(m, config.growth) for m in n]).T
    predicted = [prediction(m, config.growth) for m in n]
    return Figure(
        "One token against n − 1",
        "number of tokens n",
        "local constant",
        (
            Series("local constant", n, lower, "points", role="measured"),
            Series("certified upper value", n, upper, "line", role="measured"),
            Series("√(n−1) p (1 + G(1−p))", n, predicted, "dashed", role="theory"),
            Series("bound for measures in a ball", n[[0, -1]], (bound, bound), "line", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"X = R(−u, u, …, u), A = −I, V = I, G = 2R² = {config.growth:g}; saturation at n ≈ e^G = {top:.2g}.",
    )


claim = Claim(
    name="castin-2024-sqrt-growth",
    title="Worst-case growth √n, and where it ends",
    kind="theorem",
    statement=(
        "For A = −|λ|I, V = I and n tokens R(−u, u, …, u), with G = 2|λ|R² and p = e^G/(e^G + n − 1): the local "
        "constant is at least √(n−1) p (1 + G(1−p)), which grows like √n for n ≪ e^G and falls for n ≫ e^G."
    ),
    hypotheses=("A has a negative eigenvalue", "one token stands apart from the others"),
    reference="castin2024",
    measure=measure,
    controls={
        "attracting-head": "The same cloud for A = +I, whose tokens look at their own cluster.",
        "frozen-attention": "√(n−1) p alone: the factor 1 + G(1−p), by which attention follows the token, is dropped.",
        "half-the-exponent": "G = |λ|R², without the factor 2: the growth would end at the square root of e^G.",
    },
    quick=Config(),
    full=Config(sizes=30),
)
