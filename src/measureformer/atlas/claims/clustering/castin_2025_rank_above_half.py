"""Refuted: for V ≠ I, Gaussians of full rank may tend to a stationary one of rank 3 in dimension 4. In integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_exact import characteristic, hurwitz_minors, linearised, speed
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once

Integers = tuple[tuple[int, ...], ...]

A: Integers = ((1, 0, 0, 0), (0, 1, 0, 0), (0, -1, 0, 1), (0, 2, 2, 1))
V: Integers = ((0, 0, 1, 0), (1, 0, 0, 2), (0, 0, 0, 1), (0, -2, -2, -1))
FLIPPED: Integers = ((0, 0, 1, 0), (1, 0, 0, 2), (0, 0, 0, 1), (0, -2, -2, 1))
"""V with the other sign in its last entry: Σ is as stationary as before."""
COV: Integers = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 0))
EYE: Integers = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
PLANE: dict[str, Integers] = {"A": ((-1, -1), (1, 0)), "V": ((1, 1), (0, 1)), "cov": ((1, 0), (0, 1))}
STEP = 0.6
"""Time step times the norm of VΣA."""
ZERO = 1e-7
"""At trace 3. The slowest rate is 0.080, of a root of the characteristic polynomial, and the time is 300."""


@dataclass(frozen=True)
class Config:
    starts: int = 6
    steps: int = 1500


def _matrices(variant: str) -> tuple[Integers, Integers, Integers]:
    if variant == "plane":
        return PLANE["A"], PLANE["V"], PLANE["cov"]
    return A, {"identity": EYE, "sign": FLIPPED}.get(variant, V), COV


def _rate(cov: np.ndarray, A: np.ndarray, V: np.ndarray) -> np.ndarray:
    moved = V @ cov @ A @ cov
    return moved + moved.mT


@once
def _flow(key: Key, config: Config, variant: str, perturbed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times and eigenvalues of covariances that start with full rank near Σ, kept at trace 3; and ‖F‖ at the end.

    If `perturbed`, each has matrices A and V of its own, which differ from the integer ones by 5e-4 per entry.
    """
    rng = generator(key)
    A, V, cov = (np.array(M, float) for M in _matrices(variant))
    d = len(cov)
    noise = rng.normal(size=(2, config.starts, d, d)) * (5e-4 if perturbed else 0)
    A, V, G = A + noise[0], V + noise[1], rng.normal(size=(config.starts, d, d))
    cov, t, times, kept = cov + 0.02 * G @ G.mT / d, np.zeros(config.starts), [], []
    for step in range(config.steps):
        # F is homogeneous: Σ at another scale moves in the same way, at another speed
        cov = cov * (3 / np.trace(cov, axis1=1, axis2=2))[:, None, None]
        if (step % 2 == 0 and step < 100) or step == config.steps - 1:
            times.append(t)
            kept.append(np.linalg.eigvalsh(cov))
        h = STEP / np.linalg.norm(V @ cov @ A, axis=(1, 2))[:, None, None]
        t = t + h[:, 0, 0]
        k1 = _rate(cov, A, V)
        k2 = _rate(cov + h / 2 * k1, A, V)
        k3 = _rate(cov + h / 2 * k2, A, V)
        cov = cov + h / 6 * (k1 + 2 * k2 + 2 * k3 + _rate(cov + h * k3, A, V))
    return np.array(times), np.array(kept), np.abs(_rate(cov, A, V)).max(axis=(1, 2))


def _share(key: Key, config: Config, variant: str, perturbed: bool) -> float:
    """Of the starts, those that end stationary with rank d/2 + 1."""
    _, values, speeds = _flow(key, config, variant, perturbed)
    ranks = (values[-1] > ZERO).sum(axis=1)
    return float(np.mean((ranks == values.shape[2] // 2 + 1) & (speeds < ZERO)))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    matrices = _matrices(variant)
    moving = sum(entry != 0 for row in speed(*matrices) for entry in row)
    minors = hurwitz_minors(characteristic(linearised(*matrices))[1:])
    wrong = sum(minor <= 0 for minor in minors)
    exact, near = (_share(key, config, variant, perturbed) for perturbed in (False, True))
    checks = (
        Check("entries of F(Σ) that are not 0, in integers", moving, high=0, rejected_by="identity"),
        Check("Hurwitz minors that are not positive, in integers", wrong, high=0, rejected_by="sign"),
        Check("share of limits that are stationary of rank d/2 + 1", exact, low=1, rejected_by=("identity", "sign")),
        Check("the same with perturbed A and V", near, low=1, rejected_by=("identity", "sign", "plane")),
    )
    return Outcome(checks, _figure(*_flow(key, config, variant, False)[:2]) if variant == "claim" else None)


def _figure(times: np.ndarray, values: np.ndarray) -> Figure:
    t = times[:-1, 0]
    seen = np.maximum(values[: len(t), 0], 1e-16)
    theory = np.maximum(seen[0, 0] * np.exp(-4 * t), 1e-16)
    return Figure(
        "From full rank to rank 3",
        "time",
        "eigenvalues of the covariance, trace 3",
        (
            *(Series(f"eigenvalue {4 - i}", t, seen[:, i], role="measured") for i in range(4)),
            Series("e^{−4t}, the rate at diag(1, 1, 1, 0)", t, theory, "dashed", role="theory"),
        ),
        yscale="log",
        caption="d = 4, one start of full rank near diag(1, 1, 1, 0): three plateaus, and one exponential decay.",
    )


claim = Claim(
    name="castin-2025-rank-above-half",
    title="An attractor whose rank exceeds d/2",
    kind="theorem",
    statement=(
        "There are nonsingular integer matrices A and V in dimension 4 for which diag(1, 1, 1, 0) is a stationary "
        "covariance and all eigenvalues of the linearised flow but the 0 along itself have negative real part. So an "
        "open set of covariances of full rank tends to stationary ones of rank 3 > d/2, and so it does for all (A, V) "
        "close by. That stable stationary covariances have rank at most d/2 is false for V ≠ I."
    ),
    hypotheses=(
        "one softmax head, A = KᵀQ, Gaussian tokens of mean 0",
        "stationarity and the minors are exact; limits are computed in floating point",
    ),
    reference="castin2025",
    measure=measure,
    controls={
        "identity": "The same A with V = I, where the rank of a stationary covariance is at most d/2.",
        "sign": "The last entry of V is +1 and not −1: Σ is still stationary, and unstable.",
        "plane": "In dimension 2 with limits of full rank, which exist for special (A, V) only.",
    },
    quick=Config(),
    full=Config(starts=200, steps=2000),
)
