"""W_1⁺(μ,ν) = W_1(μ/|μ|, ν/|ν|) + ||μ|−|ν|| is a metric on positive measures. With the mass as a factor it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.measures import Discrete
from measureformer.transport import positive_wasserstein, wasserstein

# axioms, each with the control that violates it
AXIOMS = {
    "symmetry": "gained-mass-is-free",
    "triangle inequality": "mass-as-a-factor",
    "zero for equal measures": "independent-coupling",
}


@dataclass(frozen=True)
class Config:
    triples: int = 12
    tolerance: float = 1e-10


def _distance(mu: Discrete, nu: Discrete, variant: str) -> float:
    if variant == "claim":
        return float(positive_wasserstein(mu, nu))
    masses = float(mu.mass), float(nu.mass)
    mu, nu = mu.normalized(), nu.normalized()
    if variant == "independent-coupling":
        apart = np.linalg.norm(np.asarray(mu.points)[:, None] - np.asarray(nu.points), axis=-1)
        shapes = float(np.asarray(mu.weights) @ apart @ np.asarray(nu.weights))
    else:
        shapes = float(wasserstein(mu, nu, 1))
    lost = masses[0] - masses[1]
    return shapes * (min(masses) if variant == "mass-as-a-factor" else 1.0) + (
        max(lost, 0.0) if variant == "gained-mass-is-free" else abs(lost)
    )


@once
def _violations(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """The worst violation of each axiom; and for every triple the two sides of the triangle and W_1⁺(μ, 2μ)/|μ|."""
    rng = generator(key)
    worst, sides = np.zeros(len(AXIOMS)), []
    for _ in range(config.triples):
        # shapes far apart compared with the masses, so that a detour by a small mass would pay
        mu, nu, third = (
            Discrete.weighted(10 * rng.normal(size=(n, 2)), np.exp(2 * rng.normal()) * rng.uniform(0.1, 1, n))
            for n in (4, 3, 5)
        )
        again = mu.rows(np.arange(4)[::-1])
        pairs = (mu, nu), (nu, mu), (mu, third), (third, nu), (mu, again), (mu, 2 * mu)
        direct, reverse, there, back, equal, twice = (_distance(*pair, variant) for pair in pairs)
        worst = np.maximum(worst, np.array([abs(direct - reverse), direct - there - back, equal]) / (1 + direct))
        sides.append((direct, there + back, twice / float(mu.mass)))
    return worst, np.array(sides).T


def measure(key: Key, config: Config, variant: str) -> Outcome:
    worst, (direct, detour, twice) = _violations(key, config, variant)
    # different shapes are apart, and so are equal shapes of different mass
    least = min(direct.min(), twice.min())
    checks = (
        *(
            Check(axiom, value, high=config.tolerance, rejected_by=control)
            for (axiom, control), value in zip(AXIOMS.items(), worst, strict=True)
        ),
        Check("smallest distance of different measures", least, low=1e-3, rejected_by="gained-mass-is-free"),
    )
    return Outcome(checks, _figure(key, config, direct, detour) if variant == "claim" else None)


def _figure(key: Key, config: Config, direct: np.ndarray, detour: np.ndarray) -> Figure:
    false_direct, false_detour, _ = _violations(key, config, "mass-as-a-factor")[1]
    ends = 0.1, max(detour.max(), false_detour.max())
    return Figure(
        "A distance between measures of different mass",
        "distance by a third measure",
        "direct distance",
        (
            Series("W_1⁺", detour, direct, "points", role="measured"),
            Series("control: mass as a factor", false_detour, false_direct, "points", role="control"),
            Series("triangle inequality", ends, ends, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.triples} random triples in the plane; points above the line violate the triangle inequality.",
    )


claim = Claim(
    name="lombardini-2021-positive-measures",
    title="A metric on positive measures",
    kind="theorem",
    statement=(
        "W_1⁺(μ,ν) = W_1(μ/|μ|, ν/|ν|) + ||μ| − |ν|| is symmetric, zero exactly for μ = ν, and satisfies the triangle "
        "inequality for all positive measures μ, ν, ρ of finite mass."
    ),
    hypotheses=("masses are positive: the zero measure is excluded", "here: few atoms in the plane"),
    reference="lombardini2021; furuya2025",
    measure=measure,
    controls={
        "mass-as-a-factor": "The distance of the shapes times the smaller mass: detours by small measures are shorter.",
        "gained-mass-is-free": "Only mass that is lost counts, max(|μ| − |ν|, 0) instead of ||μ| − |ν||.",
        "independent-coupling": "The cost of the independent coupling of the shapes instead of the optimal one.",
    },
    quick=Config(),
    full=Config(triples=2000),
)
