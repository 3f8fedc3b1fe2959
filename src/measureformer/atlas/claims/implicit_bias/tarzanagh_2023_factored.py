"""A product KQᵀ that is trained turns to the support vector machine of the nuclear norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Descent, Run, descend_all, generate, misalignment


@dataclass(frozen=True)
class Config:
    problems: int = 5
    steps: int = 1000
    rank: int = 10


def _cosines(key: Any, config: Config, *, product: bool) -> tuple[list[Run], np.ndarray]:
    """Of W with both SVMs of the tokens selected at the end: (2, runs, records), runs that ended early held on."""
    first, second = jax.random.split(key)
    method = Descent("ngd", rank=config.rank if product else None)
    runs = descend_all(generate("random", first, count=config.problems), method, config.steps, second)
    longest = max(runs, key=lambda run: len(run.steps))
    found = [
        [
            [1 - misalignment(run.W[run.at(int(step))], svm.W) for step in longest.steps]
            for run in runs
            for svm in [run.svm(norm)]
        ]
        for norm in ("nuclear", "frobenius")
    ]
    return [longest, *runs], np.array(found)


def _outcome(cosines: np.ndarray, figure: Figure | None = None) -> Outcome:
    nuclear, frobenius = cosines[:, :, -1]
    checks = (
        Check("cosine with the SVM of the nuclear norm, mean", float(nuclear.mean()), low=0.93),
        Check(
            "that minus the cosine with the SVM of the Frobenius norm, mean", float((nuclear - frobenius).mean()), 0.05
        ),
        Check("the same, least", float((nuclear - frobenius).min()), low=0.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    (longest, *_), cosines = _cosines(key, config, product=True)
    steps = tuple(map(float, longest.steps[1:]))
    curves = zip(("nuclear norm", "Frobenius norm"), cosines.mean(axis=1), strict=True)
    figure = Figure(
        "Training K and Q",
        "step",
        "mean cosine with the SVM of the selected tokens",
        tuple(Series(label, steps, tuple(row[1:].tolist())) for label, row in curves),
        xscale="log",
        caption=(
            "W = KQᵀ grows like the square of the number of steps, so that in some runs the gradient "
            "underflows before the last step; these are held where they ended."
        ),
    )
    return _outcome(cosines, figure)


claim = Claim(
    name="tarzanagh-2023-factored",
    title="Training keys and queries prefers low rank",
    statement=(
        "Normalised gradient descent on K and Q with W = KQᵀ: the direction of W tends to that of the least matrix in "
        "the nuclear norm that separates the selected tokens, and not to that in the Frobenius norm."
    ),
    hypotheses=("random problems of 6 examples with 8 tokens in 10 dimensions", "K and Q each by its own norm"),
    reference="tarzanagh2023",
    run=_run,
    control=lambda key, config: _outcome(_cosines(key, config, product=False)[1]),
    control_statement="W is trained as one matrix.",
    quick=Config(),
    full=Config(problems=50, steps=2000),
)
