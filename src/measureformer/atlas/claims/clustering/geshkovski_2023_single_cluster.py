"""On the sphere of dimension 2 and more, almost all starts end in one point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_sphere import energies, sphere_trajectory
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.clustering import cluster_counts
from measureformer.flows.particles import Trajectory

DIM = 3


@dataclass(frozen=True)
class Config:
    n: int = 16
    trials: int = 3
    time: float = 200.0
    frames: int = 14


_Trial = tuple[float, Trajectory]


@once
def _paths(key: Key, config: Config, *, repel: bool) -> tuple[np.ndarray, list[_Trial]]:
    """Times, and a flow for each trial."""
    rng = generator(key)
    times = np.append(0, np.geomspace(0.1, config.time, config.frames))
    trials: list[_Trial] = []
    for trial in range(config.trials):
        X = rng.normal(size=(config.n, DIM))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        beta = -6.0 if repel else (0.5, 1.0, 2.0)[trial % 3]
        trials.append((beta, sphere_trajectory(X, beta, times)))
    return times, trials


def _counts(trials: list[_Trial]) -> np.ndarray:
    """Numbers of clusters (r, t) at distance 0.1."""
    return np.stack([cluster_counts(traj.points, 0.1)[:, 0] for _, traj in trials])


def _energy(trial: _Trial, variant: str) -> np.ndarray:
    beta, traj = trial
    return -energies(traj, -beta) if variant == "sign-in-the-exponent" else energies(traj, beta)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    times, trials = _paths(key, config, repel=variant == "repel")
    counts, rises = _counts(trials), np.stack([np.diff(_energy(trial, variant)) for trial in trials])
    checks = (
        Check("largest number of clusters in the end", counts[:, -1].max(), high=1.0, rejected_by="repel"),
        Check("largest fall of the energy", -rises.min(), high=1e-6, rejected_by="sign-in-the-exponent"),
    )
    return Outcome(checks, _figure(key, config, times, counts) if variant == "claim" else None)


def _figure(key: Key, config: Config, times: np.ndarray, counts: np.ndarray) -> Figure:
    wrong = _counts(_paths(key, config, repel=True)[1])
    return Figure(
        "Tokens on the sphere become one",
        "depth t",
        "clusters at distance 0.1, average",
        (
            Series("β > 0", times[1:], counts[:, 1:].mean(axis=0), "line", role="measured"),
            Series("control: β = −6", times[1:], wrong[:, 1:].mean(axis=0), "dashed", role="control"),
        ),
        xscale="log",
        caption=f"{config.trials} random starts of {config.n} tokens in dimension {DIM}, β in 0.5, 1, 2.",
    )


claim = Claim(
    name="geshkovski-2023-single-cluster",
    title="One cluster on the sphere",
    kind="theorem",
    statement=(
        "For d ≥ 3, every β ≥ 0 and almost every start, the tokens of x_i' = Proj(Σ_j P_ij x_j) on the unit sphere "
        "tend to one point; the energy E_β does not decrease on the way."
    ),
    hypotheses=("Q = K = V = I, the softmax with β ≥ 0", "d ≥ 3", "the start lies outside a set of measure zero"),
    reference="geshkovski2023",
    measure=measure,
    controls={
        "repel": "β < 0: the flow still climbs E_β, but tokens look away from each other.",
        "sign-in-the-exponent": "An energy with the wrong sign in its exponent: Σ_ij e^{−β⟨x_i,x_j⟩}/(2βn²).",
    },
    quick=Config(),
    full=Config(n=64, trials=30, time=3000.0),
)
