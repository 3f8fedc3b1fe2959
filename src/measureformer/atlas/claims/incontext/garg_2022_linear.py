"""A transformer trained on prompts of linear functions does in context what least squares does."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.helpers.incontext_learner import Learner, learned, prompts, start
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.incontext import InContextModel
from measureformer.incontext.baselines import averaging_error, least_squares_error

CONTROLS = {
    "before-training": "The model before training.",
    "labels-of-other-functions": "The same training on labels that each come from a function of their own.",
    "averaging": "The prediction is that of ⟨mean of y_i x_i, x⟩, one step of gradient descent from 0.",
}


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 4000
    away: float = 0.15
    """Largest distance from least squares while there are fewer examples than dimensions."""


def _averages(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """⟨mean of y_i x_i over i < k, x_k⟩ for k = 0, 1, …"""
    sums = np.cumsum(y[..., None] * x, axis=1)[:, :-1] / np.arange(1, x.shape[1])[:, None]
    return np.pad(np.sum(sums * x[:, 1:], axis=2), ((0, 0), (1, 0)))


def _errors(key: Key, config: Config, model: InContextModel | None) -> tuple[np.ndarray, np.ndarray]:
    """Normalised errors after 0, 1, … examples, and five standard errors. A measure needs an example: before it, 1."""
    drawn = prompts(jax.random.fold_in(key, 3), config, config.prompts)
    found = np.asarray(_averages(drawn.x, drawn.y) if model is None else model.predictions(drawn.x, drawn.y), float)
    squares = (found - drawn.y) ** 2 / config.dim
    return squares.mean(axis=0), 5 * squares.std(axis=0) / np.sqrt(config.prompts)


def _checks(errors: tuple[np.ndarray, np.ndarray], config: Config) -> tuple[Check, ...]:
    mean, width = errors
    law = least_squares_error(config.dim, np.arange(config.points))
    # without an example there is no measure, and no prediction to judge
    few = slice(1 if config.reading == "measure" else 0, config.dim)
    ratio = mean[-1] / averaging_error(config.dim, config.points - 1)
    # of one step of gradient descent with any fixed preconditioner
    step = (config.dim + 1) / (config.points + config.dim)
    both = tuple(CONTROLS)
    return (
        Check(
            "error over that of the best single step, after all examples",
            mean[-1] / step,
            high=1.0,
            error=width[-1] / step,
            rejected_by=both,
        ),
        Check("distance from 1 − k/d for k < d", np.abs(mean - law)[few].max(), high=config.away, rejected_by=both),
        Check("over that of averaging, after all examples", ratio, high=0.8, rejected_by=both),
    )


def _model(key: Key, config: Config, variant: str) -> InContextModel | None:
    """The model of the variant; None for the prediction without one."""
    if variant == "averaging":
        return None
    learner = config.plain()
    if variant == "before-training":
        return start(key, learner)
    return learned(key, learner, blend=1.0 if variant == "labels-of-other-functions" else 0.0).model


def measure(key: Key, config: Config, variant: str) -> Outcome:
    errors = _errors(key, config, _model(key, config, variant))
    return Outcome(_checks(errors, config), _figure(key, config, *errors) if variant == "claim" else None)


def _figure(key: Key, config: Config, found: np.ndarray, width: np.ndarray) -> Figure:
    k = np.arange(config.points)
    before, other, averages = (_errors(key, config, _model(key, config, control))[0] for control in CONTROLS)
    return Figure(
        "Learning linear functions in context",
        "examples",
        "error over that of predicting 0",
        (
            Series("transformer", k, found, role="measured"),
            Series("five standard errors", k, found - width, "band", found + width, role="measured"),
            Series("control: before training", k, before, role="control"),
            Series("control: labels of other functions", k, other, role="control"),
            Series("control: averaging", k, averages, role="control"),
            Series("least squares, 1 − k/d", k, least_squares_error(config.dim, k), "dashed", role="theory"),
        ),
        caption=(
            f"d = {config.dim}; {config.layers} layers of {config.heads} heads, width {config.width}; {config.steps} "
            f"steps of {config.batch} fresh prompts; errors over {config.prompts} others."
        ),
    )


claim = Claim(
    name="garg-2022-linear",
    title="A trained transformer learns linear functions in context",
    kind="observation",
    statement=(
        "Observed for a transformer trained on prompts (x_1, y_1), …, (x_k, y_k), x of fresh linear functions, d = 3: "
        "its error is within 0.1 of that of least squares, 1 − k/d, for k < d (0.15 in the quick preset, d = 2), and "
        "after 2d examples below (d + 1)/(k + d + 1), that of the best single step of gradient descent, and below 0.8 "
        "of that of averaging."
    ),
    hypotheses=(
        "x and w standard normal in R^d",
        "a small model and a short training: the error after d examples is not 0",
        "compared from the first example on where the prompt is read as a measure, which has to have one",
    ),
    reference="garg2022, Section 3",
    measure=measure,
    controls=CONTROLS,
    quick=Config(),
    full=Config(dim=3, points=7, width=32, layers=3, steps=4000, rate=2e-3, reading="sequence", looks=12, away=0.1),
)
