"""A dense memory with F = z^a holds about d^{a−1} patterns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.memory import Polynomial, capacity, krotov16_capacity
from measureformer.memory.capacity_curve import CapacityCurve


@dataclass(frozen=True)
class Config:
    least: int = 20
    most: int = 28
    sizes: int = 2
    trials: int = 20
    degrees: str = "3"


def _predicted(d: int, degree: int) -> float:
    """The N at which half of the patterns are fixed, if what the others do to a bit is Gaussian.

    The bit's own pattern contributes 2a d^{a−1}, the others a sum of variance N (2a)² (2a−3)!! d^{a−1}, and no bit of d
    changes with probability ½.
    """
    from scipy.special import factorial2, ndtri

    quantile = -ndtri(1 - 0.5 ** (1 / d))
    return float(d ** (degree - 1) / (factorial2(2 * degree - 3) * quantile**2))


@once
def _curves(key: Key, config: Config, *, higher: int) -> dict[int, list[CapacityCurve]]:
    dims = np.unique(np.geomspace(config.least, config.most, config.sizes).round().astype(int))
    found: dict[int, list[CapacityCurve]] = {}
    for degree in map(int, config.degrees.split()):
        for d in map(int, dims):
            counts = np.unique(np.round(_predicted(d, degree) * np.geomspace(0.25, 2.5, 7)).astype(int))
            interaction = Polynomial(degree + higher)
            key, own = jax.random.split(key)
            curve = capacity(interaction, d, np.maximum(counts, 1), own, trials=config.trials, criterion="each")
            found.setdefault(degree, []).append(curve)
    return found


def _capacity(curve: CapacityCurve) -> float:
    """Where half of the patterns are fixed; if that is outside of the counts, the end on its side."""
    if math.isnan(curve.capacity):
        return float(curve.counts[-1 if curve.held[-1] >= 0.5 else 0])
    return curve.capacity


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _curves(key, config, higher=int(variant == "next-degree"))
    law = krotov16_capacity if variant == "limit-of-the-quantile" else _predicted
    controls = "next-degree", "limit-of-the-quantile"
    checks: list[Check] = []
    for degree, curves in found.items():
        ratios = [_capacity(curve) / law(curve.dim, degree) for curve in curves]
        name = f"a = {degree}: smallest capacity over d^{{a−1}}/((2a−3)!! q²)"
        checks.append(Check(name, min(ratios), 0.7, 1.3, rejected_by=controls))
        checks.append(Check(f"a = {degree}: largest", max(ratios), 0.7, 1.3, rejected_by=controls))
    return Outcome(tuple(checks), _figure(config, found) if variant == "claim" else None)


def _figure(config: Config, found: dict[int, list[CapacityCurve]]) -> Figure:
    series: list[Series] = []
    for degree, curves in found.items():
        d = [curve.dim for curve in curves]
        low, high = np.array([curve.interval for curve in curves]).T
        law = [_predicted(curve.dim, degree) for curve in curves]
        series += [
            Series(f"measured, a = {degree}", d, [curve.capacity for curve in curves], "points", role="measured"),
            Series(f"95 % intervals, a = {degree}", d, low, "band", high, role="measured"),
            Series(f"d^{degree - 1} law", d, law, "dashed", role="theory"),
        ]
    return Figure(
        "Capacity with polynomial interactions",
        "bits d",
        "patterns of which half are fixed",
        tuple(series),
        yscale="log",
        caption=f"{config.trials} trials; dashed: d^(a−1)/((2a−3)!! q²), q the quantile at which no bit of d changes.",
    )


claim = Claim(
    name="krotov-2016-polynomial-capacity",
    title="Polynomial capacity",
    kind="observation",
    statement=(
        "For F = z^a, half of N random patterns are fixed points at about N = d^{a−1}/((2a−3)!! q²), where a standard "
        "normal exceeds q with probability 1 − 2^{−1/d} ≈ ln 2/d; q² ~ 2 ln d gives the capacity d^{a−1}/(2 (2a−3)!! "
        "ln d). Observed: within 30 %."
    ),
    hypotheses=("independent uniform patterns", "the criterion: half of the patterns are fixed"),
    reference="krotov2016",
    measure=measure,
    controls={
        "next-degree": "The memory has F = z^{a+1} where z^a is claimed.",
        "limit-of-the-quantile": "q² = 2 ln d, which is right only in the limit.",
    },
    quick=Config(),
    full=Config(least=16, most=48, sizes=5, trials=40, degrees="2 3 4"),
)
