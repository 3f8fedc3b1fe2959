"""Open: stationary covariances for random K, Q, V. What is known is V = I; here is what random matrices show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer.result import Check, Figure, Outcome, Series

DIM = 4
ZERO = 1e-3
"""Eigenvalues below this count as zero: near a singular solution the equations are flat, and are met before it is."""


@dataclass(frozen=True)
class Config:
    trials: int = 12


def _stationary(rng: np.random.Generator, A: np.ndarray, V: np.ndarray) -> np.ndarray | None:
    """A covariance of trace 1 with VΣAΣ + ΣAᵀΣVᵀ = 0, from a random start by least squares; None if none was found."""
    from scipy.optimize import least_squares

    rows = np.triu_indices(DIM)

    def residual(entries: np.ndarray) -> np.ndarray:
        L = entries.reshape(DIM, DIM)
        cov = L @ L.T
        moved = V @ cov @ A @ cov
        return np.append((moved + moved.T)[rows], np.trace(cov) - 1)

    found = least_squares(residual, rng.normal(size=DIM * DIM), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=400)
    L = found.x.reshape(DIM, DIM)
    return L @ L.T if np.abs(found.fun).max() < 1e-9 else None


def _ranks(key: Any, config: Config, *, rotation: bool) -> list[int]:
    rng, ranks = generator(key), list[int]()
    for _ in range(config.trials):
        K, Q, V = rng.normal(size=(3, DIM, DIM)) / np.sqrt(DIM)
        A = K.T @ Q
        if rotation:
            # VΣAΣ = VΣ² is antisymmetric for every Σ that commutes with V
            A, V = np.eye(DIM), np.kron(np.eye(DIM // 2), [[0.0, -1.0], [1.0, 0.0]])
        cov = _stationary(rng, A, V)
        if cov is not None:
            ranks.append(int((np.linalg.eigvalsh(cov) > ZERO).sum()))
    return ranks


def _outcome(ranks: list[int], config: Config, figure: Figure | None = None) -> Outcome:
    low = sum(rank <= DIM / 2 for rank in ranks) / max(len(ranks), 1)
    checks = (
        Check("stationary covariances found, share of the draws", len(ranks) / config.trials, low=0.2),
        Check("share of those found with rank ≤ d/2 (a frequency, not a proof)", low, low=0.95),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    ranks, wrong = _ranks(key, config, rotation=False), _ranks(key, config, rotation=True)
    x = tuple(float(r) for r in range(DIM + 1))
    count = lambda found: tuple(float(found.count(r)) for r in range(DIM + 1))  # noqa: E731
    figure = Figure(
        "Open: ranks for random matrices",
        "rank",
        "how many were found",
        (
            Series("K, Q, V random", x, count(ranks), "bars"),
            Series("control: A = I and V a rotation by 90°", x, count(wrong), "bars"),
        ),
        xticks=tuple(str(r) for r in range(DIM + 1)),
        caption=f"d = {DIM}; solutions of VΣAΣ + ΣAᵀΣVᵀ = 0 of trace 1 from {config.trials} random starts each.",
    )
    return _outcome(ranks, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_ranks(key, config, rotation=True), config)


claim = Claim(
    name="castin-2025-random-rank",
    title="Open: ranks of stationary covariances for random matrices",
    statement=(
        "Conjecture, not a theorem: for almost all K, Q and V, N(0, Σ) is stationary, VΣAΣ + ΣAᵀΣVᵀ = 0, only if "
        "rank Σ ≤ d/2. Reported is how often this was so among random draws. It is not so for all: A = I and a "
        "rotation V leave every Σ alone that commutes with V."
    ),
    hypotheses=("open for V ≠ I; what is checked is a frequency", "K, Q, V Gaussian, d = 4", "one softmax head"),
    reference="castin2025",
    run=_run,
    control=_control,
    control_statement="A = I and V a rotation by 90° in two planes, where stationary covariances have full rank.",
    quick=Config(),
    full=Config(trials=400),
)
