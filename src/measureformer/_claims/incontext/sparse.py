"""Sparse functions are learned from fewer examples than least squares needs, by whoever knows that they are sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer._claims.incontext._floats import floats
from measureformer._claims.incontext._learner import Learner, learned, prompts
from measureformer.incontext.baselines import lasso, least_squares, least_squares_error
from measureformer.incontext.tasks import Prompts
from measureformer.result import Check, Figure, Outcome, Series


@dataclass(frozen=True)
class Config:
    dim: int = 20
    nonzero: int = 3
    prompts: int = 120
    points: int = 12
    every: int = 5
    """Between numbers of examples that are tried."""
    alpha: float = 0.01
    steps: int = 0
    """Of the training of a small transformer on functions of one coordinate; 0 for none."""


def _trained(key: Any, config: Config, *, blend: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean error of a trained transformer after 0, 1, … examples, and of least squares on the same prompts."""
    learner = Learner(
        kind="sparse", dim=6, points=7, width=32, layers=3, steps=config.steps, rate=2e-3, reading="sequence"
    )
    drawn = prompts(jax.random.fold_in(key, 9), learner, 2000)
    found = np.asarray(learned(key, learner, blend=blend).model.predictions(drawn.x, drawn.y), float)
    return ((found - drawn.y) ** 2).mean(axis=0), ((least_squares(drawn) - drawn.y) ** 2).mean(axis=0)


def _trained_check(errors: tuple[np.ndarray, np.ndarray]) -> Check:
    mine, theirs = (float(row[1:].mean()) for row in errors)
    return Check("trained transformer over least squares, mean over 1 to d examples", mine / theirs, high=0.8)


def _errors(key: Any, config: Config, nonzero: int) -> np.ndarray:
    """Normalised errors of the Lasso and of least squares on the same prompts, (2, prompts, points)."""
    rng = generator(key)
    x = rng.normal(size=(config.prompts, config.points, config.dim))
    w = rng.normal(size=(config.prompts, config.dim))
    kept = np.argsort(rng.uniform(size=w.shape), axis=1) < nonzero
    y = np.einsum("bnd,bd->bn", x, np.where(kept, w, 0))
    drawn = Prompts(x, y, x, y)
    found = [lasso(config.alpha)(drawn, counts=_counts(config)), least_squares(drawn)]
    return ((np.array(found) - y) ** 2 / nonzero)[:, :, _counts(config)]


def _counts(config: Config) -> list[int]:
    return list(range(config.points - 1, 0, -config.every))[::-1]


def _checks(errors: np.ndarray, config: Config) -> tuple[Check, ...]:
    last = errors[:, :, -1]
    gain, error = (last[1] - last[0]).mean(), 5 * (last[1] - last[0]).std() / np.sqrt(config.prompts)
    law = float(least_squares_error(config.dim, config.points - 1))
    bad = 5 * last[1].std() / np.sqrt(config.prompts)
    return (
        Check("least squares minus Lasso, at the last number of examples", float(gain), low=0.0, error=float(error)),
        Check("Lasso over least squares there", float(last[0].mean() / last[1].mean()), high=0.5),
        Check("|least squares − (1 − k/d)| in five standard errors", float(abs(last[1].mean() - law) / bad), high=1.0),
    )


def _run(key: Any, config: Config) -> Outcome:
    errors = _errors(key, config, config.nonzero)
    k, checks = floats(_counts(config)), _checks(errors, config)
    more: tuple[Series, ...] = ()
    if config.steps:
        small = _trained(key, config, blend=0.0)
        places = floats(range(len(small[0])))
        names = ("trained transformer, one weight of six", "least squares, one weight of six")
        more = tuple(Series(name, places, floats(row), "points") for name, row in zip(names, small, strict=True))
        checks = (*checks, _trained_check(small))
    figure = Figure(
        "Sparse linear functions",
        "examples",
        "error over that of predicting 0",
        (
            Series("Lasso", k, floats(errors[0].mean(axis=0))),
            Series("least squares", k, floats(errors[1].mean(axis=0))),
            Series("1 − k/d", k, floats(least_squares_error(config.dim, _counts(config))), "dashed"),
            *more,
        ),
        caption=f"{config.nonzero} of {config.dim} weights are not 0; {config.prompts} prompts; α = {config.alpha:g}.",
    )
    return Outcome(checks, figure)


def _control(key: Any, config: Config) -> Outcome:
    checks = _checks(_errors(key, config, config.dim), config)
    return Outcome((*checks, _trained_check(_trained(key, config, blend=1.0))) if config.steps else checks)


claim = Claim(
    name="garg-2022-sparse",
    title="Sparse functions need fewer examples than least squares",
    statement=(
        "For y = ⟨w, x⟩ with three weights of twenty that are not zero, the Lasso has less than half of the error of "
        "minimum-norm least squares from eleven examples on; least squares does not notice: its error is 1 − k/d."
    ),
    hypotheses=(
        "x standard normal, no noise",
        "in the full preset a small transformer is trained too, on functions of one of six coordinates",
    ),
    reference="garg2022, Section 4",
    run=_run,
    control=_control,
    control_statement="All weights are there: nothing is sparse.",
    quick=Config(),
    full=Config(prompts=500, points=21, every=1, steps=3000),
)
