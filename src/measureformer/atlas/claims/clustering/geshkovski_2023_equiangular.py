"""Tokens that start orthogonal keep equal angles, and one equation describes all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.clustering_sphere import sphere_trajectory
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.clustering import equiangular, geshkovski23_equiangular

TILT = 0.1


@dataclass(frozen=True)
class Config:
    n: int = 5
    beta: float = 2.0
    time: float = 4.0
    frames: int = 25


def _products(X: np.ndarray, beta: float, times: np.ndarray) -> np.ndarray:
    X = np.asarray(sphere_trajectory(X, beta, times).points)
    return (X @ X.swapaxes(1, 2))[:, *np.triu_indices(X.shape[1], 1)]


def _equation(config: Config, beta: float, times: np.ndarray, *, normalized: bool) -> tuple[np.ndarray, float]:
    """The inner products at the times, and the rate of log(1 − γ) between the times 20 and 40."""
    found = equiangular(config.n, beta, np.append(times, [20, 40]), normalized=normalized)
    return np.asarray(found.cosines)[:-2], float(found.log_gaps[-1] - found.log_gaps[-2]) / 20


def measure(key: Key, config: Config, variant: str) -> Outcome:
    n, times, normalized = config.n, np.linspace(0, config.time, config.frames), variant != "unnormalised"
    X = np.eye(n, n + 3)
    if variant == "tilted-start":
        X[0, :2] = math.cos(TILT), math.sin(TILT)
    found, zero = (_products(X, beta, times) for beta in (config.beta, 0.0))
    curve, rate = _equation(config, config.beta, times, normalized=normalized)
    flat, _ = _equation(config, 0.0, times, normalized=normalized)
    exact = np.array([geshkovski23_equiangular(n + 1 if variant == "n-plus-1" else n, t) for t in times])
    spread, gap = np.ptp(found, axis=1).max(), np.abs(found - curve[:, None]).max()
    tokens, equation = np.abs(zero - exact[:, None]).max(), np.abs(flat - exact).max()
    both = ("tilted-start", "n-plus-1")
    checks = (
        Check("spread of the inner products", spread, high=1e-9, rejected_by="tilted-start"),
        Check("tokens against the equation", gap, high=1e-6, rejected_by=("unnormalised", "tilted-start")),
        Check("tokens against the closed form at β = 0", tokens, high=1e-7, rejected_by=both),
        Check("equation against the closed form at β = 0", equation, high=1e-9, rejected_by="n-plus-1"),
        Check("rate of log(1 − γ) in the end", rate, -2.01, -1.99, rejected_by="unnormalised"),
    )
    return Outcome(checks, _figure(config, times, found, curve, exact) if variant == "claim" else None)


def _figure(config: Config, times: np.ndarray, found: np.ndarray, curve: np.ndarray, exact: np.ndarray) -> Figure:
    wrong, _ = _equation(config, config.beta, times, normalized=False)
    return Figure(
        "One equation for all angles",
        "depth t",
        "inner product γ",
        (
            Series("tokens", times, found.mean(axis=1), "points", role="measured"),
            Series("equation", times, curve, "line", role="theory"),
            Series("control: unnormalised equation", times, wrong, "dashed", role="control"),
            Series("closed form at β = 0", times, exact, "dashed", role="theory"),
        ),
        caption=f"{config.n} orthogonal tokens in dimension {config.n + 3}, β = {config.beta:g}.",
    )


claim = Claim(
    name="geshkovski-2023-equiangular",
    title="Orthogonal tokens: one equation",
    kind="theorem",
    statement=(
        "For every n and β, tokens on the sphere that start orthogonal keep a common inner product γ, with "
        "γ' = 2(1−γ)((n−1)γ+1)/(e^{β(1−γ)}+n−1) and 1 − γ ~ e^{−2t}; for β = 0, γ(t) = (e^{2t}−1)/(e^{2t}+n−1)."
    ),
    hypotheses=("Q = K = V = I", "d ≥ n, orthogonal start"),
    reference="geshkovski2023",
    measure=measure,
    controls={
        "unnormalised": "The equation of unnormalised attention, γ' = (2/n) e^{βγ}(1−γ)((n−1)γ+1).",
        "tilted-start": f"One token starts tilted towards another by the angle {TILT:g}, and is not orthogonal to it.",
        "n-plus-1": "A closed form that is off by one in n: γ(t) = (e^{2t}−1)/(e^{2t}+n).",
    },
    quick=Config(),
    full=Config(n=13, time=8.0, frames=100),
)
