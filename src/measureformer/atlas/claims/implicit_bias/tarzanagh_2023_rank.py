"""The rank of a support vector machine of tokens is at most the number of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Problem
from measureformer.implicit_bias.generators import unit
from measureformer.implicit_bias.svm import Norm

T = 5


@dataclass(frozen=True)
class Config:
    problems: int = 3
    nuclear: int = 1
    """Of these, how many are solved for the nuclear norm too."""
    dim: int = 8
    """The largest dimension."""


def _problem(rng: np.random.Generator, n: int, d: int, *, split: bool) -> Problem:
    """Random tokens; or the same pairs of tokens, each with a query of its own: n(T−1) examples of two tokens."""
    X = unit(rng.normal(size=(n, T, d)))
    if split:
        pairs = np.stack([np.broadcast_to(X[:, :1], (n, T - 1, d)), X[:, 1:]], axis=2).reshape(-1, 2, d)
        return Problem(pairs, unit(rng.normal(size=(len(pairs), d))), np.ones(len(pairs)), np.ones(d))
    return Problem(X, unit(rng.normal(size=(n, d))), np.ones(n), np.ones(d))


def _outcome(key: Any, config: Config, *, split: bool) -> Outcome:
    rng = generator(key)
    counts, dims = (1, 2, 4), range(4, config.dim + 1, 2)
    over: dict[str, list[int]] = {"frobenius": [], "nuclear": []}
    means: dict[int, list[float]] = {n: [] for n in counts}
    for n in counts:
        for d in dims:
            ranks = []
            for i in range(config.problems):
                problem = _problem(rng, n, d, split=split)
                norms: tuple[Norm, ...] = ("frobenius", "nuclear")
                for norm in norms if i < config.nuclear and d == dims[0] else norms[:1]:
                    found = problem.svm(np.zeros(problem.X.shape[0], int), norm)
                    if found.feasible:
                        rank = found.rank(1e-8 if norm == "frobenius" else 1e-4)
                        over[norm].append(rank - min(n, d))
                        ranks += [rank] if norm == "frobenius" else []
            means[n].append(float(np.mean(ranks)) if ranks else float("nan"))
    checks = (
        Check("separable problems", float(len(over["frobenius"])), low=float(config.problems)),
        Check("rank minus min(n, d), Frobenius norm, largest", float(max(over["frobenius"])), high=0.0),
        Check("rank minus min(n, d), nuclear norm, largest", float(max(over["nuclear"], default=0)), high=0.0),
    )
    figure = Figure(
        "The rank of the support vector machine",
        "dimension",
        "mean rank, Frobenius norm",
        tuple(Series(f"{n} examples", tuple(map(float, dims)), tuple(row), "points") for n, row in means.items()),
        caption=f"Random tokens, {T} in each example.",
    )
    return Outcome(checks, None if split else figure)


claim = Claim(
    name="tarzanagh-2023-rank",
    title="The support vector machine has low rank",
    statement="The SVM of n examples in d dimensions has rank at most min(n, d), for both norms.",
    hypotheses=("each example has one query", "the tokens can be separated"),
    reference="tarzanagh2023",
    run=lambda key, config: _outcome(key, config, split=False),
    control=lambda key, config: _outcome(key, config, split=True),
    control_statement="Each pair of tokens has a query of its own; the bound still counts the examples.",
    quick=Config(),
    full=Config(problems=30, nuclear=5, dim=16),
)
