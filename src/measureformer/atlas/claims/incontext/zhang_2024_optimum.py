"""Trained linear attention ends at its closed-form optimum: one preconditioned step of gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.incontext_floats import floats
from measureformer.atlas.helpers.random import once
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.incontext import Training
from measureformer.incontext.linear import LinearLoss, LinearModel, LinearTrained, compared, optimum, train


@dataclass(frozen=True)
class Config:
    dim: int = 3
    examples: int = 8
    steps: int = 500
    batch: int = 128
    tasks: int = 5000
    within: float = 0.02
    """Of the loss above the optimum, as a share."""


def _covariance(config: Config) -> np.ndarray:
    return np.diag(np.linspace(2.0, 0.5, config.dim))


@once
def _trained(key: Any, config: Config, *, shuffled: bool) -> LinearTrained:
    first, second = jax.random.split(key)
    start = LinearModel.random(first, config.dim)
    training = Training(steps=config.steps, batch=config.batch, rate=0.02, clip=None, warmup=0.0)
    return train(start, _covariance(config), second, examples=config.examples, training=training, shuffled=shuffled)


def _outcome(key: Any, config: Config, found: LinearTrained, figure: Figure | None = None) -> Outcome:
    best = optimum(_covariance(config), config.examples)
    theirs = LinearModel.descent(best.preconditioner[None])
    law = LinearLoss(np.linalg.cholesky(_covariance(config)).T, config.examples, 1)
    prompts = law.prompts(jax.random.fold_in(key, 7), config.tasks)
    both = compared(found.model, theirs, prompts)
    product = -np.asarray(found.model.P[0, -1, -1] * found.model.Q[0, :-1, :-1])
    gap = np.abs(product - best.preconditioner).max() / np.abs(best.preconditioner).max()
    return Outcome(
        (
            Check("loss over that of the optimum, same prompts", both.first / both.second, high=1 + config.within),
            Check(
                "loss half-way between the weights, over that of the optimum",
                both.interpolated / both.second,
                high=1.05,
            ),
            Check("cosine of the sensitivities", both.cosine, low=0.98),
            Check("preconditioner, largest relative difference", float(gap), high=0.15),
            Check("loss of the optimum over its closed form", both.second / best.error, 0.9, 1.1),
        ),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    found, false = _trained(key, config, shuffled=False), _trained(key, config, shuffled=True)
    best = optimum(_covariance(config), config.examples).error
    width = max(config.steps // 60, 1)
    steps = np.arange(config.steps // width) * width + width / 2
    mean = lambda losses: losses[: len(steps) * width].reshape(-1, width).mean(axis=1)  # noqa: E731
    figure = Figure(
        "Training linear attention",
        "steps",
        "loss",
        (
            Series("trained", floats(steps), floats(mean(found.losses))),
            Series("control: labels shuffled", floats(steps), floats(mean(false.losses))),
            Series("closed-form optimum", (0.0, float(config.steps)), (best, best), "dashed"),
        ),
        caption=(
            f"d = {config.dim}, {config.examples} examples, x ~ N(0, Λ) with eigenvalues from 2 to 0.5; all entries of "
            f"two {config.dim + 1} × {config.dim + 1} matrices are trained by Adam."
        ),
    )
    return _outcome(key, config, found, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, _trained(key, config, shuffled=True))


claim = Claim(
    name="zhang-2024-optimum",
    title="Trained linear attention is preconditioned gradient descent",
    statement=(
        "For y = ⟨w, x⟩, w ~ N(0, I), x ~ N(0, Λ) and N examples, one layer of linear attention is trained to "
        "ŷ = xᵀ Γ⁻¹ (1/N) Σ y_i x_i with Γ = (1 + 1/N) Λ + (tr Λ/N) I, at loss tr Λ(I − Γ⁻¹Λ)."
    ),
    hypotheses=(
        "in the theorem: gradient flow on the population loss from a small structured start",
        "here: Adam on fresh prompts, all entries free, from that start plus a little noise in all of them; from "
        "weights that are random altogether some trainings end elsewhere",
    ),
    reference="zhang2024, Theorem 4.1; ahn2023, Theorem 1",
    run=_run,
    control=_control,
    control_statement="The labels of the examples are moved round by one: they say nothing about w.",
    quick=Config(),
    full=Config(dim=5, examples=10, steps=6000, batch=1024, tasks=100_000, within=0.005),
)
