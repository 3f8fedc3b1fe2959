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
ITERATIONS = 400


@dataclass(frozen=True)
class Config:
    trials: int = 40


def _residuals(L: np.ndarray, A: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """VΣAΣ + ΣAᵀΣVᵀ above its diagonal and tr Σ − 1, for Σ = LLᵀ and many (r, d, d) at once; and the derivatives."""
    rows = np.triu_indices(DIM)
    cov, basis = L @ L.mT, np.eye(DIM * DIM).reshape(-1, DIM, DIM)
    half = basis @ L[:, None].mT
    turned = half + half.mT
    L, A, V, wide = cov, A[:, None], V[:, None], cov[:, None]
    moved = (V @ wide @ A @ wide)[:, 0]
    slopes = V @ (turned @ A @ wide + wide @ A @ turned)
    values = np.concatenate([(moved + moved.mT)[:, *rows], np.trace(L, axis1=1, axis2=2)[:, None] - 1], axis=1)
    traces = np.trace(turned, axis1=2, axis2=3)
    return values, np.concatenate([(slopes + slopes.mT)[..., *rows], traces[..., None]], axis=2).mT


def _stationary(start: np.ndarray, A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Covariances of trace 1 that do not move, from many starts at once by Levenberg's method; those that were found."""
    L, damping = start, np.full(len(start), 1e-2)
    values, slopes = _residuals(L, A, V)
    for _ in range(ITERATIONS):
        square = slopes.mT @ slopes + damping[:, None, None] * np.eye(DIM * DIM)
        tried = L - np.linalg.solve(square, slopes.mT @ values[:, :, None]).reshape(L.shape)
        new_values, new_slopes = _residuals(tried, A, V)
        better = np.sum(new_values**2, axis=1) < np.sum(values**2, axis=1)
        pick = lambda new, old, b=better: np.where(b.reshape(-1, *[1] * (old.ndim - 1)), new, old)  # noqa: E731
        L, values, slopes = pick(tried, L), pick(new_values, values), pick(new_slopes, slopes)
        damping = np.clip(np.where(better, 0.3 * damping, 4 * damping), 1e-12, 1e6)
    return (L @ L.mT)[np.abs(values).max(axis=1) < 1e-8]


def _ranks(key: Any, config: Config, *, rotation: bool) -> list[int]:
    rng = generator(key)
    K, Q, V = rng.normal(size=(3, config.trials, DIM, DIM)) / np.sqrt(DIM)
    A = K.mT @ Q
    if rotation:
        # VΣAΣ = VΣ² is antisymmetric for every Σ that commutes with V
        A, V = np.eye(DIM), np.kron(np.eye(DIM // 2), [[0.0, -1.0], [1.0, 0.0]])
        A, V = (np.broadcast_to(M, (config.trials, DIM, DIM)) for M in (A, V))
    found = _stationary(rng.normal(size=(config.trials, DIM, DIM)) / DIM, A, V)
    return (np.linalg.eigvalsh(found) > ZERO).sum(axis=1).tolist()


def _outcome(ranks: list[int], config: Config, figure: Figure | None = None) -> Outcome:
    low = sum(rank <= DIM / 2 for rank in ranks) / max(len(ranks), 1)
    checks = (
        Check("stationary covariances found, share of the draws", len(ranks) / config.trials, low=0.1),
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
    full=Config(trials=2000),
)
