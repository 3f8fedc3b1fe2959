"""Birds that align their velocities: a closed form for constant alignment, flocking if alignment decays slowly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import CuckerSmale, flow
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 16
    dim: int = 2
    beta: float = 0.25
    too_large: float = 3.0
    time: float = 20.0
    flocked: float = 1e-3


def _flight(key: Any, config: Config, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the birds (x, v) at these times."""
    rng = generator(key)
    birds = np.concatenate(
        [2 * rng.normal(size=(config.n, config.dim)), rng.normal(size=(config.n, config.dim))], axis=1
    )
    times = np.linspace(0, config.time, 17)
    traj = flow(CuckerSmale(1.0, 1.0, beta), Discrete.uniform(birds), times, rtol=1e-9, atol=1e-10)
    return times, np.asarray(traj.points)


def _variance(birds: np.ndarray, dim: int) -> np.ndarray:
    return birds[:, :, dim:].var(axis=1).sum(axis=1)


def _outcome(key: Any, config: Config, beta: float, figure: Figure | None = None) -> Outcome:
    times, constant = _flight(key, config, 0.0)
    d, (start, at) = config.dim, (constant[0], times[:, None, None])
    mean = start[:, d:].mean(axis=0)
    rest = start[:, d:] - mean
    exact = np.concatenate([start[:, :d] + mean * at + (1 - np.exp(-at)) * rest, mean + np.exp(-at) * rest], axis=2)
    _, birds = _flight(key, config, beta)
    variance = _variance(birds, d)
    drift = np.abs(birds[:, :, d:].mean(axis=1) - mean).max()
    checks = (
        Check("constant alignment against its closed form", float(np.abs(constant - exact).max()), high=1e-6),
        Check("drift of the mean velocity", float(drift), high=1e-9),
        Check("largest growth of the variance of velocities", float(np.diff(variance).max()), high=1e-8),
        Check("variance of velocities left at the end", float(variance[-1] / variance[0]), high=config.flocked),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    curves = {beta: _variance(_flight(key, config, beta)[1], config.dim) for beta in (config.beta, config.too_large)}
    times = tuple(map(float, np.linspace(0, config.time, 17)))
    figure = Figure(
        "Alignment of velocities",
        "time",
        "variance of velocities",
        (
            Series(f"β = {config.beta:g}", times, tuple(map(float, curves[config.beta])), "points"),
            Series(f"control: β = {config.too_large:g}", times, tuple(map(float, curves[config.too_large])), "line"),
        ),
        yscale="log",
        caption=f"{config.n} birds, φ(r) = (1 + r²)^(−β).",
    )
    return _outcome(key, config, config.beta, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, config.too_large)


claim = Claim(
    name="cucker-2007-flocking",
    title="Velocities align if alignment decays slowly",
    statement=(
        "x' = v, v' = ∫ φ(|x−y|)(w−v) dμ(y,w) with φ(r) = κ/(σ²+r²)^β: the mean velocity is conserved, the variance of "
        "velocities never grows and, if β ≤ 1/2, tends to 0 for every start. For φ ≡ κ: "
        "v_i(t) = v̄ + e^{−κt}(v_i(0) − v̄)."
    ),
    hypotheses=("β ≤ 1/2", "finitely many birds"),
    reference="cucker2007",
    run=_run,
    control=_control,
    control_statement="β large: birds that start apart never align.",
    quick=Config(),
    full=Config(n=400, dim=3, time=40.0),
)
