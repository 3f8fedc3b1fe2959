"""Training makes W grow without bound, and attention sparse."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.implicit_bias import Descent, Problem, descend_all, random_problems
from measureformer.implicit_bias.descent import Run
from measureformer.implicit_bias.sparsity import attention_sparsity


@dataclass(frozen=True)
class Config:
    problems: int = 10
    steps: int = 1000


def _doubled(problem: Problem) -> Problem:
    """The second half of the tokens of each example are copies of the first."""
    X = np.array(problem.X)
    X[:, X.shape[1] // 2 :] = X[:, : X.shape[1] // 2]
    return Problem(X, problem.z, problem.y, problem.head)


def _runs(key: Key, config: Config, variant: str) -> list[Run]:
    first, second = jax.random.split(key)
    problems = random_problems("random", first, count=config.problems)
    if variant == "doubled-tokens":
        problems = [_doubled(problem) for problem in problems]
    method = (
        Descent("gd") if variant == "plain-steps" else Descent("ngd", rate=0.2 if variant == "long-steps" else None)
    )
    if variant != "large-start":
        return descend_all(problems, method, config.steps, second)
    starts = 10 * generator(second).uniform(-1, 1, (config.problems, *problems[0].shape))
    return descend_all(problems, method, config.steps, starts=list(starts))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    runs = _runs(key, config, variant)
    steps, T = runs[0].steps, runs[0].attention.shape[2]
    over = [attention_sparsity(run.attention) for run in runs]
    # runs that cannot decide end at different steps: only their ends are compared
    first, last = (np.mean([each.participation[i].mean() for each in over]) for i in (0, -1))
    # s_a = 1/(1 + Σ e^{−lead}) for the leads of the selected token over the others
    lead = [
        np.where(run.attention[-1] < run.attention[-1].max(axis=1, keepdims=True), run.margins()[-1], np.inf)
        for run in runs
    ]
    bound = [1 - (T - 1) * np.exp(-each.min()) for each in lead]
    above = min(run.attention[-1].max(axis=1).min() - low for run, low in zip(runs, bound, strict=True))
    grown = np.array([run.norm[-1] for run in runs]) / (0.1 * steps[-1])
    most = 1 + np.sqrt(runs[0].W.shape[1]) / (0.1 * steps[-1])
    k90 = np.median([each.k90[-1] for each in over])
    checks = (
        Check("norm of W over 0.1 · steps, median", np.median(grown), low=0.9, rejected_by="plain-steps"),
        # a run that changes its mind about a token loses the way it went before
        Check("norm of W over 0.1 · steps, least", grown.min(), low=0.5, rejected_by="plain-steps"),
        # no norm grows faster than steps of 0.1 allow, from a start of norm at most √(k q)/√q = √k
        Check("norm of W over 0.1 · steps, largest", grown.max(), high=most, rejected_by="long-steps"),
        Check("tokens that share the attention at the start, mean", first, low=0.9 * T, rejected_by="large-start"),
        Check("tokens that share the attention at the end, mean", last, high=1.05, rejected_by="doubled-tokens"),
        Check("tokens that hold 90 %, median at the end", k90, 1.0, 1.0, rejected_by="doubled-tokens"),
        Check("least probability of a selected token minus its bound", above, low=-1e-12, rejected_by="doubled-tokens"),
    )
    return Outcome(checks, _figure(runs) if variant == "claim" else None)


def _figure(runs: list[Run]) -> Figure:
    over, steps = [attention_sparsity(run.attention) for run in runs], runs[0].steps
    participation, effective, k90s = (
        np.mean([getattr(each, name).mean(axis=1) for each in over], axis=0)
        for name in ("participation", "effective", "k90")
    )
    norm = np.mean([run.norm for run in runs], axis=0)
    return Figure(
        "Attention becomes sparse while W grows",
        "step",
        "mean over runs and examples",
        (
            Series("tokens that share the attention, 1/Σs²", steps[1:], participation[1:], role="measured"),
            Series("e^entropy", steps[1:], effective[1:], role="measured"),
            Series("tokens that hold 90 %", steps[1:], k90s[1:], role="measured"),
            Series("norm of W", steps[1:], norm[1:], role="measured"),
        ),
        xscale="log",
        yscale="log",
        caption="Random problems of 6 examples with 8 tokens; normalised gradient descent with steps of 0.1.",
    )


claim = Claim(
    name="tarzanagh-2023-saturation",
    title="Weights grow and attention becomes sparse",
    kind="observation",
    statement=(
        "With one optimal token in each example the infimum of the loss is at infinity, and the probability of a "
        "token is at least 1 − (T−1)e^{−lead}. Observed: ‖W‖ grows by 0.1 in each normalised step, in the median to "
        "10 %, and attention tends to one token."
    ),
    hypotheses=("linear head, distinct tokens", "normalised gradient descent"),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "doubled-tokens": "Each token occurs twice, so that no token can be told from its copy.",
        "plain-steps": "Gradient descent with steps of constant rate, not of constant length.",
        "long-steps": "Each normalised step has length 0.2.",
        "large-start": "The start is about thirty times as large, far from W = 0.",
    },
    quick=Config(),
    full=Config(problems=100, steps=2000),
)
