"""Adam does not go where gradient descent goes: it prefers a margin in the largest entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.implicit_bias import Descent, Problem, descend_all, misalignment, random_problems


@dataclass(frozen=True)
class Config:
    problems: int = 2
    steps: int = 10_000
    rate: float = 0.01


def _largest_margin(problem: Problem) -> float:
    """The largest least lead of optimal tokens over all W with entries in [−1, 1]: a linear program."""
    from scipy.optimize import linprog

    keys, z, best = np.asarray(problem.keys), np.asarray(problem.z), problem.optimal()
    rows = [
        np.outer(keys[i, best[i]] - keys[i, t], z[i]).ravel() for i, t in np.ndindex(keys.shape[:2]) if t != best[i]
    ]
    A = np.array(rows)
    found = linprog(
        np.append(np.zeros(A.shape[1]), -1.0),
        A_ub=np.column_stack([-A, np.ones(len(A))]),
        b_ub=np.zeros(len(A)),
        bounds=[(-1, 1)] * A.shape[1] + [(None, None)],
    )
    return float(-found.fun)


@once
def _measured(key: Key, config: Config, method: Descent) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps; 1 − cos of W and the SVM; the margin per largest entry over the largest there is. Means over problems."""
    problems = random_problems("orthonormal", key, count=config.problems)
    starts = list(0.01 * generator(key).normal(size=(config.problems, *problems[0].shape)))
    runs = descend_all(problems, method, config.steps, starts=starts)
    limits = [(problem.svm(), _largest_margin(problem)) for problem in problems]
    away = [[misalignment(W, svm.W) for W in run.W] for run, (svm, _) in zip(runs, limits, strict=True)]
    share = [
        run.margins(svm.chosen)[:, ~svm.chosen].min(axis=1) / np.abs(run.W).max(axis=(1, 2)) / top
        for run, (svm, top) in zip(runs, limits, strict=True)
    ]
    return runs[0].steps, np.mean(away, axis=0), np.mean(share, axis=0)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    methods = {"claim": Descent("adam", rate=config.rate), "gradient-descent": Descent("gd")}
    steps, away, share = _measured(key, config, methods[variant])
    descent, largest = "gradient-descent", "margin per largest entry over the largest there is, at the end"
    checks = (
        Check("1 − cos of W and the SVM of the Frobenius norm, at the end", away[-1], low=0.05, rejected_by=descent),
        Check(largest, share[-1], low=0.5, high=1.0, rejected_by=descent),
    )
    if variant != "claim":
        return Outcome(checks)
    _, slow, other = _measured(key, config, methods["gradient-descent"])
    figure = Figure(
        "Adam and gradient descent go different ways",
        "step",
        "mean over the problems",
        (
            Series("Adam: 1 − cos(W, W_mm)", steps[1:], away[1:], role="measured"),
            Series("GD: 1 − cos(W, W_mm)", steps[1:], slow[1:], role="control"),
            Series("Adam: margin per largest entry, share of the best", steps[1:], share[1:], role="measured"),
            Series("GD: margin per largest entry, share of the best", steps[1:], other[1:], role="control"),
        ),
        xscale="log",
        caption=f"Orthonormal tokens. Adam with rate {config.rate:g}, decays 0.9 and 0.999, ε = 1e-8.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="tarzanagh-2023-adam",
    title="Adam goes elsewhere",
    kind="observation",
    statement=(
        "Observed, without a theorem: where gradient descent turns to the least matrix in the Frobenius norm that "
        "separates the optimal tokens, Adam ends at 1 − cos ≥ 0.05 from it, and has a larger margin per largest entry "
        "of W."
    ),
    hypotheses=("orthonormal tokens, where gradient descent converges from every start", "ε = 1e-8"),
    reference="tarzanagh2023",
    measure=measure,
    controls={"gradient-descent": "Gradient descent."},
    quick=Config(),
    full=Config(problems=16),
)
