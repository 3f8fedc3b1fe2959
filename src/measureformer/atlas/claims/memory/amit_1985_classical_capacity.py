"""A classical memory holds d/(2 ln d) patterns without errors, and 0.138 d with a few.

The second number is where a transition sits as d grows; for d in the hundreds it is smeared out by more than a third.
But below it a larger memory holds a larger share of its patterns, and above it a smaller one: the curves for two sizes
cross there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.memory import Polynomial, amit85_capacity, capacity, mceliece87_capacity
from measureformer.memory.capacity import bit_error
from measureformer.memory.capacity_curve import CapacityCurve


@dataclass(frozen=True)
class Config:
    small: int = 50
    large: int = 200
    trials: int = 16
    loads: int = 4
    low: float = 0.12
    high: float = 0.18


def _loads(config: Config) -> np.ndarray:
    return np.linspace(0.08, 0.2, config.loads)


@once
def _pair(key: Key, config: Config, criterion: Literal["each", "errors"]) -> list[CapacityCurve]:
    """The share of patterns that is held, in a small memory and in a large one, at the same loads."""
    return [
        capacity(
            Polynomial(2),
            d,
            np.round(_loads(config) * d).astype(int),
            jax.random.fold_in(key, d),
            trials=config.trials,
            criterion=criterion,
        )
        for d in (config.small, config.large)
    ]


@once
def _fixed(key: Key, config: Config, count: float) -> CapacityCurve:
    """The share of patterns that are fixed points, at `count` patterns and at 0.2 d."""
    # as many counts as above, so that the control runs the same program
    counts = np.round(np.append(count, np.full(config.loads - 1, 0.2 * config.large))).astype(int)
    # five standard errors of the bit errors are to be a third of what is allowed
    return capacity(Polynomial(2), config.large, counts, key, trials=4 * config.trials, criterion="each")


def _crossing(pair: list[CapacityCurve], config: Config) -> float:
    """The load at which the large memory begins to hold clearly less than the small one: by 5 % of the patterns."""
    loads, gap = _loads(config), pair[1].held - pair[0].held + 0.05
    i = int(np.argmax(gap < 0)) if (gap < 0).any() else len(gap)
    if i in (0, len(gap)):
        return float(loads[min(i, len(gap) - 1)])
    return float(loads[i - 1] + (loads[i] - loads[i - 1]) * gap[i - 1] / (gap[i - 1] - gap[i]))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    d = config.large
    pair = _pair(key, config, "each" if variant == "no-errors-allowed" else "errors")
    few = mceliece87_capacity(d)
    fixed = _fixed(key, config, amit85_capacity(d) if variant == "one-capacity" else few)
    # bits are nearly independent: a pattern is fixed if none of its d bits changes
    expected = (1 - bit_error(np.round(few), d)) ** d
    rate = bit_error(fixed.counts[1] / (2 if variant == "factor-two-forgotten" else 1), d)
    bits, error = fixed.bit_errors[1] / rate, 5 * fixed.bit_errors_error[1] / rate
    few_fixed, gap = "share of patterns fixed at d/(2 ln d), minus (1 − bit error)^d", fixed.held[0] - expected
    less, load = "load N/d from which on a larger memory holds less", _crossing(pair, config)
    forgotten = "factor-two-forgotten"
    checks = (
        Check("bit errors at 0.2 d patterns over ½ erfc(√(d/2N))", bits, 0.7, 1.3, error, rejected_by=forgotten),
        Check(few_fixed, gap, -0.08, 0.08, rejected_by="one-capacity"),
        Check(less, load, config.low, config.high, rejected_by="no-errors-allowed"),
    )
    return Outcome(checks, _figure(pair, config) if variant == "claim" else None)


def _figure(pair: list[CapacityCurve], config: Config) -> Figure:
    loads, fine = _loads(config), np.linspace(0.06, 0.2, 40)
    series: list[Series] = []
    for curve in pair:
        series += [
            Series(f"recognised, d = {curve.dim}", loads, curve.held, "points", role="measured"),
            Series(f"95 % intervals, d = {curve.dim}", loads, curve.low, "band", curve.high, role="measured"),
        ]
    d = config.large
    law = (1 - bit_error(fine * d, d)) ** d
    return Figure(
        "What a classical memory holds",
        "patterns per bit, N/d",
        "share of patterns",
        (
            *series,
            Series("0.138", (amit85_capacity(d) / d,) * 2, (0.0, 1.0), "dashed", role="theory"),
            Series(f"without an error, d = {d}: (1 − bit error)^d", fine, law, "dashed", role="theory"),
        ),
        caption=(
            "Independent uniform patterns, Hebb's rule without the diagonal; recognised: at least 95 % of the bits are "
            f"right at the end of asynchronous updates. d/(2 ln d) is {1 / (2 * math.log(d)):.3f} d."
        ),
    )


claim = Claim(
    name="amit-1985-classical-capacity",
    title="Two capacities of the classical memory",
    kind="observation",
    statement=(
        "Of N ≤ d/(2 ln d) random patterns, each is a fixed point with the probability (1 − ½ erfc(√(d/2N)))^d, up to "
        "0.08. With a few wrong bits allowed, a larger memory is observed to hold a smaller share from a load between "
        "0.12 d and 0.18 d on (0.125 d and 0.16 d for d = 128 and 512), as the transition at 0.138 d suggests."
    ),
    hypotheses=(
        "independent uniform patterns, Hebb's rule without the diagonal",
        "two sizes, and a load at which the larger memory holds 5 % less: this brackets 0.138, and no limit is taken",
    ),
    reference="amit1985; mceliece1987",
    measure=measure,
    controls={
        "no-errors-allowed": "No wrong bit is allowed: then a larger memory holds less at every load.",
        "one-capacity": "One capacity for both criteria: 0.138 d patterns, fixed as often as d/(2 ln d) of them.",
        "factor-two-forgotten": "½ erfc(√(d/N)) as the bit error: the factor 2 under the root is forgotten.",
    },
    quick=Config(),
    full=Config(small=128, large=512, trials=40, loads=7, low=0.125, high=0.16),
)
