"""Covariances that attention leaves alone have low rank: at most d/2 when A is nonsingular."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once

DIM = 4
SIGNS = {
    "claim": ((1, 1, -1, -1), (1, 1, 1, -1)),
    "kernel": ((1, -1, 0, 0), (1, -1, 0, 0)),
    "definite": ((1, 1, 1, 1), (1, 1, 1, 1)),
}
"""Signs of the eigenvalues of A, in turn."""


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

    # where there is a solution at most 75 evaluations were needed
    found = least_squares(residual, rng.normal(size=DIM * DIM), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=100)
    L = found.x.reshape(DIM, DIM)
    return L @ L.T if np.abs(found.fun).max() < 1e-9 else None


@once
def _ranks(key: Key, config: Config, variant: str) -> list[int]:
    rng, ranks = generator(key), list[int]()
    for i in range(config.trials):
        basis = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
        signs = np.array(SIGNS[variant][i % 2], float)
        A = (basis * signs * rng.uniform(0.5, 2, size=DIM)) @ basis.T
        cov = _stationary(rng, A)
        if cov is not None:
            # squares of roots that solve the equations to 1e-9
            ranks.append(int((np.linalg.eigvalsh(cov) > 1e-6).sum()))
    return ranks


def measure(key: Key, config: Config, variant: str) -> Outcome:
    ranks = _ranks(key, config, variant)
    share, most = len(ranks) / config.trials, max(ranks, default=0)
    checks = (
        Check("stationary covariances found, share of the starts", share, low=0.5, rejected_by="definite"),
        Check("largest rank", most, low=1.0, high=DIM / 2, rejected_by="kernel"),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    x = np.arange(DIM + 1)
    ranks, wrong = (np.bincount(_ranks(key, config, variant), minlength=DIM + 1) for variant in ("claim", "kernel"))
    return Figure(
        "Ranks of stationary covariances",
        "rank",
        "how many were found",
        (
            Series("A nonsingular", x, ranks, "bars", role="measured"),
            Series("control: A with a kernel of dimension 2", x, wrong, "bars", role="control"),
        ),
        xticks=tuple(map(str, x)),
        caption=f"d = {DIM}, V = I, A symmetric of signature (2,2) or (3,1); solutions of ΣAΣ = 0 from random starts.",
    )


claim = Claim(
    name="castin-2025-stationary-rank",
    title="Stationary covariances have low rank",
    statement=(
        "For V = I and every symmetric nonsingular A: if N(0, Σ) is stationary, that is ΣAΣ = 0, then rank Σ ≤ d/2. "
        "For singular A the bound is dim ker A + min(n₊, n₋)."
    ),
    hypotheses=("V = I, one softmax head", "A symmetric and nonsingular; for general K, Q, V this is a conjecture"),
    reference="castin2025",
    measure=measure,
    controls={
        "kernel": "A of signature (1,1) with a kernel of dimension d − 2.",
        "definite": "A positive definite, where only Σ = 0 is stationary.",
    },
    quick=Config(),
    full=Config(trials=200),
)
