"""A product KQᵀ that is trained turns to the support vector machine of the nuclear norm."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.implicit_bias import Descent, descend_all, misalignment, random_problems
from measureformer.implicit_bias.svm import Norm


@dataclass(frozen=True)
class Config:
    problems: int = 5
    steps: int = 1000
    rank: int = 10


def measure(key: Key, config: Config, variant: str) -> Outcome:
    first, second = jax.random.split(key)
    method = Descent("ngd", rank=config.rank if variant == "claim" else None)
    runs = descend_all(random_problems("random", first, count=config.problems), method, config.steps, second)
    steps = max((run.steps for run in runs), key=len)
    # of W with both SVMs of the tokens selected at the end: (2, runs, records), runs that ended early held on
    norms: tuple[Norm, ...] = ("nuclear", "frobenius")
    cosines = np.array(
        [
            [
                [1 - misalignment(run.W[run.at(int(step))], limit) for step in steps]
                for run in runs
                for limit in [run.svm(norm).W]
            ]
            for norm in norms
        ]
    )
    nuclear, frobenius = cosines[:, :, -1]
    ahead, wrong = nuclear - frobenius, "one-matrix"
    checks = (
        Check("cosine with the SVM of the nuclear norm, mean", nuclear.mean(), low=0.93, rejected_by=wrong),
        Check(
            "that minus the cosine with the SVM of the Frobenius norm, mean", ahead.mean(), low=0.05, rejected_by=wrong
        ),
        Check("the same, least", ahead.min(), low=0.0, context=True),
    )
    curves = zip(("nuclear norm", "Frobenius norm"), cosines.mean(axis=1), strict=True)
    figure = Figure(
        "Training K and Q",
        "step",
        "mean cosine with the SVM of the selected tokens",
        tuple(Series(label, steps[1:], row[1:], role="measured") for label, row in curves),
        xscale="log",
        caption=(
            "W = KQᵀ grows like the square of the number of steps, so that in some runs the gradient "
            "underflows before the last step; these are held where they ended."
        ),
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="tarzanagh-2023-factored",
    title="Training keys and queries prefers low rank",
    kind="observation",
    statement=(
        "Observed for normalised gradient descent on K and Q with W = KQᵀ: at the end W has a mean cosine of at least "
        "0.93 with the least matrix in the nuclear norm that separates the selected tokens, larger by 0.05 than with "
        "that in the Frobenius norm. Single runs may end nearer to the latter."
    ),
    hypotheses=("random problems of 6 examples with 8 tokens in 10 dimensions", "K and Q each by its own norm"),
    reference="tarzanagh2023",
    measure=measure,
    controls={"one-matrix": "W is trained as one matrix."},
    quick=Config(),
    full=Config(problems=50, steps=2000),
)
