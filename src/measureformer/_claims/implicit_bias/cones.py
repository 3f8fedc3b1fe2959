"""Which tokens are selected depends on the start: around locally optimal choices there are cones that keep descent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer.implicit_bias import Problem, descend_all, generate, misalignment
from measureformer.result import Check, Figure, Outcome, Series


@dataclass(frozen=True)
class Config:
    problems: int = 6
    n: int = 2
    T: int = 5
    d: int = 3
    starts: int = 16
    steps: int = 1500
    margin: float = 8.0
    """Of the start, which is W_mm times this, turned."""
    turned: float = 0.02
    """1 − cos of the start and W_mm, about."""


def _choices(problems: list[Problem], config: Config, *, local: bool) -> list[tuple[Problem, np.ndarray]]:
    """Choices that are not the optimal one, feasible, and locally optimal or not; the same number of each problem."""
    found: list[tuple[Problem, np.ndarray]] = []
    each = -(-config.starts // len(problems))
    for problem in problems:
        best = problem.optimal()
        every = map(np.array, itertools.product(range(config.T), repeat=config.n))
        fit = (
            a for a in every if (a != best).any() and problem.svm(a).feasible and problem.is_locally_optimal(a) == local
        )
        found += [(problem, a) for a in itertools.islice(fit, each)]
    return found[: config.starts]


def _outcome(key: Any, config: Config, *, local: bool) -> Outcome:
    first, second = jax.random.split(key)
    rng = generator(second)
    chosen = _choices(
        generate("random", first, count=config.problems, n=config.n, T=config.T, d=config.d), config, local=local
    )
    limits = [problem.svm(a) for problem, a in chosen]
    starts = []
    for svm in limits:
        noise = rng.normal(size=svm.W.shape)
        size = np.sqrt(2 * config.turned) * np.linalg.norm(svm.W) / np.linalg.norm(noise)
        starts.append(config.margin * (svm.W + size * noise))
    runs = descend_all([problem for problem, _ in chosen], "ngd", config.steps, starts=starts)
    stays = np.array([(run.selected[-1] == a).all() for run, (_, a) in zip(runs, chosen, strict=True)])
    away = np.array([[misalignment(run.W[i], svm.W) for i in (0, -1)] for run, svm in zip(runs, limits, strict=True)])
    checks = (
        Check("choices that were tried", float(len(chosen)), low=4.0),
        Check("share of the starts in a cone that stay with its tokens", float(stays.mean()), low=0.9),
        Check("1 − cos at the end over that at the start, median", float(np.median(away[:, 1] / away[:, 0])), high=0.5),
    )
    if not local:
        return Outcome(checks)
    curves = [
        Series(f"cone {i + 1}", tuple(map(float, run.steps + 1)), tuple(misalignment(W, svm.W) for W in run.W))
        for i, (run, svm) in enumerate(zip(runs[:5], limits[:5], strict=True))
    ]
    figure = Figure(
        "Cones around locally optimal tokens",
        "step + 1",
        "1 − cos(W, W_mm of the cone)",
        tuple(curves),
        xscale="log",
        yscale="log",
        caption="Starts near the SVM of tokens that are locally, not globally, optimal; normalised gradient descent.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="tarzanagh-2023-cones",
    title="Cones around locally optimal tokens keep descent",
    statement=(
        "A choice of tokens is locally optimal if each has a larger score than all tokens with a tight margin in its "
        "SVM. Then descent that starts in a cone around that SVM, far from 0, keeps selecting these tokens "
        "and converges to it in direction, also if other tokens have larger scores."
    ),
    hypotheses=("the choice can be separated", "normalised gradient descent with steps of length 0.1"),
    reference="tarzanagh2023",
    run=lambda key, config: _outcome(key, config, local=True),
    control=lambda key, config: _outcome(key, config, local=False),
    control_statement="Choices that can be separated and are not locally optimal.",
    quick=Config(),
    full=Config(problems=40, starts=100, steps=5000),
)
