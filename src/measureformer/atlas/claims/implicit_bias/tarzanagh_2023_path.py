"""In balls of growing radius, the matrix of least loss turns to the support vector machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.implicit_bias import Problem, misalignment, random_problems

SLACK = 0.2
"""Least slack of tokens off the margin: their effect is of order e^{−slack·R}, too large at every R if it is less."""
WRONG = ("second-best", "nuclear-norm", "straight-path")


@dataclass(frozen=True)
class Config:
    problems: int = 2
    radii: int = 3
    largest: float = 160.0
    """In units of the norm of the SVM; each radius is twice the one before."""
    dim: int = 5


def _problems(key: Key, config: Config) -> list[Problem]:
    """The first random problems whose best tokens can be separated, with some slack."""
    found: list[Problem] = []
    for problem in random_problems("random", key, count=12 * config.problems, n=3, T=4, d=config.dim):
        svm = problem.svm()
        slack = problem.margins(svm.W)[~svm.chosen] - 1 if svm.feasible else np.zeros(0)
        if svm.feasible and slack[slack > 1e-6].min(initial=1.0) >= SLACK:
            found.append(problem)
    return found[: config.problems]


def _limit(problem: Problem, variant: str) -> np.ndarray:
    """The support vector machine: of the best tokens, of the second best ones, or of the nuclear norm."""
    if variant == "second-best":
        return problem.svm(np.argsort(problem.scores(), axis=1)[:, -2]).W
    return problem.svm(norm="nuclear" if variant == "nuclear-norm" else "frobenius").W


def _residual(problem: Problem, W: np.ndarray) -> float:
    """1 − cos of −∇L and W: 0 where W is stationary on its sphere."""
    slope = np.asarray(problem.gradient(W), np.float64)
    # squares of a slope of 1e-174 would underflow
    return misalignment(-slope / np.abs(slope).max(), W)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    scales = config.largest / 2.0 ** np.arange(config.radii)[::-1]
    away, residual = [], 0.0
    for problem in _problems(key, config):
        svm, limit = problem.svm(), _limit(problem, variant)
        straight = scales[:, None, None] * svm.W
        path = straight if variant == "straight-path" else problem.path(scales * svm.norm).W
        residual = max(residual, *(_residual(problem, W) for W in path))
        away.append([misalignment(W, limit) for W in path])
    # below this there is only rounding
    found = np.maximum(away, 1e-12)
    # W_R = C·W_mm + W_res + O(1/R) with W_res orthogonal to W_mm: 1 − cos = ‖W_res‖²/(2R²)·(1 + O(1/R))
    slopes = np.diff(np.log2(found), axis=1)
    # the last two are −2 + c/R and −2 + 2c/R, up to O(R^{−2}): this is −2 up to that
    exponent = np.median(2 * slopes[:, -1] - slopes[:, -2])
    checks = (
        Check("exponent of R in 1 − cos, extrapolated to R = ∞, median", exponent, -2.2, -1.8, rejected_by=WRONG),
        Check("distance from stationarity, largest", residual, high=1e-5, rejected_by="straight-path"),
    )
    figure = Figure(
        "The regularisation path",
        "R, in units of the norm of the SVM",
        "1 − cos(W_R, W_mm)",
        tuple(Series(f"problem {i + 1}", scales, row, role="measured") for i, row in enumerate(found[:6])),
        xscale="log",
        yscale="log",
        caption=f"Three examples of four tokens in dimension {config.dim}; W_R has the least loss with ‖W‖ ≤ R.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="tarzanagh-2023-path",
    title="The regularisation path leads to the support vector machine",
    kind="theorem",
    statement=(
        "For W_R = argmin of the loss over ‖W‖_F ≤ R: W_R/R → W_mm/‖W_mm‖_F as R → ∞, with W_mm the least matrix for "
        "which the token of largest score has a logit larger by 1 than that of each other token of its example. In "
        "general 1 − cos(W_R, W_mm) is of order R^{−2}."
    ),
    hypotheses=(
        "one optimal token in each example, which can be separated from the others",
        "logistic loss; every token off the margin has a slack of at least 0.2",
        "W_R is a stationary point that was searched for, not a proven global minimum",
    ),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "second-best": "The limit is the SVM of the tokens with the second largest score.",
        "nuclear-norm": "The limit is the SVM of the nuclear norm, which separates the same tokens.",
        "straight-path": "W_R has the direction of W_mm for every R, and not only in the limit.",
    },
    quick=Config(),
    full=Config(problems=20, radii=6),
)
