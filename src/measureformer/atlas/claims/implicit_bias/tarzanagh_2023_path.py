"""In balls of growing radius, the matrix of least loss turns to the support vector machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.implicit_bias import Problem, misalignment, random_problems


@dataclass(frozen=True)
class Config:
    problems: int = 2
    radii: int = 4
    largest: float = 80.0
    """In units of the norm of the SVM; the least is 4."""


def _random_feasible(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """A random matrix, plus as much of the SVM as makes all margins 1 or more."""
    svm = problem.svm()
    noise = rng.normal(size=problem.shape)
    noise *= 10 * svm.norm / np.linalg.norm(noise)
    return noise + max(float((1 - problem.margins(noise)[~svm.chosen]).max()), 0.0) * svm.W


def _second_best(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """The support vector machine of the tokens with the second largest score."""
    return problem.svm(np.argsort(problem.scores(), axis=1)[:, -2]).W


def _svm(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    return problem.svm().W


def _residual(problem: Problem, W: np.ndarray) -> float:
    """1 − cos of −∇L and W: 0 where W is stationary on its sphere."""
    slope = np.asarray(problem.gradient(W), np.float64)
    # squares of a slope of 1e-174 would underflow
    return misalignment(-slope / np.abs(slope).max(), W)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    scales = np.geomspace(4.0, config.largest, config.radii)
    away, residual = [], 0.0
    for problem in random_problems("picture", key, count=config.problems):
        svm = problem.svm()
        limit = {"random-limit": _random_feasible, "second-best": _second_best}.get(variant, _svm)(rng, problem)
        ray = scales[:, None, None] * svm.W
        path = ray if variant == "straight-path" else problem.path(scales * svm.norm).W
        residual = max(residual, *(_residual(problem, W) for W in path))
        away.append([misalignment(W, limit) for W in path])
    found = np.array(away)
    ratio = np.median(found[:, -1] / found[:, 0]) if variant != "straight-path" else 0.0
    checks = (
        Check("1 − cos at the largest radius, worst problem", found[:, -1].max(), high=0.03, rejected_by="second-best"),
        Check(
            "1 − cos at the largest radius over that at the least, median", ratio, high=0.2, rejected_by="random-limit"
        ),
        Check("distance from stationarity, largest", residual, high=1e-5, rejected_by="straight-path"),
    )
    figure = Figure(
        "The regularisation path",
        "R, in units of the norm of the SVM",
        "1 − cos(W_R, W_mm)",
        tuple(Series(f"problem {i + 1}", scales, row, role="measured") for i, row in enumerate(found[:6])),
        xscale="log",
        yscale="log",
        caption="Two examples of three tokens in the plane. W_R has the least loss among matrices of norm at most R.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="tarzanagh-2023-path",
    title="The regularisation path leads to the support vector machine",
    kind="theorem",
    statement=(
        "For W_R = argmin of the loss over ‖W‖_F ≤ R: W_R/R → W_mm/‖W_mm‖_F as R → ∞, with W_mm the least matrix for "
        "which the token of largest score has a logit larger by 1 than that of each other token of its example."
    ),
    hypotheses=("one optimal token in each example", "it can be separated from the others", "logistic loss"),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "random-limit": "The limit is a random matrix that separates the tokens as well.",
        "second-best": "The limit is the SVM of the tokens with the second largest score.",
        "straight-path": "W_R has the direction of W_mm for every R, and not only in the limit.",
    },
    quick=Config(),
    full=Config(problems=20, radii=9, largest=400.0),
)
