"""With V = I the covariance is known for all times, and so is the time at which it explodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import castin25_blow_up, castin25_covariance, flow
from measureformer.maps import Attention
from measureformer.measures import Gaussian

DIM = 3


@dataclass(frozen=True)
class Config:
    trials: int = 2
    late: float = 1e3


def _draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A such that A + Aᵀ has the largest eigenvalue 1, and a covariance."""
    A, root = rng.normal(size=(2, DIM, DIM)) / np.sqrt(DIM)
    shift = (1 - np.linalg.eigvalsh(A + A.T)[-1]) / 2
    return A + shift * np.eye(DIM), root @ root.T + 0.2 * np.eye(DIM)


def _neutral(rng: np.random.Generator, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """A such that A + Aᵀ has the largest eigenvalue `slope`, simple, and is negative otherwise; and a covariance."""
    basis, root = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0], rng.normal(size=(DIM, DIM)) / np.sqrt(DIM)
    values, turn = np.append(-rng.uniform(0.2, 2, size=DIM - 1), slope) / 2, rng.normal(size=(DIM, DIM))
    # without the antisymmetric part the flow would be evaluated by the formula that is tested
    return (basis * values) @ basis.T + 0.1 * (turn - turn.T), root @ root.T + 0.2 * np.eye(DIM)


def _head(A: np.ndarray) -> Attention:
    return Attention.head(A, np.eye(DIM), np.eye(DIM))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    factor, slope = 0.5 if variant == "half-of-s" else 1.0, 2e-2 if variant == "barely-positive" else 0.0
    times, covs, late, ended = list[float](), list[float](), list[float](), 0
    for _ in range(config.trials):
        A, cov = _draw(rng)
        end = castin25_blow_up(A, cov) or np.inf
        traj = flow(_head(A), Gaussian(np.ones(DIM), cov), [0, 0.9 * end, 2 * end])
        times.append(abs((traj.blow_up or np.inf) * factor / end - 1))
        covs.append(_apart(np.asarray(traj.covs[1]), castin25_covariance(factor * A, cov, 0.9 * end)))
        A, cov = _neutral(rng, slope)
        # the mean, if it is not 0, grows like e^t
        traj = flow(_head(A), Gaussian(np.zeros(DIM), cov), [0, config.late / 2, config.late])
        ended += traj.blow_up is not None
        if traj.blow_up is None:
            late.append(_apart(np.asarray(traj.covs[2]), castin25_covariance(factor * A, cov, config.late)))
    half = "half-of-s"
    checks = (
        Check("relative error of the time", max(times), high=1e-7, rejected_by=half),
        Check("relative error of the covariance at 0.9 of it", max(covs), high=1e-6, rejected_by=half),
        Check(f"λ_max(S) = 0: explosions before {config.late:g}", ended, high=0, rejected_by="barely-positive"),
        Check("λ_max(S) = 0: relative error of the covariance then", max(late, default=0), high=1e-6, rejected_by=half),
    )
    return Outcome(checks, _figure(key) if variant == "claim" else None)


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference after scaling each matrix by the inverse root of the second: small eigenvalues count."""
    values, vectors = np.linalg.eigh(expected)
    root = vectors / np.sqrt(values)
    return float(np.abs(root.T @ found @ root - np.eye(len(values))).max())


def _figure(key: Key) -> Figure:
    A, cov = _draw(generator(key))
    end = castin25_blow_up(A, cov) or 1.0
    shares = np.linspace(0, 0.99, 40)
    # few times, so that the program of the trials is compiled for this as well
    traj = flow(_head(A), Gaussian(np.ones(DIM), cov), end * np.append(shares[::3], 2))
    exact = [np.trace(castin25_covariance(A, cov, s * end)) for s in shares]
    found = np.trace(np.asarray(traj.covs), axis1=1, axis2=2)
    return Figure(
        "A covariance explodes",
        "depth over the predicted time",
        "trace of the covariance",
        (
            Series("trace of (Σ₀⁻¹ − tS)⁻¹", shares, exact, "line", role="theory"),
            Series("integrated", shares[::3], found, "points", role="measured"),
        ),
        yscale="log",
        caption=f"d = {DIM}, random A and Σ₀, V = I. Found at {traj.blow_up:.9g}, predicted {end:.9g}.",
    )


claim = Claim(
    name="castin-2025-blow-up",
    title="When a Gaussian explodes",
    kind="theorem",
    statement=(
        "For V = I, every A and every Σ₀, with S = A + Aᵀ: Σ(t) = (Σ₀⁻¹ − tS)⁻¹, until the time 1/λ_max(Σ₀^½ S Σ₀^½) "
        "if that is positive, and for ever otherwise, in particular at λ_max(S) = 0."
    ),
    hypotheses=("V = I, one softmax head", "Σ₀ nonsingular"),
    reference="castin2025",
    measure=measure,
    controls={
        "half-of-s": "The same formulas with S = (A + Aᵀ)/2.",
        "barely-positive": "The largest eigenvalue of S is 0.02 where it was 0.",
    },
    quick=Config(),
    full=Config(trials=60),
)
