"""Birds that align their velocities: a closed form for constant alignment, flocking if alignment decays slowly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import CuckerSmale, flow
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 16
    dim: int = 2
    beta: float = 0.25
    too_large: float = 0.7
    time: float = 20.0
    flocked: float = 1e-3


def _flight(key: Key, config: Config, beta: float, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the birds (x, v) at these times."""
    import diffrax

    rng = generator(key)
    birds = np.concatenate(
        [2 * rng.normal(size=(config.n, config.dim)), rng.normal(size=(config.n, config.dim))], axis=1
    )
    masses = rng.uniform(0.2, 1, config.n)
    mu = Discrete.weighted(birds, masses) if variant == "unequal-masses" else Discrete.uniform(birds)
    kappa = -1.0 if variant == "repelling-velocities" else 1.0
    times = np.linspace(0, config.time, 17)
    traj = flow(CuckerSmale(kappa, 1.0, beta), mu, times, steps=diffrax.PIDController(rtol=1e-9, atol=1e-10))
    return times, np.asarray(traj.points)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    times, constant = _flight(key, config, 0.0, variant)
    d, (start, at) = config.dim, (constant[0], times[:, None, None])
    mean = start[:, d:].mean(axis=0)
    rest = start[:, d:] - mean
    exact = np.concatenate([start[:, :d] + mean * at + (1 - np.exp(-at)) * rest, mean + np.exp(-at) * rest], axis=2)
    beta = config.too_large if variant == "fast-decay" else config.beta
    _, birds = _flight(key, config, beta, variant)
    variance = _variance(birds, d)
    drift = np.abs(birds[:, :, d:].mean(axis=1) - mean).max()
    checks = (
        Check(
            "constant alignment against its closed form",
            np.abs(constant - exact).max(),
            high=1e-6,
            rejected_by=("unequal-masses", "repelling-velocities"),
        ),
        Check("drift of the mean velocity", drift, high=1e-9, rejected_by="unequal-masses"),
        Check(
            "largest growth of the variance of velocities",
            np.diff(variance).max(),
            high=1e-8,
            rejected_by="repelling-velocities",
        ),
        Check(
            "variance of velocities left at the end",
            variance[-1] / variance[0],
            high=config.flocked,
            rejected_by=("fast-decay", "repelling-velocities"),
        ),
    )
    if variant != "claim":
        return Outcome(checks)
    apart = _variance(_flight(key, config, config.too_large, variant)[1], d)
    figure = Figure(
        "Alignment of velocities",
        "time",
        "variance of velocities",
        (
            Series(f"β = {config.beta:g}", times, variance, "points", role="measured"),
            Series(f"control: β = {config.too_large:g}", times, apart, "line", role="control"),
        ),
        yscale="log",
        caption=f"{config.n} birds, φ(r) = (1 + r²)^(−β).",
    )
    return Outcome(checks, figure)


def _variance(birds: np.ndarray, dim: int) -> np.ndarray:
    return birds[:, :, dim:].var(axis=1).sum(axis=1)


claim = Claim(
    name="cucker-2007-flocking",
    title="Velocities align if alignment decays slowly",
    kind="theorem",
    statement=(
        "x' = v, v' = ∫ φ(|x−y|)(w−v) dμ(y,w) with φ(r) = κ/(σ²+r²)^β: the mean velocity is conserved, the variance of "
        "velocities never grows and, if β ≤ 1/2, tends to 0 for every start. For φ ≡ κ: "
        "v_i(t) = v̄ + e^{−κt}(v_i(0) − v̄)."
    ),
    hypotheses=("β ≤ 1/2; tested at 1/4", "finitely many birds"),
    reference="cucker2007",
    measure=measure,
    controls={
        "fast-decay": "β = 0.7, above ½: birds that start apart have not aligned by the end.",
        "unequal-masses": "Birds of unequal masses, and their mean velocity not weighted by them.",
        "repelling-velocities": "The sign of the alignment: v − w in place of w − v.",
    },
    quick=Config(),
    full=Config(n=400, dim=3, time=40.0),
)
