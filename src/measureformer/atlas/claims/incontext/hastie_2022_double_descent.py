"""Least squares in context has a double descent: its error peaks where there are as many examples as dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.incontext_floats import floats
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.incontext.baselines import averaging, averaging_error, least_squares, least_squares_error
from measureformer.incontext.tasks import Prompts


@dataclass(frozen=True)
class Config:
    dim: int = 8
    points: int = 18
    prompts: int = 400
    noise: float = 1.0


def _errors(key: Any, config: Config) -> dict[str, np.ndarray]:
    """Squared errors over d, (prompts, points): of the clean answer, so that the noise of the question is left out."""
    rng, shape = generator(key), (config.prompts, config.points)
    x = rng.normal(size=(*shape, config.dim))
    truth = np.einsum("bnd,bd->bn", x, rng.normal(size=(config.prompts, config.dim)))
    noisy = truth + config.noise * rng.normal(size=shape)
    learners = {"noisy": (least_squares, noisy), "clean": (least_squares, truth), "averaging": (averaging, truth)}
    return {name: (by(Prompts(x, y, x, truth)) - truth) ** 2 / config.dim for name, (by, y) in learners.items()}


def _checks(errors: dict[str, np.ndarray], config: Config, noise: float) -> tuple[Check, ...]:
    k = np.arange(config.points)
    # next to the peak errors have no variance, and a mean says nothing
    fair = (np.abs(k - config.dim) > 4) & (k > 0)

    def gap(name: str, law: np.ndarray, where: np.ndarray) -> float:
        mean, error = errors[name].mean(axis=0), errors[name].std(axis=0) / np.sqrt(config.prompts)
        return float((np.abs(mean - law) / (5 * error + 1e-12))[where].max())

    middle = np.median(errors["noisy"], axis=0)
    peak = middle[config.dim] / max(middle[config.dim // 2], middle[2 * config.dim])
    return (
        Check("least squares, noise: |mean − closed form| in five standard errors", gap(
            "noisy", least_squares_error(config.dim, k, noise=noise), fair), high=1.0),
        Check("least squares, no noise: the same", gap("clean", least_squares_error(config.dim, k), k > 0), high=1.0),
        Check("averaging: the same", gap("averaging", averaging_error(config.dim, k), k > 0), high=1.0),
        Check("median error at k = d over that at d/2 and 2d", float(peak), low=2.0),
    )  # fmt: skip


def _run(key: Any, config: Config) -> Outcome:
    errors, k = _errors(key, config), np.arange(1, config.points)
    law = least_squares_error(config.dim, k, noise=config.noise)
    near = np.isfinite(law)
    figure = Figure(
        "Least squares from k examples",
        "examples",
        "error over that of predicting 0",
        (
            Series("least squares, noisy labels", floats(k), floats(errors["noisy"].mean(axis=0)[1:])),
            Series(
                "least squares, no noise",
                floats(k[: config.dim - 1]),
                floats(errors["clean"].mean(axis=0)[1 : config.dim]),
            ),
            Series("averaging", floats(k), floats(errors["averaging"].mean(axis=0)[1:])),
            Series(
                "closed form, k < d", floats(k[near & (k < config.dim)]), floats(law[near & (k < config.dim)]), "dashed"
            ),
            Series(
                "closed form, k > d", floats(k[near & (k > config.dim)]), floats(law[near & (k > config.dim)]), "dashed"
            ),
        ),
        yscale="log",
        caption=f"d = {config.dim}, {config.prompts} prompts, noise {config.noise:g}; the peak is at k = d.",
    )
    return Outcome(_checks(errors, config, config.noise), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_errors(key, config), config, 0.5 * config.noise))


claim = Claim(
    name="hastie-2022-double-descent",
    title="Least squares from k examples: the error peaks at k = d",
    statement=(
        "For y = ⟨w, x⟩ + σ·noise, standard normal x and w in R^d: the error of minimum-norm least squares over that "
        "of 0 is 1 − k/d + σ²k/(d(d−k−1)) for k < d−1 and σ²/(k−d−1) for k > d+1, infinite between; without noise it "
        "is max(1 − k/d, 0). That of averaging is (d+1)/k."
    ),
    hypotheses=("the noise of the question is not counted", "compared where the variance is finite, |k − d| > 4"),
    reference="hastie2022; garg2022",
    run=_run,
    control=_control,
    control_statement="The closed form of half the noise.",
    quick=Config(),
    full=Config(dim=20, points=61, prompts=1500),
)
