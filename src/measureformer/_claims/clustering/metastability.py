"""Separated tokens wait for an exponentially long time: e^{β(1 − cos)} of the closest pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims.base import Claim
from measureformer.flows import merge_times, sphere_flow
from measureformer.result import Check, Figure, Outcome, Series


@dataclass(frozen=True)
class Config:
    angle: float = 0.9
    least: float = 14.0
    most: float = 26.0
    values: int = 3


def _first_merge(angle: float, beta: float, *, normalized: bool) -> float:
    """When the closest two of three tokens are at distance 0.2; the time looked at is doubled until they are."""
    X = np.array([[1.0, 0.0, 0.0], [math.cos(angle), math.sin(angle), 0.0], [0.0, 0.0, 1.0]])
    start, length = 0.0, 1.0 if normalized else 2.0**-26
    for _ in range(60):
        flow = sphere_flow(X, beta, np.linspace(start, start + length, 16), normalized=normalized, rtol=1e-7)
        found = merge_times(flow.times, flow.points, 0.2)
        if len(found):
            return float(found[0])
        start, length, X = start + length, start + length, np.asarray(flow.points[-1])
    return math.inf


def _times(config: Config, *, normalized: bool) -> tuple[np.ndarray, np.ndarray]:
    betas = np.linspace(config.least, config.most, config.values)
    return betas, np.array([_first_merge(config.angle, beta, normalized=normalized) for beta in betas])


def _outcome(config: Config, betas: np.ndarray, times: np.ndarray, figure: Figure | None = None) -> Outcome:
    # T = ∫ e^{β(1−γ)} dγ/… is e^{β(1−γ₀)}/β times a constant, up to relative terms 1/β
    slope = float(np.polyfit(betas, np.log(betas * times), 1)[0])
    checks = (
        Check("slope of log(βT) over 1 − cos of the closest pair", slope / (1 - math.cos(config.angle)), 0.93, 1.07),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    betas, times = _times(config, normalized=True)
    law = np.exp((1 - math.cos(config.angle)) * betas) / betas
    x = tuple(betas.tolist())
    figure = Figure(
        "How long separated tokens wait",
        "inverse temperature β",
        "time T of the first merge",
        (
            Series("measured", x, tuple(times.tolist()), "points"),
            Series("const · e^{β(1 − cos)}/β", x, tuple((law * times[-1] / law[-1]).tolist()), "dashed"),
        ),
        yscale="log",
        caption=f"Three tokens on the sphere, the closest two at the angle {config.angle:g}; merged at distance 0.2.",
    )
    return _outcome(config, betas, times, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, *_times(config, normalized=False))


claim = Claim(
    name="rigollet-2025-metastability",
    title="Metastable clusters",
    statement=(
        "For separated tokens on the sphere and β → ∞, the logarithm of the time until the closest pair merges grows "
        "like β(1 − ⟨x_i, x_j⟩)."
    ),
    hypotheses=("Q = K = V = I with the softmax", "one pair is closer than all others"),
    reference="rigollet2025",
    run=_run,
    control=_control,
    control_statement="Attention without the normaliser, where the time falls like e^{−β⟨x_i, x_j⟩}.",
    quick=Config(),
    full=Config(least=16.0, most=34.0, values=10),
)
