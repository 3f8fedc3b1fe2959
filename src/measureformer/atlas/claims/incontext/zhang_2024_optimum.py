"""Trained linear attention ends at its closed-form optimum: one preconditioned step of gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.incontext.linear import (
    LinearLoss,
    LinearModel,
    LinearTrained,
    Optimum,
    compared,
    optimum,
    train_linear,
)
from measureformer.training.optimization import Optimization


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
def _trained(key: Key, config: Config, *, shuffled: bool) -> LinearTrained:
    first, second = jax.random.split(key)
    start = LinearModel.random(first, config.dim)
    optimization = Optimization(steps=config.steps, batch=config.batch, rate=0.02, clip=None, warmup=0.0)
    return train_linear(
        start, _covariance(config), second, examples=config.examples, optimization=optimization, shuffled=shuffled
    )


def _best(config: Config, variant: str) -> Optimum:
    Lam, N = _covariance(config), config.examples
    if variant == "no-trace-term":
        return Optimum(np.linalg.inv((1 + 1 / N) * Lam), np.trace(Lam) / (N + 1))
    return optimum(Lam, N)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found, best = _trained(key, config, shuffled=variant == "labels-moved"), _best(config, variant)
    law = LinearLoss(np.linalg.cholesky(_covariance(config)).T, config.examples, 1)
    prompts = law.prompts(jax.random.fold_in(key, 7), config.tasks)
    both = compared(found.model, LinearModel.descent(best.preconditioner[None]), prompts)
    product = -np.asarray(found.model.P[0, -1, -1] * found.model.Q[0, :-1, :-1])
    gap = np.abs(product - best.preconditioner).max() / np.abs(best.preconditioner).max()
    over = both.first / both.second, both.interpolated / both.second, both.second / best.error
    moved, no_trace = "labels-moved", "no-trace-term"
    checks = (
        Check("loss over that of the optimum, same prompts", over[0], high=1 + config.within, rejected_by=moved),
        Check("loss half-way between the weights, over that of the optimum", over[1], high=1.05, rejected_by=moved),
        Check("cosine of the sensitivities", both.cosine, low=0.98, rejected_by=moved),
        Check("preconditioner, largest relative difference", gap, high=0.15, rejected_by=(moved, no_trace)),
        Check("loss of the optimum over its closed form", over[2], 0.9, 1.1, rejected_by=no_trace),
    )
    return Outcome(checks, _figure(key, config, found, best.error) if variant == "claim" else None)


def _figure(key: Key, config: Config, found: LinearTrained, best: float) -> Figure:
    false, width = _trained(key, config, shuffled=True), max(config.steps // 60, 1)
    steps = np.arange(config.steps // width) * width + width / 2
    mean = lambda losses: losses[: len(steps) * width].reshape(-1, width).mean(axis=1)  # noqa: E731
    return Figure(
        "Training linear attention",
        "steps",
        "loss",
        (
            Series("trained", steps, mean(found.losses), role="measured"),
            Series("control: labels shuffled", steps, mean(false.losses), role="control"),
            Series("closed-form optimum", (0, config.steps), (best, best), "dashed", role="theory"),
        ),
        caption=(
            f"d = {config.dim}, {config.examples} examples, x ~ N(0, Λ) with eigenvalues from 2 to 0.5; all entries of "
            f"two {config.dim + 1} × {config.dim + 1} matrices are trained by Adam."
        ),
    )


claim = Claim(
    name="zhang-2024-optimum",
    title="Trained linear attention is preconditioned gradient descent",
    kind="observation",
    statement=(
        "For y = ⟨w, x⟩, w ~ N(0, I), x ~ N(0, Λ) and N examples, the best layer of linear attention is ŷ = xᵀ Γ⁻¹ "
        "(1/N) Σ y_i x_i with Γ = (1 + 1/N) Λ + (tr Λ/N) I, at loss tr Λ(I − Γ⁻¹Λ). Observed: training by Adam ends "
        "there, with a preconditioner within 15 %."
    ),
    hypotheses=(
        "in the theorem: gradient flow on the population loss from a small structured start",
        "here: Adam on fresh prompts, all entries free, from that start plus a little noise in all of them; from "
        "weights that are random altogether some trainings end elsewhere",
    ),
    reference="zhang2024, Theorem 4.1; ahn2023, Theorem 1",
    measure=measure,
    controls={
        "labels-moved": "The labels of the examples are moved round by one: they say nothing about w.",
        "no-trace-term": "Γ without the term (tr Λ/N) I.",
    },
    quick=Config(),
    full=Config(dim=5, examples=10, steps=6000, batch=1024, tasks=100_000, within=0.005),
)
