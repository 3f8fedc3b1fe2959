"""In balls of growing radius, the matrix of least loss turns to the support vector machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Problem, generate, misalignment


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


def _outcome(key: Any, config: Config, *, random: bool) -> Outcome:
    rng = generator(key)
    scales = np.geomspace(4.0, config.largest, config.radii)
    away, residual = [], 0.0
    for problem in generate("picture", key, count=config.problems):
        svm = problem.svm()
        limit = _random_feasible(rng, problem) if random else svm.W
        path = problem.path(scales * svm.norm)
        residual = max(residual, float(path.residual.max()))
        away.append([misalignment(W, limit) for W in path.W])
    found = np.array(away)
    checks = (
        Check("1 − cos at the largest radius, worst problem", float(found[:, -1].max()), high=0.03),
        Check(
            "1 − cos at the largest radius over that at the least, median",
            float(np.median(found[:, -1] / found[:, 0])),
            high=0.2,
        ),
        Check("distance from stationarity, largest", residual, high=1e-5),
    )
    lines = tuple(
        Series(f"problem {i + 1}", tuple(map(float, scales)), tuple(map(float, row)), "line")
        for i, row in enumerate(found[:6])
    )
    figure = Figure(
        "The regularisation path",
        "R, in units of the norm of the SVM",
        "1 − cos(W_R, W_mm)",
        lines,
        xscale="log",
        yscale="log",
        caption="Two examples of three tokens in the plane. W_R has the least loss among matrices of norm at most R.",
    )
    return Outcome(checks, None if random else figure)


claim = Claim(
    name="tarzanagh-2023-path",
    title="The regularisation path leads to the support vector machine",
    statement=(
        "For W_R = argmin of the loss over ‖W‖_F ≤ R: W_R/R → W_mm/‖W_mm‖_F as R → ∞, with W_mm the least matrix for "
        "which the token of largest score has a logit larger by 1 than that of each other token of its example."
    ),
    hypotheses=("one optimal token in each example", "it can be separated from the others", "logistic loss"),
    reference="tarzanagh2023",
    run=lambda key, config: _outcome(key, config, random=False),
    control=lambda key, config: _outcome(key, config, random=True),
    control_statement="The limit is a random matrix that separates the tokens as well.",
    quick=Config(),
    full=Config(problems=20, radii=9, largest=400.0),
)
