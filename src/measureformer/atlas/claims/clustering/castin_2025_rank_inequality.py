"""What is true for V ≠ I: 2·rank Σ ≤ d + rank ΣAΣ, and rank ΣAΣ is even. Singular attractors have rank d/2 or more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.clustering.stationary import StationaryType, stationary_type

TYPES = ((2, 0, 1), (3, 0, 1), (4, 0, 2), (4, 1, 1), (5, 1, 1), (6, 1, 2), (6, 2, 1), (7, 2, 1), (8, 1, 3), (8, 3, 1))
"""Dimension, half the rank of ΣAΣ, and the dimension of its kernel in the range of Σ."""
Pair = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Config:
    draws: int = 3


def _example(rng: np.random.Generator, d: int, m: int, k: int, variant: str) -> Pair:
    """A, V and a stationary Σ of rank 2m + k with rank ΣAΣ = 2m: diag(1, …, 1, 0, …, 0), in random coordinates."""
    r = 2 * m + k
    left = np.linalg.qr(rng.normal(size=(r, r)))[0]
    kept, lost = left[:, : 2 * m], left[:, 2 * m :]
    turn = rng.normal(size=(2 * m, 2 * m))
    A, V = rng.normal(size=(2, d, d))
    A[:r, :r] = 0
    A[:r, : 2 * m] = kept * rng.uniform(0.5, 2, size=2 * m)
    # VB is antisymmetric: chosen on the range of B = (A_EE), free on its complement
    V[:r, :r] = (
        np.pad(turn - turn.T, ((0, k), (0, 0))) @ np.linalg.pinv(A[:r, : 2 * m]) + rng.normal(size=(r, k)) @ lost.T
    )
    V[r:, :r] = rng.normal(size=(d - r, k)) @ lost.T
    cov = np.diag([1.0] * r + [0.0] * (d - r))
    if variant == "singular-A":
        # V = I, and A vanishes on the range of Σ but for one plane (1, −1)
        A = np.diag([1.0, -1.0] + [0.0] * (d - 2))
        V, cov = np.eye(d), np.eye(d)
        cov[:2, :2] = 0.5
    elif variant == "singular-V":
        # V vanishes on the line of Σ, and A does not
        V[:, 0], A[0, 0], cov = 0, 1, np.diag([1.0] + [0.0] * (d - 1))
    G = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.5, 2, size=d)
    inverse = np.linalg.inv(G)
    return inverse.T @ A @ inverse, G @ V @ inverse, G @ cov @ G.T


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng, found = generator(key), list[tuple[int, StationaryType]]()
    for d, m, k in TYPES:
        for _ in range(config.draws):
            A, V, cov = _example(rng, d, m, k, variant)
            found.append((d, stationary_type(A, V, (cov + cov.T) / 2)))
    term = [0 if variant == "without-the-term" else kind.inner_rank for _, kind in found]
    slack = [2 * kind.rank - d - inner for (d, kind), inner in zip(found, term, strict=True)]
    odd = sum(kind.inner_rank % 2 for _, kind in found)
    loose = sum(room != 0 for room, (_, kind) in zip(slack, found, strict=True) if np.abs(kind.outer).min() > 1e-6)
    checks = (
        Check(
            "largest 2 rank Σ − d − rank ΣAΣ", max(slack), low=0, high=0, rejected_by=("without-the-term", "singular-A")
        ),
        Check("odd ranks of ΣAΣ", odd, high=0, rejected_by="singular-V"),
        Check(
            "strict inequalities where VΣA is nonsingular modulo range", loose, high=0, rejected_by="without-the-term"
        ),
    )
    return Outcome(checks, _figure(found) if variant == "claim" else None)


def _figure(found: list[tuple[int, StationaryType]]) -> Figure:
    x = np.array([d for d, _ in found])
    place = x + 0.08 * np.array([kind.inner_rank for _, kind in found])
    return Figure(
        "Ranks of stationary covariances",
        "dimension d (shifted to the right by rank ΣAΣ)",
        "rank",
        (
            Series("rank Σ", place, [kind.rank for _, kind in found], "points", role="measured"),
            Series("(d + rank ΣAΣ)/2", place, [(d + k.inner_rank) / 2 for d, k in found], "points", role="theory"),
            Series("control: d/2", (2, 8), (1, 4), role="control"),
        ),
        caption="Stationary covariances that were built, with A and V nonsingular.",
    )


claim = Claim(
    name="castin-2025-rank-inequality",
    title="The rank of a stationary covariance, for any V",
    kind="theorem",
    statement=(
        "For nonsingular A and V: if VΣAΣ + ΣAᵀΣVᵀ = 0, then rank ΣAΣ is even and 2·rank Σ ≤ d + rank ΣAΣ. Equality "
        "holds, so that rank Σ ≥ d/2, if VΣA is nonsingular on ℝᵈ modulo the range of Σ: in particular if Σ is "
        "singular and attracts exponentially."
    ),
    hypotheses=("one softmax head, A = KᵀQ, A and V nonsingular", "tested on stationary covariances that were built"),
    reference="castin2025",
    measure=measure,
    controls={
        "without-the-term": "The inequality without rank ΣAΣ, as for V = I: rank Σ ≤ d/2.",
        "singular-A": "V = I, and A has rank 2.",
        "singular-V": "V vanishes on the range of Σ, of dimension 1.",
    },
    quick=Config(),
    full=Config(draws=50),
)
