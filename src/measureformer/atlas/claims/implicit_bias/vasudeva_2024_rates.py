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


STARTS = (0.01, 10.0, 1.0)
"""Norms of the starts, in turn."""
NGD, GD = Descent("ngd"), Descent("gd")
METHODS = {
    "claim": {"NGD": NGD, "Polyak": Descent("polyak", rate=0.1)},
    "gradient-descent": {"GD": GD},
    "normalised-steps": {"NGD": NGD, "Polyak": Descent("polyak", rate=0.1)},
    "whole-polyak-steps": {"NGD": NGD, "Polyak": Descent("polyak")},
}


@once
def _away(key: Key, config: Config, method: Descent) -> tuple[np.ndarray, np.ndarray]:
    """Steps, up to the end of the first run that ends, and 1 − cos of W and W_mm at them, the worst problem."""
    problems = random_problems("orthonormal", key, count=config.problems)
    noise = generator(key).normal(size=(config.problems, *problems[0].shape))
    # constant steps take exponentially long, and from far away nothing would be seen
    norms = [STARTS[0] if method == GD else STARTS[i % len(STARTS)] for i in range(config.problems)]
    starts = [norm * start / np.linalg.norm(start) for norm, start in zip(norms, noise, strict=True)]
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
    slow_steps, slow = _away(key, config, NGD if variant == "normalised-steps" else GD)
    late = slow_steps >= config.steps // 10
    crawl = np.polyfit(np.log(slow_steps[late]), np.log(slow[late]), 1)[0]
    checks = (
        Check("steps, the fewest of the methods", min(last), low=1e4, rejected_by="whole-polyak-steps"),
        Check(
            "largest (1 − cos) k/log² k over that at k = 100, worst method", max(growth), high=1.05, rejected_by=plain
        ),
        Check("exponent of k, worst method", max(slopes), high=-0.9, rejected_by=plain),
        Check("gradient descent: exponent of k in the last decade", crawl, low=-0.35, rejected_by="normalised-steps"),
    )
    if variant != "claim":
        return Outcome(checks)
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
        "for normalised gradient descent and for Polyak steps, from every start. Gradient descent of constant rate is "
        "slower than every power of k: 1 − cos ~ c/log² k, since ‖W_k‖ grows like log k."
    ),
    hypotheses=(
        "orthonormal tokens; starts of norm 0.01, 1 and 10; the shape is tested, over 10² ≤ k ≤ 10⁴, and no constant",
        "gradient descent starts at norm 0.01; c/(log k + const)² has an exponent above −0.35 near k = 10⁴",
        "Polyak steps are a tenth of (L − inf L)/(2‖∇L‖²): with all of it W is so large after 1500 steps that the "
        "gradient underflows",
    ),
    reference="vasudeva2024",
    measure=measure,
    controls={
        "gradient-descent": "Gradient descent with steps of constant rate.",
        "normalised-steps": "Normalised steps where steps of constant rate are claimed to be slow.",
        "whole-polyak-steps": "Whole Polyak steps: the gradient underflows long before the last step.",
    },
    quick=Config(),
    full=Config(problems=16, steps=10_000),
)
