"""Least squares in context has a double descent: its error peaks where there are as many examples as dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.incontext.baselines import averaging, averaging_error, least_squares, least_squares_error, ridge
from measureformer.incontext.tasks import Prompts


@dataclass(frozen=True)
class Config:
    dim: int = 8
    points: int = 18
    prompts: int = 400
    noise: float = 1.0


def _errors(key: Key, config: Config, variant: str) -> dict[str, np.ndarray]:
    """Squared errors over d, (prompts, points), of the clean answer: the noise of the question is left out."""
    rng, shape = generator(key), (config.prompts, config.points)
    x = rng.normal(size=(*shape, config.dim))
    truth = np.einsum("bnd,bd->bn", x, rng.normal(size=(config.prompts, config.dim)))
    noisy = truth + config.noise * rng.normal(size=shape)
    fit = ridge(config.noise**2) if variant == "best-ridge" else least_squares
    learners = {"noisy": (fit, noisy), "clean": (least_squares, truth), "averaging": (averaging, truth)}
    return {name: (by(Prompts(x, y, x, truth)) - truth) ** 2 / config.dim for name, (by, y) in learners.items()}


def _laws(config: Config, variant: str, k: np.ndarray) -> dict[str, np.ndarray]:
    """What the mean of each of these errors should be after k ≥ 1 examples."""
    d, noise = config.dim, config.noise
    return {
        "noisy": least_squares_error(d, k, noise=0.5 * noise if variant == "half-the-noise" else noise),
        "clean": least_squares_error(d + 1 if variant == "one-dimension-more" else d, k),
        "averaging": averaging_error(1 if variant == "each-coordinate-alone" else d, k),
    }


def measure(key: Key, config: Config, variant: str) -> Outcome:
    k = np.arange(1, config.points)
    errors, laws = _errors(key, config, variant), _laws(config, variant, k)
    means = {name: values.mean(axis=0)[1:] for name, values in errors.items()}
    # near the peak the errors have infinite variance, and their mean is not informative
    compared = {"noisy": np.abs(k - config.dim) > 4, "clean": k > 0, "averaging": k > 0}

    def gap(name: str) -> float:
        error = errors[name].std(axis=0)[1:] / np.sqrt(config.prompts)
        return (np.abs(means[name] - laws[name]) / (5 * error + 1e-12))[compared[name]].max()

    middle = np.median(errors["noisy"], axis=0)
    peak = middle[config.dim] / max(middle[config.dim // 2], middle[2 * config.dim])
    checks = (
        Check(
            "least squares, noise: |mean − closed form| in five standard errors",
            gap("noisy"),
            high=1.0,
            rejected_by=("half-the-noise", "best-ridge"),
        ),
        Check("least squares, no noise: the same", gap("clean"), high=1.0, rejected_by="one-dimension-more"),
        Check("averaging: the same", gap("averaging"), high=1.0, rejected_by="each-coordinate-alone"),
        Check("median error at k = d over that at d/2 and 2d", peak, low=2.0, rejected_by="best-ridge"),
    )
    return Outcome(checks, _figure(config, k, means, laws["noisy"]) if variant == "claim" else None)


def _figure(config: Config, k: np.ndarray, means: dict[str, np.ndarray], law: np.ndarray) -> Figure:
    few, many = (np.isfinite(law) & side for side in (k < config.dim, k > config.dim))
    below = k < config.dim
    return Figure(
        "Least squares from k examples",
        "examples",
        "error over that of predicting 0",
        (
            Series("least squares, noisy labels", k, means["noisy"], role="measured"),
            Series("least squares, no noise", k[below], means["clean"][below], role="measured"),
            Series("averaging", k, means["averaging"], role="measured"),
            Series("closed form, k < d", k[few], law[few], "dashed", role="theory"),
            Series("closed form, k > d", k[many], law[many], "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"d = {config.dim}, {config.prompts} prompts, noise {config.noise:g}; the peak is at k = d.",
    )


claim = Claim(
    name="hastie-2022-double-descent",
    title="Least squares from k examples: the error peaks at k = d",
    kind="theorem",
    statement=(
        "For y = ⟨w, x⟩ + σ·noise, standard normal x and w in R^d: the error of minimum-norm least squares over that "
        "of 0 is 1 − k/d + σ²k/(d(d−k−1)) for k < d−1 and σ²/(k−d−1) for k > d+1, infinite between; without noise it "
        "is max(1 − k/d, 0). That of averaging is (d+1)/k."
    ),
    hypotheses=("the noise of the question is not counted", "compared where the variance is finite, |k − d| > 4"),
    reference="hastie2022; garg2022",
    measure=measure,
    controls={
        "half-the-noise": "The closed form of half the noise.",
        "one-dimension-more": "Without noise, the closed form of d + 1 dimensions.",
        "each-coordinate-alone": "The error of averaging without that of the other d − 1 coordinates: 2/k.",
        "best-ridge": "Ridge regression with penalty σ² in place of least squares: its error has no peak.",
    },
    quick=Config(),
    full=Config(dim=20, points=61, prompts=1500),
)
