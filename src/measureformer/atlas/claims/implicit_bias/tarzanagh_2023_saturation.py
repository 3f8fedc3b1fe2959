"""Training makes W grow without bound, and attention sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Problem, Run, descend_all, generate, sparsity


@dataclass(frozen=True)
class Config:
    problems: int = 10
    steps: int = 1000


def _doubled(problem: Problem) -> Problem:
    """The second half of the tokens of each example are copies of the first."""
    X = np.array(problem.X)
    X[:, X.shape[1] // 2 :] = X[:, : X.shape[1] // 2]
    return Problem(X, problem.z, problem.y, problem.head)


def _runs(key: Any, config: Config, *, doubled: bool) -> list[Run]:
    first, second = jax.random.split(key)
    problems = generate("random", first, count=config.problems)
    return descend_all([_doubled(p) for p in problems] if doubled else problems, "ngd", config.steps, second)


def _outcome(runs: list[Run], figure: Figure | None = None) -> Outcome:
    steps = runs[0].steps
    T = runs[0].attention.shape[2]
    last = [sparsity(run.attention[-1]) for run in runs]
    # s_a = 1/(1 + Σ e^{−lead}) for the leads of the selected token over the others
    lead = [
        np.where(run.attention[-1] < run.attention[-1].max(axis=1, keepdims=True), run.margins()[-1], np.inf)
        for run in runs
    ]
    bound = [1 - (T - 1) * np.exp(-each.min()) for each in lead]
    least = [run.attention[-1].max(axis=1).min() for run in runs]
    grown = np.array([run.norm[-1] for run in runs]) / (0.1 * steps[-1])
    checks = (
        Check("norm of W over 0.1 · steps, median", float(np.median(grown)), low=0.9),
        # a run that changes its mind about a token loses the way it went before
        Check("norm of W over 0.1 · steps, least", float(grown.min()), low=0.5),
        Check("norm of W over 0.1 · steps, largest", float(grown.max()), high=1.05),
        Check("tokens that share the attention at the start, mean", _participation(runs, 0), low=0.9 * T),
        Check("tokens that share the attention at the end, mean", _participation(runs, -1), high=1.05),
        Check("tokens that hold 90 %, median at the end", float(np.median([s.k90 for s in last])), 1.0, 1.0),
        Check(
            "least probability of a selected token minus its bound",
            float(np.min(np.subtract(least, bound))),
            low=-1e-12,
        ),
    )
    return Outcome(checks, figure)


def _participation(runs: list[Run], record: int) -> float:
    return float(np.mean([sparsity(run.attention[record]).participation for run in runs]))


def _run(key: Any, config: Config) -> Outcome:
    runs = _runs(key, config, doubled=False)
    steps = tuple(map(float, runs[0].steps[1:]))
    over = [[sparsity(s) for s in run.attention[1:]] for run in runs]
    mean = lambda name: tuple(np.mean([[getattr(s, name).mean() for s in row] for row in over], axis=0).tolist())  # noqa: E731
    figure = Figure(
        "Attention becomes sparse while W grows",
        "step",
        "mean over runs and examples",
        (
            Series("tokens that share the attention, 1/Σs²", steps, mean("participation")),
            Series("e^entropy", steps, mean("effective")),
            Series("tokens that hold 90 %", steps, mean("k90")),
            Series("norm of W", steps, tuple(np.mean([run.norm[1:] for run in runs], axis=0).tolist())),
        ),
        xscale="log",
        yscale="log",
        caption="Random problems of 6 examples with 8 tokens; normalised gradient descent with steps of 0.1.",
    )
    return _outcome(runs, figure)


claim = Claim(
    name="tarzanagh-2023-saturation",
    title="Weights grow and attention becomes sparse",
    statement=(
        "With one optimal token in each example the infimum of the loss is at infinity: ‖W‖ → ∞, by 0.1 in each "
        "normalised step, and attention tends to one token. Its probability is at least 1 − (T−1)e^{−lead}."
    ),
    hypotheses=("linear head, distinct tokens", "normalised gradient descent"),
    reference="tarzanagh2023",
    run=_run,
    control=lambda key, config: _outcome(_runs(key, config, doubled=True)),
    control_statement="Each token occurs twice, so that no token can be told from its copy.",
    quick=Config(),
    full=Config(problems=100, steps=2000),
)
