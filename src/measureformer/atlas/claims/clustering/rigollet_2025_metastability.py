"""Separated tokens wait for an exponentially long time: e^{β(1 − cos)} of the closest pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_sphere import sphere_trajectory
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.clustering import merge_times

MERGED = 0.2
"""Distance at which two tokens count as one."""


@dataclass(frozen=True)
class Config:
    angle: float = 0.9
    least: float = 14.0
    most: float = 26.0
    values: int = 3


def _first_merge(angle: float, beta: float, *, normalized: bool) -> float:
    """When the closest two of three tokens are at distance `MERGED`; the time looked at is doubled until they are.

    Then the interval between two saved times in which it happens is looked at again: tokens that wait for long merge
    suddenly, and straight lines between distant times would place the event several per cent too early or too late.
    """
    X = np.array([[1.0, 0.0, 0.0], [math.cos(angle), math.sin(angle), 0.0], [0.0, 0.0, 1.0]])
    # a fraction of the time to be expected: e^{β(1−c)}/β with the normaliser, e^{−βc}/β without
    cosine = math.cos(angle)
    start, length = 0.0, math.exp(beta * (1 - cosine) if normalized else -beta * cosine) / (8 * beta)
    refined = 0
    for _ in range(60):
        times = np.linspace(start, start + length, 16)
        traj = sphere_trajectory(X, beta, times, normalized=normalized)
        found = merge_times(traj.times, traj.points, MERGED)
        if len(found) and refined == 2:
            return float(found[0])
        if len(found):
            # the last saved time before the event is a start like any other
            last = int(np.searchsorted(times, found[0])) - 1
            start, length, X = float(times[last]), length / 15, np.asarray(traj.points[last])
            refined += 1
        else:
            start, length, X = start + length, start + length, np.asarray(traj.points[-1])
    return math.inf


def _times(config: Config, *, normalized: bool) -> tuple[np.ndarray, np.ndarray]:
    betas = np.linspace(config.least, config.most, config.values)
    return betas, np.array([_first_merge(config.angle, beta, normalized=normalized) for beta in betas])


def _alone(angle: float, beta: float) -> float:
    """The time that two tokens alone take from the angle to the distance 0.2: their equation is separable.

    γ' = 2(1−γ²)/(e^{β(1−γ)}+1), so T = ∫ (e^{β(1−γ)}+1)/(2(1−γ²)) dγ.
    """
    from scipy.integrate import quad

    # in the angle a, γ = cos a, the integrand has no pole: dγ/(1−γ²) = −da/sin a
    def rate(a: float) -> float:
        return (math.exp(beta * (1 - math.cos(a))) + 1) / (2 * math.sin(a))

    return float(quad(rate, 2 * math.asin(0.5 * MERGED), angle, epsabs=0, epsrel=1e-11)[0])


def measure(key: Key, config: Config, variant: str) -> Outcome:
    betas, times = _times(config, normalized=variant != "unnormalised")
    # By Laplace's method T = e^{β(1−c)}/(2β(1−c²)) · (1 + 2c/((1−c²)β) + …) + ½ log(tan(a/2)/tan(b/2)), with c the
    # cosine at the start and a, b the angles at start and end. The terms behind the first lower the slope of log(βT)
    # by some per cent at these β, and the integral has them all; the third token adds e^{−βc} relative to it.
    alone = np.array([_alone(config.angle, beta) for beta in betas])
    slope, expected = (np.polyfit(betas, np.log(betas * T), 1)[0] for T in (times, alone))
    exponent, wrong = 1 - math.cos(config.angle), "unnormalised"
    gap, off = (slope - expected) / exponent, np.abs(times / alone - 1).max()
    checks = (
        Check("slope of log(βT) over 1 − cos of the closest pair", slope / exponent, 0.93, 1.07, rejected_by=wrong),
        Check("the same slope, minus that of two tokens alone", gap, -1e-4, 1e-4, rejected_by=wrong),
        Check("time over that of two tokens alone, minus 1", off, high=2e-4, rejected_by=wrong),
    )
    return Outcome(checks, _figure(config, betas, times, alone) if variant == "claim" else None)


def _figure(config: Config, betas: np.ndarray, times: np.ndarray, alone: np.ndarray) -> Figure:
    law = np.exp((1 - math.cos(config.angle)) * betas) / (2 * betas * math.sin(config.angle) ** 2)
    return Figure(
        "How long separated tokens wait",
        "inverse temperature β",
        "time T of the first merge",
        (
            Series("measured", betas, times, "points", role="measured"),
            Series("two tokens alone", betas, alone, "dashed", role="theory"),
            Series("e^{β(1 − cos)}/(2β sin²), the leading term", betas, law, "dashed", role="theory"),
        ),
        yscale="log",
        caption=(
            f"Three tokens on the sphere, the closest two at the angle {config.angle:g}; merged at distance {MERGED:g}."
        ),
    )


claim = Claim(
    name="rigollet-2025-metastability",
    title="Metastable clusters",
    kind="theorem",
    statement=(
        "For separated tokens on the sphere and β → ∞, the logarithm of the time until the closest pair merges grows "
        "like β(1 − ⟨x_i, x_j⟩)."
    ),
    hypotheses=(
        "Q = K = V = I with the softmax",
        "one pair is closer than all others",
        "tested on three tokens, two of them at the angle 0.9",
    ),
    reference="rigollet2025",
    measure=measure,
    controls={"unnormalised": "Attention without the normaliser, where the time falls like e^{−β⟨x_i, x_j⟩}."},
    quick=Config(),
    full=Config(least=16.0, most=34.0, values=10),
)
