"""A dense memory with F = z^a holds about d^{a−1} patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import CapacityCurve, Polynomial, capacity


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


def _curves(key: Any, config: Config, *, hebb: bool) -> dict[int, list[CapacityCurve]]:
    dims = np.unique(np.geomspace(config.least, config.most, config.sizes).round().astype(int))
    found: dict[int, list[CapacityCurve]] = {}
    for degree in map(int, config.degrees.split()):
        for d in map(int, dims):
            counts = np.unique(np.round(_predicted(d, degree) * np.geomspace(0.25, 2.5, 7)).astype(int))
            interaction = Polynomial(2 if hebb else degree)
            key, own = jax.random.split(key)
            curve = capacity(interaction, d, np.maximum(counts, 1), own, trials=config.trials, criterion="each")
            found.setdefault(degree, []).append(curve)
    return found


def _checks(found: dict[int, list[CapacityCurve]]) -> tuple[Check, ...]:
    checks: list[Check] = []
    for degree, curves in found.items():
        # no crossing means that nearly nothing was held, or nearly all
        ratios = [(c.capacity if c.capacity > 0 else float(c.counts[0])) / _predicted(c.dim, degree) for c in curves]
        checks.append(Check(f"a = {degree}: smallest capacity over d^{{a−1}}/((2a−3)!! q²)", min(ratios), 0.7, 1.3))
        checks.append(Check(f"a = {degree}: largest", max(ratios), 0.7, 1.3))
    return tuple(checks)


def _run(key: Any, config: Config) -> Outcome:
    found = _curves(key, config, hebb=False)
    series: list[Series] = []
    for degree, curves in found.items():
        d = floats(np.array([c.dim for c in curves]))
        series += [
            Series(f"measured, a = {degree}", d, tuple(c.capacity for c in curves), "points"),
            Series(
                f"95 % intervals, a = {degree}",
                d,
                tuple(c.interval[0] for c in curves),
                "band",
                tuple(c.interval[1] for c in curves),
            ),
        ]
        series.append(Series(f"d^{degree - 1} law", d, tuple(_predicted(c.dim, degree) for c in curves), "dashed"))
    figure = Figure(
        "Capacity with polynomial interactions",
        "bits d",
        "patterns of which half are fixed",
        tuple(series),
        yscale="log",
        caption=f"{config.trials} trials; dashed: d^(a−1)/((2a−3)!! q²), q the quantile at which no bit of d changes.",
    )
    return Outcome(_checks(found), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_curves(key, config, hebb=True)))


claim = Claim(
    name="krotov-2016-polynomial-capacity",
    title="Polynomial capacity",
    statement=(
        "For F = z^a, half of N random patterns are fixed points at N ≈ d^{a−1}/((2a−3)!! q²), where a standard "
        "normal exceeds q with probability 1 − 2^{−1/d} ≈ ln 2/d; q² ~ 2 ln d gives the capacity d^{a−1}/(2 "
        "(2a−3)!! ln d)."
    ),
    hypotheses=("independent uniform patterns", "the criterion: half of the patterns are fixed"),
    reference="krotov2016",
    run=_run,
    control=_control,
    control_statement="Hebb's rule, a = 2, where a is claimed.",
    quick=Config(),
    full=Config(least=16, most=48, sizes=5, trials=40, degrees="2 3 4"),
)
