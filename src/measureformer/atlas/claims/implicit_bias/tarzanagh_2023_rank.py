"""The rank of a support vector machine of tokens is at most the number of examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
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


def _problem(rng: np.random.Generator, n: int, d: int, variant: str) -> Problem:
    """Random tokens, of which the first is chosen in each example.

    Or the same pairs of tokens, each with a query of its own: n(T−1) examples of two tokens. Or the first token is the
    mean of the others.
    """
    X = unit(rng.normal(size=(n, T, d)))
    if variant == "token-in-the-hull":
        X[:, 0] = X[:, 1:].mean(axis=1)
    if variant == "query-for-each-pair":
        X = np.stack([np.broadcast_to(X[:, :1], (n, T - 1, d)), X[:, 1:]], axis=2).reshape(-1, 2, d)
    return Problem(X, unit(rng.normal(size=(len(X), d))), np.ones(len(X)), np.ones(d))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    counts, dims = (1, 2, 4), range(4, config.dim + 1, 2)
    over: dict[Norm, list[int]] = {"frobenius": [], "nuclear": []}
    means: dict[int, list[float]] = {n: [] for n in counts}
    for n in counts:
        for d in dims:
            ranks = []
            for i in range(config.problems):
                problem = _problem(rng, n, d, variant)
                for norm in over:
                    if norm == "nuclear" and (i >= config.nuclear or d != dims[0]):
                        continue
                    found = problem.svm(np.zeros(len(problem.X), int), norm)
                    if found.feasible:
                        rank = found.rank(1e-8 if norm == "frobenius" else 1e-4)
                        over[norm].append(rank - min(n, d))
                        ranks += [rank] if norm == "frobenius" else []
            means[n].append(float(np.mean(ranks)) if ranks else np.nan)
    less = 1 if variant == "one-less" else 0
    frobenius, nuclear = (max(found, default=np.nan) + less for found in over.values())
    both = "query-for-each-pair", "one-less"
    checks = (
        Check("separable problems", len(over["frobenius"]), low=config.problems, rejected_by="token-in-the-hull"),
        Check("rank minus min(n, d), Frobenius norm, largest", frobenius, high=0.0, rejected_by=both),
        Check("rank minus min(n, d), nuclear norm, largest", nuclear, high=0.0, rejected_by=both[1]),
    )
    figure = Figure(
        "The rank of the support vector machine",
        "dimension",
        "mean rank, Frobenius norm",
        tuple(Series(f"{n} examples", dims, row, "points", role="measured") for n, row in means.items()),
        caption=f"Random tokens, {T} in each example.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="tarzanagh-2023-rank",
    title="The support vector machine has low rank",
    kind="theorem",
    statement="The SVM of n examples in d dimensions has rank at most min(n, d), for both norms.",
    hypotheses=("each example has one query", "the tokens can be separated"),
    reference="tarzanagh2023",
    measure=measure,
    controls={
        "query-for-each-pair": "Each pair of tokens has a query of its own; the bound still counts the examples.",
        "one-less": "The bound is min(n, d) − 1.",
        "token-in-the-hull": "The chosen token is the mean of the others, so that nothing separates it.",
    },
    quick=Config(),
    full=Config(problems=30, nuclear=5, dim=16),
)
