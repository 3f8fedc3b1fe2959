"""On the sphere of dimension 2 and more, almost all starts end in one point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_sphere import energies, sphere_trajectory
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.clustering import cluster_counts
from measureformer.flows.particles import Trajectory

BETAS = (0.0, 1.0, 4.0)
DIMS = (3, 5)


@dataclass(frozen=True)
class Config:
    n: int = 16
    trials: int = 3
    """Starts in each dimension, with β = 0, 1, 4 in turn."""
    dims: int = 1
    """How many of the dimensions 3 and 5."""
    frames: int = 14


_Trial = tuple[float, Trajectory]


def _last(beta: float) -> float:
    """Two tokens merge within a few e^{β(1 − cos)} ≤ e^{2β}, from where they close like e^{−2t}."""
    return 40 + 4 * np.exp(2 * beta)


@once
def _paths(key: Key, config: Config, variant: str) -> list[_Trial]:
    """β and a flow for each trial."""
    rng, trials = generator(key), list[_Trial]()
    for d in DIMS[: config.dims]:
        for trial in range(config.trials):
            beta, X = BETAS[trial % len(BETAS)], rng.normal(size=(config.n, d))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            if variant == "antipodal":
                # on an axis, so that no rounding error moves them off it
                X = np.where(np.arange(config.n) % 2, 1.0, -1.0)[:, None] * np.eye(d)[0]
            # with V = −I tokens wander for ever, and no time would be enough
            last = _last(0) if variant == "negative-value" else _last(beta)
            times = np.append(0, np.geomspace(0.1, last, config.frames))
            value = -1.0 if variant == "negative-value" else 1.0
            trials.append((beta, sphere_trajectory(X, beta, times, value=value)))
    return trials


def _counts(trials: list[_Trial]) -> np.ndarray:
    """Numbers of clusters (r, t) at distance 0.1."""
    return np.stack([cluster_counts(traj.points, 0.1)[:, 0] for _, traj in trials])


def _energy(trial: _Trial, variant: str) -> np.ndarray:
    beta, traj = trial
    return -energies(traj, -beta) if variant == "sign-in-the-exponent" else energies(traj, beta)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    trials = _paths(key, config, "claim" if variant == "sign-in-the-exponent" else variant)
    counts, rises = _counts(trials), np.stack([np.diff(_energy(trial, variant)) for trial in trials])
    apart = 1 - min(float((x @ x.T).min()) for x in (np.asarray(traj.points[-1]) for _, traj in trials))
    wrong = ("negative-value", "antipodal")
    checks = (
        Check("largest 1 − cos of two tokens in the end", apart, high=1e-9, rejected_by=wrong),
        Check(
            "largest fall of the energy",
            -rises.min(),
            high=1e-6,
            rejected_by=("sign-in-the-exponent", "negative-value"),
        ),
    )
    return Outcome(checks, _figure(key, config, counts) if variant == "claim" else None)


def _figure(key: Key, config: Config, counts: np.ndarray) -> Figure:
    wrong = _counts(_paths(key, config, "negative-value"))
    times = np.geomspace(0.1 / _last(0), 1, config.frames)
    return Figure(
        "Tokens on the sphere become one",
        "depth, over 40 + 4e^{2β}",
        "clusters at distance 0.1, average",
        (
            Series("V = I", times, counts[:, 1:].mean(axis=0), "line", role="measured"),
            Series("control: V = −I", times, wrong[:, 1:].mean(axis=0), "dashed", role="control"),
        ),
        xscale="log",
        caption=f"{len(counts)} random starts of {config.n} tokens, β in 0, 1, 4.",
    )


claim = Claim(
    name="geshkovski-2023-single-cluster",
    title="One cluster on the sphere",
    kind="theorem",
    statement=(
        "For d ≥ 3, every β ≥ 0 and almost every start, the tokens of x_i' = Proj(Σ_j P_ij x_j) on the unit sphere "
        "tend to one point; the energy E_β does not decrease on the way."
    ),
    hypotheses=(
        "Q = K = V = I, the softmax with β ≥ 0",
        "the start lies outside a set of measure zero",
        "tested for β = 0, 1, 4 in dimensions 3 and 5 until 40 + 4e^{2β}: larger β merge later than can be computed",
    ),
    reference="geshkovski2023",
    measure=measure,
    controls={
        "negative-value": "V = −I, with which tokens move away from what they attend to.",
        "antipodal": "An exceptional start: half of the tokens at a point, half at its antipode.",
        "sign-in-the-exponent": "An energy with the wrong sign in its exponent: Σ_ij e^{−β⟨x_i,x_j⟩}/(2βn²).",
    },
    quick=Config(),
    full=Config(n=64, trials=30, dims=2),
)
