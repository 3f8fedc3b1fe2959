"""N points against the uniform law on [0, 1]: the expected W_2² is 1/(6N), not only up to constants.

On the line W_2² = Σ_i ∫ (U_(i) − t)² dt over the intervals [(i−1)/N, i/N]. The order statistic U_(i) has mean i/(N+1)
and variance i(N+1−i)/((N+1)²(N+2)); the variances contribute 1/(6(N+1)), the rest 1/(6N(N+1)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.transport_line import distances, entropy_of, mean_and_error
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series

SIZES = (1, 5, 20)


@dataclass(frozen=True)
class Config:
    repetitions: int = 800
    grid: int = 400
    allowed: float = 0.2


def _measured(key: Any, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """6N · mean and 6N · five standard errors of W_2²(μ_N, U[0,1]), for each N."""
    found = distances(entropy_of(key), SIZES, config.repetitions, config.grid, 2.0)
    # within a cell of length 1/grid the law has the variance 1/(12 grid²), which its midpoint has not; every N divides
    # the grid, so that no cell is shared by two points
    squares = [values**2 + 1 / (12 * config.grid**2) for values in found]
    pairs = [mean_and_error(values, 6 * n) for n, values in zip(SIZES, squares, strict=True)]
    return np.array(pairs)[:, 0], np.array(pairs)[:, 1]


def _checks(means: np.ndarray, errors: np.ndarray, predicted: np.ndarray, allowed: float) -> tuple[Check, ...]:
    return tuple(
        Check(f"E W_2² over its value, N = {n}", float(m / p), 1 - allowed, 1 + allowed, error=float(e / p))
        for n, m, e, p in zip(SIZES, means, errors, predicted, strict=True)
    )


def _false() -> np.ndarray:
    """The control in units of 1/(6N): the variances alone, as if the means of the order statistics were unbiased."""
    return np.array([n / (n + 1) for n in SIZES])


def _run(key: Any, config: Config) -> Outcome:
    means, errors = _measured(key, config)
    n = tuple(float(size) for size in SIZES)
    figure = Figure(
        "N points against the uniform law",
        "number of points N",
        "6N · E W_2²(μ_N, U[0,1])",
        (
            Series("measured", n, tuple(map(float, means)), "points"),
            Series(
                "± 5 standard errors", n, tuple(map(float, means - errors)), "band", tuple(map(float, means + errors))
            ),
            Series("1", (n[0], n[-1]), (1.0, 1.0), "dashed"),
            Series("control: variances alone, N/(N+1)", n, tuple(map(float, _false())), "line"),
        ),
        xscale="log",
        caption=f"{config.repetitions} repetitions; the law as {config.grid} midpoints, corrected for their spread.",
    )
    return Outcome(_checks(means, errors, np.ones(len(SIZES)), config.allowed), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_measured(key, config), _false(), config.allowed))


claim = Claim(
    name="bobkov-2019-uniform-samples",
    title="The distance of N uniform points to their law",
    statement="For every N and N independent uniform points on [0, 1]: E W_2²(μ_N, U[0,1]) = 1/(6N), exactly.",
    hypotheses=("the points are independent and uniform", "dimension 1"),
    reference="bobkov2019, Section 4",
    run=_run,
    control=_control,
    control_statement="The variances of the order statistics alone, 1/(6(N+1)): half of the truth at N = 1.",
    quick=Config(),
    full=Config(repetitions=20_000, grid=2000, allowed=0.05),
)
