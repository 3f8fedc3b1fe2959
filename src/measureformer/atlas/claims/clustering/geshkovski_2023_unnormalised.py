"""Attention without its normaliser climbs the energy as steeply as possible, and ends in one cluster as well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import cluster_counts, equiangular, sphere_flow
from measureformer.figures.figure import Figure, Series

DIM = 3
APART = 0.1


@dataclass(frozen=True)
class Config:
    n: int = 12
    trials: int = 3
    time: float = 40.0
    frames: int = 12


def _drift(X: np.ndarray, beta: float) -> np.ndarray:
    """Σ_j e^{β⟨x_i,x_j⟩} x_j / n, projected, as it is written down."""
    mean = np.exp(beta * X @ X.T) @ X / len(X)
    return mean - np.sum(mean * X, axis=1, keepdims=True) * X


def _paths(key: Any, config: Config, *, repel: bool) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Times, numbers of clusters (r, t), and how far dE/dt is from the mean of |x'|², relative to it."""
    rng, counts, gaps = generator(key), list[np.ndarray](), list[float]()
    h = 1e-4
    times = np.concatenate([[0, 0.1 - h, 0.1, 0.1 + h], np.geomspace(0.2, config.time, config.frames)])
    for trial in range(config.trials):
        X = rng.normal(size=(config.n, DIM))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        beta = -6.0 if repel else (0.5, 1.0, 2.0)[trial % 3]
        flow = sphere_flow(X, beta, times, normalized=False, rtol=1e-9)
        counts.append(cluster_counts(flow.points, APART)[:, 0])
        E, speed = flow.energy(), np.sum(_drift(np.asarray(flow.points[2]), beta) ** 2) / config.n
        gaps.append(abs((E[3] - E[1]) / (2 * h) / speed - 1))
    return times, np.stack(counts), gaps


def _outcome(counts: np.ndarray, gaps: list[float], *, softmax: bool, figure: Figure | None = None) -> Outcome:
    tail = np.asarray(equiangular(5, 1.0, [0, 10, 20], normalized=softmax).log_gaps)
    checks = (
        Check("largest number of clusters in the end", float(counts[:, -1].max()), high=1.0),
        Check("relative error of dE/dt = Σ|x'|²/n", max(gaps), high=1e-5),
        Check("rate of log(1 − γ) in the end, over −2e^β", float(tail[2] - tail[1]) / (-20 * math.e), 0.999, 1.001),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    times, counts, gaps = _paths(key, config, repel=False)
    wrong = _paths(key, config, repel=True)[1]
    x = tuple(times[4:].tolist())
    figure = Figure(
        "One cluster without the normaliser",
        "depth t",
        f"clusters at distance {APART:g}, average",
        (
            Series("β > 0", x, tuple(counts[:, 4:].mean(axis=0).tolist()), "line"),
            Series("control: β = −6", x, tuple(wrong[:, 4:].mean(axis=0).tolist()), "dashed"),
        ),
        xscale="log",
        caption=f"{config.trials} random starts of {config.n} tokens in dimension {DIM}, β in 0.5, 1, 2.",
    )
    return _outcome(counts, gaps, softmax=False, figure=figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_paths(key, config, repel=True)[1:], softmax=True)


claim = Claim(
    name="geshkovski-2023-unnormalised",
    title="One cluster without the normaliser",
    statement=(
        "For d ≥ 3, every β ≥ 0 and almost every start, the tokens of x_i' = Proj(Σ_j e^{β⟨x_i,x_j⟩}x_j/n) on the unit "
        "sphere tend to one point; dE_β/dt = Σ|x_i'|²/n on the way, and equal angles close like 1 − γ ~ e^{−2e^β t}."
    ),
    hypotheses=("Q = K = V = I, no normaliser", "d ≥ 3", "the start lies outside a set of measure zero"),
    reference="geshkovski2023",
    run=_run,
    control=_control,
    control_statement="β = −6, where tokens look away from each other, and the rate e^{−2t} of the softmax.",
    quick=Config(),
    full=Config(n=48, trials=60, time=400.0),
)
