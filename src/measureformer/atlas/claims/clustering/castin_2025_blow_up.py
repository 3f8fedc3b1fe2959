"""With V = I the covariance is known for all times, and so is the time at which it explodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import castin25_blow_up, castin25_covariance, flow
from measureformer.maps import Attention
from measureformer.measures import Gaussian
from measureformer.numerics.types import Key

DIM = 3


@dataclass(frozen=True)
class Config:
    trials: int = 2


def _draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A with an eigenvalue of A + Aᵀ that is positive, and a covariance."""
    A, root = rng.normal(size=(2, DIM, DIM)) / np.sqrt(DIM)
    return A + 0.5 * np.eye(DIM), root @ root.T + 0.2 * np.eye(DIM)


def _head(A: np.ndarray) -> Attention:
    return Attention.head(A, np.eye(DIM), np.eye(DIM))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    factor = 0.5 if variant == "half-of-s" else 1.0
    times, covs = [0.0], [0.0]
    for _ in range(config.trials):
        A, cov = _draw(rng)
        A = -A @ A.T if variant == "no-positive-eigenvalue" else A
        end = castin25_blow_up(A, cov)
        if end is None:
            continue
        traj = flow(_head(A), Gaussian(np.ones(DIM), cov), [0, 0.9 * end, 2 * end])
        found = np.inf if traj.blow_up is None else traj.blow_up
        times.append(abs(found * factor / end - 1))
        at = castin25_covariance(factor * A, cov, 0.9 * end)
        covs.append(np.abs(np.asarray(traj.covs[1]) - at).max() / np.abs(at).max())
    share, half = (len(times) - 1) / config.trials, "half-of-s"
    checks = (
        Check("explosions, share of the trials", share, low=0.5, rejected_by="no-positive-eigenvalue"),
        Check("relative error of the time", max(times), high=1e-7, rejected_by=half),
        Check("relative error of the covariance at 0.9 of it", max(covs), high=1e-6, rejected_by=half),
    )
    return Outcome(checks, _figure(key) if variant == "claim" else None)


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
    statement=(
        "For V = I, every A and every Σ₀, with S = A + Aᵀ: Σ(t) = (Σ₀⁻¹ − tS)⁻¹, until the time 1/λ_max(Σ₀^½ S Σ₀^½) "
        "if that is positive, and for ever otherwise."
    ),
    hypotheses=("V = I, one softmax head", "Σ₀ nonsingular"),
    reference="castin2025",
    measure=measure,
    controls={
        "half-of-s": "The same formulas with S = (A + Aᵀ)/2.",
        "no-positive-eigenvalue": "−AAᵀ in place of A, so that S has no positive eigenvalue and nothing explodes.",
    },
    quick=Config(),
    full=Config(trials=60),
)
