"""A classical memory holds d/(2 ln d) patterns without errors, and 0.138 d with a few."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer._claims.base import Claim
from measureformer._claims.memory._patterns import floats
from measureformer.memory import CapacityCurve, Polynomial, amit85_capacity, bit_error, capacity, mceliece87_capacity
from measureformer.result import Check, Figure, Outcome, Series

LOADS = (0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2)


@dataclass(frozen=True)
class Config:
    dim: int = 256
    trials: int = 12
    error: float = 0.02


def _curves(key: Any, config: Config, *, errors: bool) -> tuple[CapacityCurve, CapacityCurve]:
    """Share of patterns that are fixed, and that are recognisable at the end; the control asks for no error there."""
    d = config.dim
    counts = np.array([round(mceliece87_capacity(d)), *(round(load * d) for load in LOADS)])
    one, two = jax.random.split(key)
    fixed = capacity(Polynomial(2), d, counts, one, trials=2 * config.trials, criterion="each")
    if errors:
        return fixed, capacity(Polynomial(2), d, counts[1:], two, trials=config.trials, criterion="errors")
    return fixed, capacity(Polynomial(2), d, counts[1:], two, trials=config.trials, criterion="each")


def _checks(fixed: CapacityCurve, held: CapacityCurve, config: Config) -> tuple[Check, ...]:
    d = config.dim
    # bits are nearly independent: a pattern is fixed if none of its d bits changes
    expected = (1 - bit_error(fixed.counts, d)) ** d
    rate, error = fixed.bit_errors[-1], 5 * fixed.bit_errors_error[-1]
    return (
        Check("bit errors at 0.2 d patterns over ½ erfc(√(d/2N))", rate / 0.01267, 0.8, 1.2, error=error / 0.01267),
        Check(
            "share of patterns fixed at d/(2 ln d), minus (1 − bit error)^d",
            float(fixed.held[0] - expected[0]),
            -0.08,
            0.08,
            error=float(fixed.high[0] - fixed.low[0]),
        ),
        Check("patterns held with errors, over d", held.capacity / d, 0.125, 0.17),
    )


def _run(key: Any, config: Config) -> Outcome:
    fixed, held = _curves(key, config, errors=True)
    d = config.dim
    expected = (1 - bit_error(fixed.counts, d)) ** d
    order = np.argsort(fixed.counts)
    figure = Figure(
        "What a classical memory holds",
        "patterns per bit, N/d",
        "share of patterns",
        (
            Series("recognised at the end, with errors", floats(held.counts / d), floats(held.held), "points"),
            Series("95 % intervals", floats(held.counts / d), floats(held.low), "band", floats(held.high)),
            Series("fixed, without an error", floats(fixed.counts[order] / d), floats(fixed.held[order]), "points"),
            Series(
                "95 % intervals ",
                floats(fixed.counts[order] / d),
                floats(fixed.low[order]),
                "band",
                floats(fixed.high[order]),
            ),
            Series("(1 − ½ erfc √(d/2N))^d", floats(fixed.counts[order] / d), floats(expected[order]), "dashed"),
            Series("0.138", (amit85_capacity(d) / d,) * 2, (0.0, 1.0), "dashed"),
        ),
        caption=(
            f"{d} bits, independent uniform patterns, Hebb's rule without the diagonal. d/(2 ln d) is "
            f"{1 / (2 * math.log(d)):.3f} d here."
        ),
    )
    return Outcome(_checks(fixed, held, config), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_curves(key, config, errors=False), config))


claim = Claim(
    name="amit-1985-classical-capacity",
    title="Two capacities of the classical memory",
    statement=(
        "As d grows, N ≤ d/(2 ln d) random patterns are fixed points with few exceptions; with a few wrong bits "
        "allowed, 0.138 d patterns are retrieved, and hardly any above. These are two criteria, and two laws."
    ),
    hypotheses=("independent uniform patterns", "Hebb's rule without the diagonal", "d large"),
    reference="amit1985; mceliece1987",
    run=_run,
    control=_control,
    control_statement="No wrong bit is allowed where 0.138 d is claimed.",
    quick=Config(),
    full=Config(dim=1024, trials=24),
)
