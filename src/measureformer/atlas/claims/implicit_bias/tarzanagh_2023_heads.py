"""With nonlinear heads and with several classes, W turns to the support vector machine of the tokens that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Problem, decompose, descend_all
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


def _measured(key: Any, config: Config, *, other: bool) -> dict[str, np.ndarray]:
    """1 − cos of W and W_fin + C·W_mm of the tokens kept at the end, or of others, for runs that drop tokens."""
    rng = generator(key)
    found = {}
    for kind in ("nonlinear", "classes"):
        runs = descend_all(_problems(rng, config, kind), "ngd", config.steps, jax.random.fold_in(key, 1))
        away = []
        for run in runs:
            parts = decompose(run)
            if parts.grows and not other:
                away.append(parts.both[-1])
            elif parts.grows:
                # the tokens that get least attention, in place of those that get most
                svm = run.problem.svm(run.attention[-1].argmin(axis=1))
                away.append(1 - float(np.sum(run.direction[-1] * svm.direction)))
        found[kind] = np.array(away)
    return found


def _outcome(found: dict[str, np.ndarray], config: Config, figure: Figure | None = None) -> Outcome:
    checks = [
        check
        for kind, away in found.items()
        for check in (
            Check(f"{kind}: share of runs that drop tokens", len(away) / config.problems, low=0.5),
            Check(f"{kind}: 1 − cos of W and its description, median", float(np.median(away)), high=0.02),
            Check(f"{kind}: the same, mean", float(np.mean(away)), high=0.08),
        )
    ]
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _measured(key, config, other=False)
    figure = Figure(
        "Other heads",
        "share of the runs",
        "1 − cos(W, W_fin + C·W_mm) at the end, at most",
        tuple(
            Series(kind, tuple(np.linspace(0, 1, len(away) + 1)[1:].tolist()), tuple(np.sort(away).tolist()), "line")
            for kind, away in found.items()
        ),
        yscale="log",
        caption=f"{config.problems} random problems for each head, {config.steps} normalised steps.",
    )
    return _outcome(found, config, figure)


claim = Claim(
    name="tarzanagh-2023-heads",
    title="Other heads, the same support vector machine",
    statement=(
        "With the head Σ relu(Vx) or with three classes and the cross-entropy, normalised gradient descent turns to "
        "W_fin + C·W_mm, with W_mm the SVM that separates the tokens that are kept from the others."
    ),
    hypotheses=("random tokens on the sphere, labels 1 for the nonlinear head", "runs in which a token is dropped"),
    reference="tarzanagh2023",
    run=_run,
    control=lambda key, config: _outcome(_measured(key, config, other=True), config),
    control_statement="The SVM of the tokens that get least attention.",
    quick=Config(),
    full=Config(problems=100, steps=2000),
)
