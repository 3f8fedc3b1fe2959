"""Attention without its normaliser climbs the energy as steeply as possible, and ends in one cluster as well."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_sphere import energies, sphere_trajectory
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.clustering import cluster_counts, equiangular
from measureformer.flows.particles import Trajectory

DIM = 3
APART = 0.1
STEP = 1e-4
"""Of the difference quotient of the energy."""


@dataclass(frozen=True)
class Config:
    n: int = 12
    trials: int = 3
    time: float = 40.0
    frames: int = 12


def _drift(X: np.ndarray, beta: float, *, softmax: bool) -> np.ndarray:
    """Σ_j e^{β⟨x_i,x_j⟩} x_j / n, projected, as it is written down; with `softmax`, over the normaliser and not n."""
    weights = np.exp(beta * X @ X.T)
    mean = weights @ X / (weights.sum(axis=1, keepdims=True) if softmax else len(X))
    return mean - np.sum(mean * X, axis=1, keepdims=True) * X


_Trial = tuple[float, Trajectory]


@once
def _trials(key: Key, config: Config, *, repel: bool) -> list[_Trial]:
    rng, trials = generator(key), list[_Trial]()
    times = np.concatenate([[0, 0.1 - STEP, 0.1, 0.1 + STEP], np.geomspace(0.2, config.time, config.frames)])
    for trial in range(config.trials):
        X = rng.normal(size=(config.n, DIM))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        beta = -6.0 if repel else (0.5, 1.0, 2.0)[trial % 3]
        trials.append((beta, sphere_trajectory(X, beta, times, normalized=False)))
    return trials


def _counts(trials: list[_Trial]) -> np.ndarray:
    """Numbers of clusters (r, t)."""
    return np.stack([cluster_counts(traj.points, APART)[:, 0] for _, traj in trials])


def _gap(trial: _Trial, *, softmax: bool) -> float:
    """How far dE/dt is from the mean of |x'|² at t = 0.1, relative to it."""
    beta, traj = trial
    E, drift = energies(traj, beta), _drift(np.asarray(traj.points[2]), beta, softmax=softmax)
    return abs((E[3] - E[1]) / (2 * STEP) / (np.sum(drift**2) / len(drift)) - 1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    softmax, trials = variant == "softmax", _trials(key, config, repel=variant == "repel")
    counts, gap = _counts(trials), max(_gap(trial, softmax=softmax) for trial in trials)
    tail = np.asarray(equiangular(5, 1.0, [0, 10, 20], normalized=softmax).log_gaps)
    rate = (tail[2] - tail[1]) / (-20 * math.e)
    checks = (
        Check("largest number of clusters in the end", counts[:, -1].max(), high=1.0, rejected_by="repel"),
        Check("relative error of dE/dt = Σ|x'|²/n", gap, high=1e-5, rejected_by="softmax"),
        Check("rate of log(1 − γ) in the end, over −2e^β", rate, 0.999, 1.001, rejected_by="softmax"),
    )
    return Outcome(checks, _figure(key, config, counts) if variant == "claim" else None)


def _figure(key: Key, config: Config, counts: np.ndarray) -> Figure:
    repelled = _trials(key, config, repel=True)
    times, wrong = repelled[0][1].times, _counts(repelled)
    return Figure(
        "One cluster without the normaliser",
        "depth t",
        f"clusters at distance {APART:g}, average",
        (
            Series("β > 0", times[4:], counts[:, 4:].mean(axis=0), "line", role="measured"),
            Series("control: β = −6", times[4:], wrong[:, 4:].mean(axis=0), "dashed", role="control"),
        ),
        xscale="log",
        caption=f"{config.trials} random starts of {config.n} tokens in dimension {DIM}, β in 0.5, 1, 2.",
    )


claim = Claim(
    name="geshkovski-2023-unnormalised",
    title="One cluster without the normaliser",
    kind="theorem",
    statement=(
        "For d ≥ 3, every β ≥ 0 and almost every start, the tokens of x_i' = Proj(Σ_j e^{β⟨x_i,x_j⟩}x_j/n) on the unit "
        "sphere tend to one point; dE_β/dt = Σ|x_i'|²/n on the way, and equal angles close like 1 − γ ~ e^{−2e^β t}."
    ),
    hypotheses=(
        "Q = K = V = I, no normaliser",
        "the start lies outside a set of measure zero",
        "tested in dimension 3 for β = 0.5, 1, 2, and the rate for five tokens at β = 1",
    ),
    reference="geshkovski2023",
    measure=measure,
    controls={
        "repel": "β = −6, where tokens look away from each other.",
        "softmax": "The normaliser of the softmax in the velocities x' and in the equation, whose rate is e^{−2t}.",
    },
    quick=Config(),
    full=Config(n=48, trials=60, time=400.0),
)
