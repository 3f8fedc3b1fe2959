"""With nonlinear heads and with several classes, W turns to the support vector machine of the tokens that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.implicit_bias import Problem, decompose, descend_all, misalignment
from measureformer.implicit_bias.descent import Run
from measureformer.implicit_bias.generators import unit
from measureformer.maps import MLP


@dataclass(frozen=True)
class Config:
    problems: int = 16
    steps: int = 1000
    n: int = 3
    T: int = 4
    d: int = 8


def _problems(rng: np.random.Generator, config: Config, kind: str) -> list[Problem]:
    """ "nonlinear": the head Σ relu(Vx) with labels 1. "classes": three classes, linear."""
    made = []
    for _ in range(config.problems):
        X = unit(rng.normal(size=(config.n, config.T, config.d)))
        z = unit(rng.normal(size=(config.n, config.d)))
        if kind == "nonlinear":
            V = rng.normal(size=(config.d, config.d))
            made.append(Problem(X, z, np.ones(config.n), MLP(V, None, np.ones((1, config.d)), None, activation="relu")))
        else:
            made.append(Problem(X, z, rng.integers(3, size=config.n), rng.normal(size=(3, config.d))))
    return made


def _away(run: Run, variant: str) -> float | None:
    """1 − cos of W and W_fin + C·W_mm of the tokens kept at the end; None if no token is dropped."""
    parts = decompose(run)
    if not parts.grows:
        return None
    if variant != "second-token":
        return parts.both[-1]
    svm = run.problem.svm(np.argsort(run.attention[-1], axis=1)[:, -2])
    return misalignment(run.W[-1], svm.W) if svm.feasible else 1.0


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    steps = config.steps // 20 if variant == "stopped-early" else config.steps
    checks, curves = [], []
    for kind in ("nonlinear", "classes"):
        runs = descend_all(_problems(rng, config, kind), "ngd", steps, jax.random.fold_in(key, 1))
        away = np.sort([found for run in runs if (found := _away(run, variant)) is not None])
        share = len(away) / config.problems
        median, mean = (np.median(away), np.mean(away)) if len(away) else (np.nan, np.nan)
        checks += [
            Check(f"{kind}: share of runs that drop tokens", share, low=0.5, rejected_by="stopped-early"),
            Check(f"{kind}: 1 − cos of W and its description, median", median, high=0.02, rejected_by="second-token"),
            Check(f"{kind}: the same, mean", mean, high=0.08, rejected_by="second-token"),
        ]
        curves.append(Series(kind, np.linspace(0, 1, len(away) + 1)[1:], away, role="measured"))
    figure = Figure(
        "Other heads",
        "share of the runs",
        "1 − cos(W, W_fin + C·W_mm) at the end, at most",
        tuple(curves),
        yscale="log",
        caption=f"{config.problems} random problems for each head, {config.steps} normalised steps.",
    )
    return Outcome(tuple(checks), figure if variant == "claim" else None)


claim = Claim(
    name="tarzanagh-2023-heads",
    title="Other heads, the same support vector machine",
    kind="observation",
    statement=(
        "Observed for the head Σ relu(Vx) and for three classes with the cross-entropy: in most runs normalised "
        "gradient descent drops tokens, and in these the median 1 − cos of W and W_fin + C·W_mm is at most 0.02 and "
        "the mean at most 0.08, with W_mm the SVM that separates the tokens that are kept from the others."
    ),
    hypotheses=("random tokens on the sphere, labels 1 for the nonlinear head", "runs in which a token is dropped"),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "second-token": "The SVM of the tokens that get the second most attention.",
        "stopped-early": "Training stops after a twentieth of the steps, before it drops tokens.",
    },
    quick=Config(),
    full=Config(problems=100, steps=2000),
)
