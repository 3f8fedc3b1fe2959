"""Covariances that attention with V = I leaves alone: the largest rank, attained, for every signature of A + Aᵀ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.clustering.stationary import castin25_stationary_rank


@dataclass(frozen=True)
class Config:
    dims: int = 4
    """Dimensions 2, 3, … up to this one."""
    starts: int = 2
    iterations: int = 25


def _isotropic(zeros: int, values: np.ndarray, columns: int) -> np.ndarray:
    """Columns L with LᵀSL = 0 for S = diag(0, …, 0, values), as many as there are; then one more from what is left."""
    d = zeros + len(values)
    plus, minus = np.flatnonzero(values > 0) + zeros, np.flatnonzero(values < 0) + zeros
    made, eye = [np.eye(d)[i] for i in range(zeros)], np.eye(d)
    values = np.append(np.zeros(zeros), values)
    for i, j in zip(plus, minus, strict=False):
        made.append(np.sqrt(-values[j]) * eye[i] + np.sqrt(values[i]) * eye[j])
    rest = eye[plus[len(minus) :].tolist() + minus[len(plus) :].tolist() + minus[: len(plus)].tolist()]
    return np.array([*made, *rest, *eye])[:columns].T


def _search(rng: np.random.Generator, S: np.ndarray, columns: int, config: Config) -> float:
    """The least ‖QᵀSQ‖₂ that Levenberg's method finds, over orthonormal Q with so many columns."""
    d, rows, best = len(S), np.triu_indices(columns), np.inf
    basis = np.eye(d * columns).reshape(-1, d, columns)
    for _ in range(config.starts):
        Q, damping = np.linalg.qr(rng.normal(size=(d, columns)))[0], 1e-2
        error = Q.T @ S @ Q
        for _ in range(config.iterations):
            half = basis.mT @ S @ Q
            slopes = (half + half.mT)[:, *rows]
            step = np.linalg.solve(slopes @ slopes.T + damping * np.eye(len(slopes)), slopes @ error[rows])
            tried = np.linalg.qr(Q - step.reshape(d, columns))[0]
            new = tried.T @ S @ tried
            better = np.sum(new[rows] ** 2) < np.sum(error[rows] ** 2)
            Q, error, damping = (tried, new, max(damping / 3, 1e-12)) if better else (Q, error, damping * 4)
        best = min(best, float(np.linalg.norm(error, 2)))
    return best


@once
def _found(key: Key, config: Config, variant: str) -> list[tuple[int, int, int, float, float]]:
    """For each signature: d, its bound, the rank that was built, how far it is from stationary, and the search."""
    rng, found = generator(key), list[tuple[int, int, int, float, float]]()
    for d in range(2, config.dims + 1):
        for zeros, plus in ((z, p) for z in range(d) for p in range(d - z + 1)):
            values = rng.uniform(0.5, 2, size=d - zeros) * np.array([1] * plus + [-1] * (d - zeros - plus))
            S = np.diag(np.append(np.zeros(zeros), values))
            bound = d // 2 if variant == "half" else castin25_stationary_rank(S)
            L = _isotropic(zeros, values, bound + (variant == "one-more"))
            cov = L @ L.T
            G = np.linalg.qr(rng.normal(size=(d, d)))[0]
            least = _search(rng, G @ S @ G.T, bound + 1, config) / np.abs(values).min() if bound < d else 1.0
            found.append((d, bound, np.linalg.matrix_rank(cov), float(np.abs(cov @ S @ cov).max()), least))
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    _, bounds, ranks, moved, least = map(np.array, zip(*_found(key, config, variant), strict=True))
    checks = (
        Check("largest |rank − bound| of what was built", np.abs(ranks - bounds).max(), high=0, rejected_by="one-more"),
        Check("largest entry of ΣSΣ of what was built", moved.max(), high=1e-12, rejected_by=("one-more", "half")),
        Check(
            "one dimension more: least ‖QᵀSQ‖ found, over the least |eigenvalue| ≠ 0",
            least.min(),
            low=1 - 1e-9,
            rejected_by="half",
        ),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    dims, bounds, *_, least = map(np.array, zip(*_found(key, config, "claim"), strict=True))
    wrong = np.array([row[-1] for row in _found(key, config, "half")])
    x = np.arange(len(dims))
    return Figure(
        "No room for one dimension more",
        "signature (n₀, n₊, n₋), in turn",
        "least ‖QᵀSQ‖ over the least |eigenvalue|",
        (
            Series("bound + 1 columns", x, least, "points", role="measured"),
            Series("1, below which it cannot be", (x[0], x[-1]), (1, 1), "dashed", role="theory"),
            Series("control: ⌊d/2⌋ + 1 columns", x, wrong, "points", role="control"),
        ),
        caption=f"V = I, all signatures in dimensions 2 to {dims.max()}; largest bound {bounds.max()}.",
    )


claim = Claim(
    name="castin-2025-stationary-rank",
    title="Stationary covariances have low rank",
    kind="theorem",
    statement=(
        "For V = I and S = A + Aᵀ: if N(0, Σ) is stationary, that is ΣSΣ = 0, then rank Σ ≤ dim ker S + min(n₊, n₋), "
        "and this rank is attained for every signature. On a range of one dimension more, with orthonormal basis Q, "
        "‖QᵀSQ‖₂ is at least the least nonzero |eigenvalue| of S. If S is nonsingular, the bound is at most d/2."
    ),
    hypotheses=("V = I, one softmax head", "signatures are all tested, eigenvalues between 1/2 and 2 are random"),
    reference="castin2025",
    measure=measure,
    controls={
        "half": "The bound ⌊d/2⌋ for every S, singular ones and definite ones included.",
        "one-more": "Rank one larger than the bound.",
    },
    quick=Config(),
    full=Config(dims=6, starts=20, iterations=60),
)
