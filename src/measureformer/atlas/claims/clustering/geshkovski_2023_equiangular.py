"""Tokens that start orthogonal keep equal angles, and one equation describes all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import equiangular, geshkovski23_equiangular, sphere_flow
from measureformer.figures.figure import Figure, Series


@dataclass(frozen=True)
class Config:
    n: int = 5
    beta: float = 2.0
    time: float = 4.0
    frames: int = 25


def _products(n: int, dim: int, beta: float, times: np.ndarray) -> np.ndarray:
    X = np.asarray(sphere_flow(np.eye(n, dim), beta, times).points)
    return (X @ X.swapaxes(1, 2))[:, *np.triu_indices(n, 1)]


def _outcome(config: Config, *, softmax: bool, figure: Figure | None = None) -> Outcome:
    """The control takes the equation of the unnormalised flow for that of the softmax."""
    times = np.linspace(0, config.time, config.frames)
    found = _products(config.n, config.n + 3, config.beta, times)
    zero = _products(config.n, config.n + 3, 0.0, times)
    curve = np.asarray(equiangular(config.n, config.beta, times, normalized=softmax).cosines)
    exact = np.array([geshkovski23_equiangular(config.n, t) for t in times])
    flat = np.asarray(equiangular(config.n, 0.0, times, normalized=softmax).cosines)
    tail = np.asarray(equiangular(config.n, config.beta, [0, 20, 40], normalized=softmax).log_gaps)
    checks = (
        Check("spread of the inner products", float(np.ptp(found, axis=1).max()), high=1e-9),
        Check("tokens against the equation", float(np.abs(found - curve[:, None]).max()), high=1e-6),
        Check("tokens against the closed form at β = 0", float(np.abs(zero - exact[:, None]).max()), high=1e-7),
        Check("equation against the closed form at β = 0", float(np.abs(flat - exact).max()), high=1e-9),
        Check("rate of log(1 − γ) in the end", float(tail[2] - tail[1]) / 20, -2.01, -1.99),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    times = np.linspace(0, config.time, config.frames)
    found = _products(config.n, config.n + 3, config.beta, times)
    x = tuple(times.tolist())
    wrong = equiangular(config.n, config.beta, times, normalized=False)
    line = lambda values: tuple(np.asarray(values).tolist())  # noqa: E731
    figure = Figure(
        "One equation for all angles",
        "depth t",
        "inner product γ",
        (
            Series("tokens", x, line(found.mean(axis=1)), "points"),
            Series("equation", x, line(equiangular(config.n, config.beta, times).cosines), "line"),
            Series("control: unnormalised equation", x, line(wrong.cosines), "dashed"),
            Series("closed form at β = 0", x, tuple(geshkovski23_equiangular(config.n, t) for t in x), "dashed"),
        ),
        caption=f"{config.n} orthogonal tokens in dimension {config.n + 3}, β = {config.beta:g}.",
    )
    return _outcome(config, softmax=True, figure=figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, softmax=False)


claim = Claim(
    name="geshkovski-2023-equiangular",
    title="Orthogonal tokens: one equation",
    statement=(
        "For every n and β, tokens on the sphere that start orthogonal keep a common inner product γ, with "
        "γ' = 2(1−γ)((n−1)γ+1)/(e^{β(1−γ)}+n−1) and 1 − γ ~ e^{−2t}; for β = 0, γ(t) = (e^{2t}−1)/(e^{2t}+n−1)."
    ),
    hypotheses=("Q = K = V = I", "d ≥ n, orthogonal start"),
    reference="geshkovski2023",
    run=_run,
    control=_control,
    control_statement="The equation of unnormalised attention, γ' = (2/n) e^{βγ}(1−γ)((n−1)γ+1).",
    quick=Config(),
    full=Config(n=13, time=8.0, frames=100),
)
