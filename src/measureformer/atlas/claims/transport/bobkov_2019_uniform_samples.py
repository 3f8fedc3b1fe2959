"""N points against the uniform law on [0, 1]: the expected W_2² is 1/(6N), not only up to constants.

On the line W_2² = Σ_i ∫ (U_(i) − t)² dt over the intervals [(i−1)/N, i/N]. The order statistic U_(i) has mean i/(N+1)
and variance i(N+1−i)/((N+1)²(N+2)); the variances contribute 1/(6(N+1)), the rest 1/(6N(N+1)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.transport_line import distances, means_and_errors
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series

SIZES = (1, 5, 20)


@dataclass(frozen=True)
class Config:
    repetitions: int = 1600
    """Five standard errors are then half of what is allowed."""
    grid: int = 400
    allowed: float = 0.2


def _measured(key: Key, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """6N · mean and 6N · five standard errors of W_2²(μ_N, U[0,1]), for each N."""
    found = distances(key, SIZES, config.repetitions, config.grid, 2.0)
    # within a cell of length 1/grid the law has the variance 1/(12 grid²), which its midpoint has not; every N divides
    # the grid, so that no cell is shared by two points
    squares = [values**2 + 1 / (12 * config.grid**2) for values in found]
    return means_and_errors(squares, (6 * n for n in SIZES))


# values of 6N · E W_2² that each variant predicts
PREDICTED = {
    "claim": np.ones(len(SIZES)),
    "variances-alone": np.array([n / (n + 1) for n in SIZES]),
    "independent-of-n": np.array([n / SIZES[0] for n in SIZES]),
}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    means, errors = _measured(key, config)
    allowed = config.allowed
    rejected_by = {1: "variances-alone", 5: "independent-of-n", 20: "independent-of-n"}
    checks = tuple(
        Check(f"E W_2² over its value, N = {n}", mean / value, 1 - allowed, 1 + allowed, error / value, rejected_by[n])
        for n, mean, error, value in zip(SIZES, means, errors, PREDICTED[variant], strict=True)
    )
    return Outcome(checks, _figure(config, means, errors) if variant == "claim" else None)


def _figure(config: Config, means: np.ndarray, errors: np.ndarray) -> Figure:
    return Figure(
        "N points against the uniform law",
        "number of points N",
        "6N · E W_2²(μ_N, U[0,1])",
        (
            Series("measured", SIZES, means, "points", role="measured"),
            Series("± 5 standard errors", SIZES, means - errors, "band", means + errors, role="measured"),
            Series("1", SIZES, PREDICTED["claim"], "dashed", role="theory"),
            Series("control: variances alone, N/(N+1)", SIZES, PREDICTED["variances-alone"], role="control"),
        ),
        xscale="log",
        caption=f"{config.repetitions} repetitions; the law as {config.grid} midpoints, corrected for their spread.",
    )


claim = Claim(
    name="bobkov-2019-uniform-samples",
    title="The distance of N uniform points to their law",
    kind="theorem",
    statement="For every N and N independent uniform points on [0, 1]: E W_2²(μ_N, U[0,1]) = 1/(6N), exactly.",
    hypotheses=("the points are independent and uniform", "dimension 1"),
    reference="bobkov2019, Section 4",
    measure=measure,
    controls={
        "variances-alone": "The variances of the order statistics alone, 1/(6(N+1)): half of the truth at N = 1.",
        "independent-of-n": "A distance that does not fall with N: 1/6 for every N.",
    },
    quick=Config(),
    full=Config(repetitions=20_000, grid=2000, allowed=0.05),
)
