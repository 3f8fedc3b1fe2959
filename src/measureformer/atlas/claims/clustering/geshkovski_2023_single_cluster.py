"""On the sphere of dimension 2 and more, almost all starts end in one point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import cluster_counts, sphere_flow
from measureformer.figures.figure import Figure, Series

DIM = 3


@dataclass(frozen=True)
class Config:
    n: int = 16
    trials: int = 3
    time: float = 200.0
    frames: int = 14


def _paths(key: Any, config: Config, *, repel: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, numbers of clusters (r, t) at distance 0.1, and how the energies changed from time to time."""
    rng = generator(key)
    times = np.append(0, np.geomspace(0.1, config.time, config.frames))
    counts: list[np.ndarray] = []
    rises: list[np.ndarray] = []
    for trial in range(config.trials):
        X = rng.normal(size=(config.n, DIM))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        beta = -6.0 if repel else (0.5, 1.0, 2.0)[trial % 3]
        flow = sphere_flow(X, beta, times, rtol=1e-6)
        counts.append(cluster_counts(flow.points, 0.1)[:, 0])
        rises.append(np.diff(flow.energy()))
    return times, np.stack(counts), np.stack(rises)


def _outcome(counts: np.ndarray, rises: np.ndarray, figure: Figure | None = None) -> Outcome:
    checks = (
        Check("largest number of clusters in the end", float(counts[:, -1].max()), high=1.0),
        Check("largest fall of the energy", float(-rises.min()), high=1e-6),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    times, counts, rises = _paths(key, config, repel=False)
    wrong = _paths(key, config, repel=True)[1]
    x = tuple(times[1:].tolist())
    figure = Figure(
        "Tokens on the sphere become one",
        "depth t",
        "clusters at distance 0.1, average",
        (
            Series("β > 0", x, tuple(counts[:, 1:].mean(axis=0).tolist()), "line"),
            Series("control: β = −6", x, tuple(wrong[:, 1:].mean(axis=0).tolist()), "dashed"),
        ),
        xscale="log",
        caption=f"{config.trials} random starts of {config.n} tokens in dimension {DIM}, β in 0.5, 1, 2.",
    )
    return _outcome(counts, rises, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_paths(key, config, repel=True)[1:])


claim = Claim(
    name="geshkovski-2023-single-cluster",
    title="One cluster on the sphere",
    statement=(
        "For d ≥ 3, every β ≥ 0 and almost every start, the tokens of x_i' = Proj(Σ_j P_ij x_j) on the unit sphere "
        "tend to one point; the energy E_β does not decrease on the way."
    ),
    hypotheses=("Q = K = V = I, the softmax with β ≥ 0", "d ≥ 3", "the start lies outside a set of measure zero"),
    reference="geshkovski2023",
    run=_run,
    control=_control,
    control_statement="β < 0: the flow still climbs E_β, but tokens look away from each other.",
    quick=Config(),
    full=Config(n=64, trials=30, time=3000.0),
)
