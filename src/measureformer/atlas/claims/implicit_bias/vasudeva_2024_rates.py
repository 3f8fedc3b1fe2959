"""Normalised and Polyak steps turn fast, plain gradient descent turns slowly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Descent, descend_all, generate, misalignment


@dataclass(frozen=True)
class Config:
    problems: int = 2
    steps: int = 10_000
    start: float = 0.01


METHODS = {"NGD": Descent("ngd"), "Polyak": Descent("polyak", rate=0.1), "GD": Descent("gd")}


def _away(key: Any, config: Config, names: tuple[str, ...]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Steps, and 1 − cos of W and W_mm at them, the worst problem."""
    problems = generate("orthonormal", key, count=config.problems)
    starts = list(config.start * generator(key).normal(size=(config.problems, *problems[0].shape)))
    limits = [problem.svm().W for problem in problems]
    found = {}
    for name in names:
        runs = descend_all(problems, METHODS[name], config.steps, starts=starts)
        away = [[misalignment(W, limit) for W in run.W] for run, limit in zip(runs, limits, strict=True)]
        found[name] = runs[0].steps, np.max(away, axis=0)
    return found


def _outcome(found: dict[str, tuple[np.ndarray, np.ndarray]], figure: Figure | None = None) -> Outcome:
    last, growth, slopes = [], [], []
    for steps, away in found.values():
        late = steps >= 100
        k, rest = steps[late], away[late]
        bounded = rest * k / np.log(k) ** 2
        last.append(float(steps[-1]))
        growth.append(float((bounded / bounded[0]).max()))
        slopes.append(float(np.polyfit(np.log(k), np.log(rest), 1)[0]))
    checks = (
        Check("steps, the fewest of the methods", min(last), low=1e4),
        Check("largest (1 − cos) k/log² k over that at k = 100, worst method", max(growth), high=1.05),
        Check("exponent of k, worst method", max(slopes), high=-0.9),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _away(key, config, ("NGD", "Polyak", "GD"))
    steps = found["NGD"][0]
    theory = np.log(steps[steps >= 10]) ** 2 / steps[steps >= 10]
    curves = [
        Series(name, tuple(map(float, k[1:])), tuple(map(float, away[1:])), "line") for name, (k, away) in found.items()
    ]
    shape = Series("log² k / k", tuple(map(float, steps[steps >= 10])), tuple(map(float, theory)), "dashed")
    figure = Figure(
        "How fast W turns to the support vector machine",
        "step k",
        "1 − cos(W_k, W_mm)",
        (*curves, shape),
        xscale="log",
        yscale="log",
        caption=(
            "Orthonormal tokens, equal scores of all but the optimal ones. Normalised and Polyak steps are faster here "
            "than the bound: 1 − cos is what is left of the start over ‖W‖², and ‖W‖ grows like k."
        ),
    )
    del found["GD"]
    return _outcome(found, figure)


claim = Claim(
    name="vasudeva-2024-rates",
    title="Normalised and Polyak steps are fast, gradient descent is slow",
    statement=(
        "For nearly orthogonal tokens with equal scores of all but the optimal ones: 1 − cos(W_k, W_mm) = O(log² k/k) "
        "for normalised gradient descent and for Polyak steps, from every start, while gradient descent needs "
        "exponentially many steps."
    ),
    hypotheses=(
        "orthonormal tokens; the shape is tested, over 10² ≤ k ≤ 10⁴, and no constant",
        "Polyak steps are a tenth of (L − inf L)/(2‖∇L‖²): with all of it W is so large after 1500 steps that the "
        "gradient underflows",
    ),
    reference="vasudeva2024",
    run=_run,
    control=lambda key, config: _outcome(_away(key, config, ("GD",))),
    control_statement="Gradient descent with steps of constant rate.",
    quick=Config(),
    full=Config(problems=16, steps=10_000),
)
