"""Normalised and Polyak steps turn fast, plain gradient descent turns slowly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.implicit_bias import Descent, descend_all, misalignment, random_problems


@dataclass(frozen=True)
class Config:
    problems: int = 2
    steps: int = 10_000
    start: float = 0.01


NGD, GD = Descent("ngd"), Descent("gd")
METHODS = {
    "claim": {"NGD": NGD, "Polyak": Descent("polyak", rate=0.1)},
    "gradient-descent": {"GD": GD},
    "whole-polyak-steps": {"NGD": NGD, "Polyak": Descent("polyak")},
}


@once
def _away(key: Key, config: Config, method: Descent) -> tuple[np.ndarray, np.ndarray]:
    """Steps, up to the end of the first run that ends, and 1 − cos of W and W_mm at them, the worst problem."""
    problems = random_problems("orthonormal", key, count=config.problems)
    starts = list(config.start * generator(key).normal(size=(config.problems, *problems[0].shape)))
    runs = descend_all(problems, method, config.steps, starts=starts)
    shortest = min((run.steps for run in runs), key=lambda steps: steps[-1])
    away = [[misalignment(W, limit) for W in run.W[: len(shortest)]] for run in runs for limit in [run.problem.svm().W]]
    return shortest, np.max(away, axis=0)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = {name: _away(key, config, method) for name, method in METHODS[variant].items()}
    last, growth, slopes = [], [], []
    for steps, away in found.values():
        late = steps >= 100
        k, rest = steps[late], away[late]
        bounded = rest * k / np.log(k) ** 2
        last.append(steps[-1])
        growth.append((bounded / bounded[0]).max())
        slopes.append(np.polyfit(np.log(k), np.log(rest), 1)[0])
    plain = "gradient-descent"
    checks = (
        Check("steps, the fewest of the methods", min(last), low=1e4, rejected_by="whole-polyak-steps"),
        Check(
            "largest (1 − cos) k/log² k over that at k = 100, worst method", max(growth), high=1.05, rejected_by=plain
        ),
        Check("exponent of k, worst method", max(slopes), high=-0.9, rejected_by=plain),
    )
    if variant != "claim":
        return Outcome(checks)
    slow_steps, slow = _away(key, config, GD)
    late = found["NGD"][0][found["NGD"][0] >= 10]
    figure = Figure(
        "How fast W turns to the support vector machine",
        "step k",
        "1 − cos(W_k, W_mm)",
        (
            *(Series(name, k[1:], away[1:], role="measured") for name, (k, away) in found.items()),
            Series("GD", slow_steps[1:], slow[1:], role="control"),
            Series("log² k / k", late, np.log(late) ** 2 / late, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=(
            "Orthonormal tokens, equal scores of all but the optimal ones. Normalised and Polyak steps are faster here "
            "than the bound: 1 − cos is what is left of the start over ‖W‖², and ‖W‖ grows like k."
        ),
    )
    return Outcome(checks, figure)


claim = Claim(
    name="vasudeva-2024-rates",
    title="Normalised and Polyak steps are fast, gradient descent is slow",
    kind="theorem",
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
    measure=measure,
    controls={
        "gradient-descent": "Gradient descent with steps of constant rate.",
        "whole-polyak-steps": "Whole Polyak steps: the gradient underflows long before the last step.",
    },
    quick=Config(),
    full=Config(problems=16, steps=10_000),
)
