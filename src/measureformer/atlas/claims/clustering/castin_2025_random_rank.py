"""Open: stationary covariances for random K, Q, V. What is known is V = I; here is what random matrices show.

Ranks above d/2 do occur: by a count of equations a covariance of rank 3 in dimension 4 is an isolated stationary point
for an open set of matrices, because VΣAΣ restricted to its range must be antisymmetric and 3 × 3, so that one of the
conditions, a vanishing determinant, is met for free. All that were found are unstable, so flows do not end there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once

DIM = 4
ZERO = 1e-3
"""Eigenvalues below this count as zero: near a singular solution the equations are flat, and are met before it is."""
ITERATIONS = 120


@dataclass(frozen=True)
class Config:
    trials: int = 150


def _residuals(L: np.ndarray, A: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """VΣAΣ + ΣAᵀΣVᵀ on and above its diagonal and tr Σ − 1, for Σ = LLᵀ and many at once; and the derivatives."""
    rows = np.triu_indices(DIM)
    cov, basis = L @ L.mT, np.eye(DIM * DIM).reshape(-1, DIM, DIM)
    half = basis @ L[:, None].mT
    turned = half + half.mT
    A, V, wide = A[:, None], V[:, None], cov[:, None]
    moved = (V @ wide @ A @ wide)[:, 0]
    slopes = V @ (turned @ A @ wide + wide @ A @ turned)
    values = np.concatenate([(moved + moved.mT)[:, *rows], np.trace(cov, axis1=1, axis2=2)[:, None] - 1], axis=1)
    traces = np.trace(turned, axis1=2, axis2=3)
    return values, np.concatenate([(slopes + slopes.mT)[..., *rows], traces[..., None]], axis=2).mT


def _stationary(start: np.ndarray, A: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of trace 1 that do not move, from many starts at once by Levenberg's method, and which were found."""
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
    return L @ L.mT, np.abs(values).max(axis=1) < 1e-12


def _growth(cov: np.ndarray, A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """The largest real part of an eigenvalue of the linearised flow of covariances, for each of (r, d, d)."""
    rows = np.triu_indices(DIM)
    basis = np.zeros((len(rows[0]), DIM, DIM))
    basis[np.arange(len(basis)), *rows] = basis[np.arange(len(basis)), *rows[::-1]] = 1
    cov, A, V = cov[:, None], A[:, None], V[:, None]
    moved = V @ (basis @ A @ cov + cov @ A @ basis)
    return np.linalg.eigvals((moved + moved.mT)[..., *rows]).real.max(axis=1)


@once
def _ranks(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Of all stationary covariances that were found, and of those where no perturbation grows: flows may end there."""
    rng = generator(key)
    K, Q, V = rng.normal(size=(3, config.trials, DIM, DIM)) / np.sqrt(DIM)
    A = K.mT @ Q
    if variant == "rotation":
        # VΣAΣ = VΣ² is antisymmetric for every Σ that commutes with V
        A, V = np.eye(DIM), np.kron(np.eye(DIM // 2), [[0.0, -1.0], [1.0, 0.0]])
        A, V = (np.broadcast_to(M, (config.trials, DIM, DIM)) for M in (A, V))
    elif variant == "definite":
        A, V = K.mT @ K, np.broadcast_to(np.eye(DIM), V.shape)
    cov, good = _stationary(rng.normal(size=(config.trials, DIM, DIM)) / DIM, A, V)
    ranks = (np.linalg.eigvalsh(cov) > ZERO).sum(axis=1)
    return ranks[good], ranks[good & (_growth(cov, A, V) < 1e-6)]


def measure(key: Key, config: Config, variant: str) -> Outcome:
    ranks, limits = _ranks(key, config, variant)
    share, low = len(ranks) / config.trials, (limits <= DIM / 2).sum() / max(len(limits), 1)
    checks = (
        Check("stationary covariances found, share of the draws", share, low=0.1, rejected_by="definite"),
        Check("how many of them have no growing direction", len(limits), low=1.0, rejected_by="definite"),
        Check("share of those with rank ≤ d/2 (a frequency, not a proof)", low, low=0.95, rejected_by="rotation"),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    (ranks, limits), (_, wrong) = (_ranks(key, config, variant) for variant in ("claim", "rotation"))
    x = np.arange(DIM + 1)
    count = lambda found: np.bincount(found, minlength=DIM + 1)  # noqa: E731
    return Figure(
        "Open: ranks for random matrices",
        "rank",
        "how many were found",
        (
            Series("K, Q, V random: all stationary covariances", x, count(ranks), "bars", role="measured"),
            Series("those without a growing direction", x, count(limits), "bars", role="measured"),
            Series("control: A = I and V a rotation by 90°", x, count(wrong), "bars", role="control"),
        ),
        xticks=tuple(map(str, x)),
        caption=f"d = {DIM}; solutions of VΣAΣ + ΣAᵀΣVᵀ = 0 of trace 1 from {config.trials} random starts each.",
    )


claim = Claim(
    name="castin-2025-random-rank",
    title="Open: ranks of stationary covariances for random matrices",
    statement=(
        "Open, not a theorem: for almost all K, Q and V, if VΣAΣ + ΣAᵀΣVᵀ = 0 and no perturbation of Σ grows, then "
        "rank Σ ≤ d/2. Reported is how often this was so among random draws. Unstable stationary covariances of larger "
        "rank occur, and for some matrices neutral ones: A = I and a rotation V leave every Σ alone that commutes "
        "with V."
    ),
    hypotheses=("open for V ≠ I; what is checked is a frequency", "K, Q, V Gaussian, d = 4", "one softmax head"),
    reference="castin2025",
    measure=measure,
    controls={
        "rotation": "A = I and V a rotation by 90° in two planes, where stationary covariances have full rank.",
        "definite": "V = I and Q = K, where A is positive definite and only Σ = 0 is stationary.",
    },
    quick=Config(),
    full=Config(trials=2000),
)
