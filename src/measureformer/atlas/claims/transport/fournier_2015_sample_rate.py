"""Empirical measures on the line: E W_1(μ_N, U[0,1]) ~ 0.3133 N^{-1/2}.

Rates in W_p show their slopes only on the line; in d ≥ 2 logarithms and constants hide them at any N that fits. There
the limit is known: √N (F_N − t) tends to a Brownian bridge B, W_1 = ∫|F_N − t| dt, and E∫|B| = √(2/π) ∫ √(t(1−t)) dt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.transport_line import distances, means_and_errors
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series

LIMIT = math.sqrt(2 / math.pi) * math.pi / 8
SIZES = (16, 64, 256)


@dataclass(frozen=True)
class Config:
    repetitions: int = 400
    grid: int = 512
    allowed: float = 0.15


def _measured(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """√N · mean and √N · five standard errors of W_1(μ_N, U[0,1])."""
    found = distances(key, SIZES, config.repetitions, config.grid, 1.0, variant == "stratified")
    return means_and_errors(found, map(math.sqrt, SIZES))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    means, errors = _measured(key, config, variant)
    slope, allowed = np.polyfit(np.log(SIZES), np.log(means / np.sqrt(SIZES)), 1)[0], config.allowed
    ratio, error = means[-1] / LIMIT, errors[-1] / LIMIT
    checks = (
        Check("√N · E W_1 over its limit", ratio, 1 - allowed, 1 + allowed, error, rejected_by="stratified"),
        Check("order of E W_1 in N", slope, -0.55, -0.45, rejected_by="stratified"),
    )
    return Outcome(checks, _figure(key, config, means, errors) if variant == "claim" else None)


def _figure(key: Key, config: Config, means: np.ndarray, errors: np.ndarray) -> Figure:
    stratified, _ = _measured(key, config, "stratified")
    return Figure(
        "How fast samples approach their law",
        "number of points N",
        "√N · E W_1(μ_N, U[0,1])",
        (
            Series("independent points", SIZES, means, "points", role="measured"),
            Series("± 5 standard errors", SIZES, means - errors, "band", means + errors, role="measured"),
            Series("limit √(2/π) π/8", (SIZES[0], SIZES[-1]), (LIMIT, LIMIT), "dashed", role="theory"),
            Series("control: one point per interval", SIZES, stratified, "points", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; the law as {config.grid} midpoints.",
    )


claim = Claim(
    name="fournier-2015-sample-rate",
    title="The rate of empirical measures on the line",
    kind="theorem",
    statement="For N independent points of U[0,1]: √N · E W_1(μ_N, U[0,1]) → √(2/π) · π/8 = 0.3133…, as N grows.",
    hypotheses=("the points are independent", "dimension 1, where the rate can be seen"),
    reference="fournier2015, Theorem 1; bobkov2019, Section 3",
    measure=measure,
    controls={"stratified": "One point in each interval of length 1/N: not independent, and of order 1/N."},
    quick=Config(),
    full=Config(repetitions=5000, grid=8192, allowed=0.05),
)
