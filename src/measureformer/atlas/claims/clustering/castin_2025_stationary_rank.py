"""Covariances that attention leaves alone have low rank: at most d/2 when A is nonsingular."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series

DIM = 4
SINGULAR = (1.0, -1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Config:
    trials: int = 8


def _stationary(rng: np.random.Generator, A: np.ndarray) -> np.ndarray | None:
    """A covariance of trace 1 with ΣAΣ = 0, from a random start by least squares; None if none was reached."""
    from scipy.optimize import least_squares

    def residual(entries: np.ndarray) -> np.ndarray:
        L = entries.reshape(DIM, DIM)
        # range Σ is A-isotropic if and only if LᵀAL = 0, and this has full slope where ΣAΣ has none
        return np.append((L.T @ A @ L)[np.triu_indices(DIM)], np.sum(L * L) - 1)

    found = least_squares(residual, rng.normal(size=DIM * DIM), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    L = found.x.reshape(DIM, DIM)
    return L @ L.T if np.abs(found.fun).max() < 1e-9 else None


def _ranks(key: Any, config: Config, *, singular: bool) -> list[int]:
    rng, ranks = generator(key), []
    for i in range(config.trials):
        basis = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
        signs = np.array(SINGULAR if singular else [(1, 1, -1, -1), (1, 1, 1, -1)][i % 2], float)
        A = (basis * signs * rng.uniform(0.5, 2, size=DIM)) @ basis.T
        cov = _stationary(rng, A)
        if cov is not None:
            # squares of roots that solve the equations to 1e-9
            ranks.append(int((np.linalg.eigvalsh(cov) > 1e-6).sum()))
    return ranks


def _outcome(ranks: list[int], config: Config, figure: Figure | None = None) -> Outcome:
    checks = (
        Check("stationary covariances found, share of the starts", len(ranks) / config.trials, low=0.5),
        Check("largest rank", float(max(ranks, default=0)), low=1.0, high=DIM / 2),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    ranks, wrong = _ranks(key, config, singular=False), _ranks(key, config, singular=True)
    x = tuple(float(r) for r in range(DIM + 1))
    count = lambda found: tuple(float(found.count(r)) for r in range(DIM + 1))  # noqa: E731
    figure = Figure(
        "Ranks of stationary covariances",
        "rank",
        "how many were found",
        (
            Series("A nonsingular", x, count(ranks), "bars"),
            Series("control: A with a kernel of dimension 2", x, count(wrong), "bars"),
        ),
        xticks=tuple(str(r) for r in range(DIM + 1)),
        caption=f"d = {DIM}, V = I, A symmetric of signature (2,2) or (3,1); solutions of ΣAΣ = 0 from random starts.",
    )
    return _outcome(ranks, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_ranks(key, config, singular=True), config)


claim = Claim(
    name="castin-2025-stationary-rank",
    title="Stationary covariances have low rank",
    statement=(
        "For V = I and every symmetric nonsingular A: if N(0, Σ) is stationary, that is ΣAΣ = 0, then rank Σ ≤ d/2. "
        "For singular A the bound is dim ker A + min(n₊, n₋)."
    ),
    hypotheses=("V = I, one softmax head", "A symmetric and nonsingular; for general K, Q, V this is a conjecture"),
    reference="castin2025",
    run=_run,
    control=_control,
    control_statement="A of signature (1,1) with a kernel of dimension d − 2.",
    quick=Config(),
    full=Config(trials=200),
)
