"""W_1⁺(μ,ν) = W_1(μ/|μ|, ν/|ν|) + ||μ|−|ν|| is a metric on positive measures. With the mass as a factor it is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.transport import positive_wasserstein, wasserstein

AXIOMS = ("symmetry", "triangle inequality", "zero for equal measures")


@dataclass(frozen=True)
class Config:
    triples: int = 12
    tolerance: float = 1e-10


def _distance(mu: Discrete, nu: Discrete, *, factor: bool) -> float:
    if not factor:
        return float(positive_wasserstein(mu, nu))
    # W_1 of the shapes times the smaller mass: a short cut through a small measure costs little
    shapes = float(wasserstein(mu.normalized(), nu.normalized(), 1))
    return min(float(mu.mass), float(nu.mass)) * shapes + abs(float(mu.mass) - float(nu.mass))


def _violations(key: Any, config: Config, *, factor: bool) -> tuple[np.ndarray, np.ndarray]:
    """The worst violation of each axiom; and for every triple the two sides of the triangle and W_1⁺(μ, 2μ)/|μ|."""
    rng = generator(key)
    worst, sides = np.zeros(3), []
    for _ in range(config.triples):
        # shapes far apart compared with the masses, so that a detour by a small mass would pay
        measures = [
            Discrete.weighted(10 * rng.normal(size=(n, 2)), np.exp(2 * rng.normal()) * rng.uniform(0.1, 1, n))
            for n in (4, 3, 5)
        ]
        mu, nu, third = measures
        direct, there, back = (_distance(*pair, factor=factor) for pair in ((mu, nu), (mu, third), (third, nu)))
        again = mu.rows(np.arange(4)[::-1])
        found = (
            abs(direct - _distance(nu, mu, factor=factor)),
            direct - there - back,
            _distance(mu, again, factor=factor),
        )
        worst = np.maximum(worst, np.array(found) / (1 + direct))
        twice = _distance(mu, 2 * mu, factor=factor)
        sides.append((direct, there + back, twice / float(mu.mass)))
    return worst, np.array(sides)


def _checks(worst: np.ndarray, sides: np.ndarray, tolerance: float) -> tuple[Check, ...]:
    violations = [Check(name, float(value), high=tolerance) for name, value in zip(AXIOMS, worst, strict=True)]
    # different shapes are apart, and so are equal shapes of different mass
    least = float(min(sides[:, 0].min(), sides[:, 2].min()))
    return (*violations, Check("smallest distance of different measures", least, low=1e-3))


def _run(key: Any, config: Config) -> Outcome:
    worst, sides = _violations(key, config, factor=False)
    _, false = _violations(key, config, factor=True)
    longest = float(max(sides[:, 1].max(), false[:, 1].max()))
    figure = Figure(
        "A distance between measures of different mass",
        "distance by a third measure",
        "direct distance",
        (
            Series("W_1⁺", tuple(map(float, sides[:, 1])), tuple(map(float, sides[:, 0])), "points"),
            Series(
                "control: mass as a factor", tuple(map(float, false[:, 1])), tuple(map(float, false[:, 0])), "points"
            ),
            Series("triangle inequality", (0.1, longest), (0.1, longest), "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.triples} random triples in the plane; points above the line violate the triangle inequality.",
    )
    return Outcome(_checks(worst, sides, config.tolerance), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_violations(key, config, factor=True), config.tolerance))


claim = Claim(
    name="lombardini-2021-positive-measures",
    title="A metric on positive measures",
    statement=(
        "W_1⁺(μ,ν) = W_1(μ/|μ|, ν/|ν|) + ||μ| − |ν|| is symmetric, zero exactly for μ = ν, and satisfies the triangle "
        "inequality for all positive measures μ, ν, ρ of finite mass."
    ),
    hypotheses=("masses are positive: the zero measure is excluded", "here: few atoms in the plane"),
    reference="lombardini2021; furuya2025",
    run=_run,
    control=_control,
    control_statement="The distance of the shapes times the smaller mass: detours by small measures are shorter.",
    quick=Config(),
    full=Config(triples=2000),
)
