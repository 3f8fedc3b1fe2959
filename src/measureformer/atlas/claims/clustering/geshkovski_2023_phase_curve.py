"""Random tokens in high dimension meet at the time that an equation for one angle foretells, for every β."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import Ensemble, PhaseDiagram, geshkovski23_phase_curve, phase_diagram
from measureformer.figures.figure import Figure, Series

LOW = 2
"""The dimension of the control."""


@dataclass(frozen=True)
class Config:
    n: int = 16
    high: int = 1024
    between: int = 8
    batches: int = 8
    values: int = 4
    most: float = 5.0
    time: float = 20.0
    frames: int = 80


def _diagram(key: Any, config: Config, dim: int) -> PhaseDiagram:
    betas, times = np.linspace(0.1, config.most, config.values), np.linspace(0, config.time, config.frames + 1)
    return phase_diagram(key, betas, times, ensemble=Ensemble(n=config.n, dim=dim, batches=config.batches))


def _curve(found: PhaseDiagram) -> np.ndarray:
    n, delta = found.ensemble.n, found.ensemble.delta
    return np.array([geshkovski23_phase_curve(n, beta, delta) for beta in found.betas])


def _outcome(found: PhaseDiagram, figure: Figure | None = None) -> Outcome:
    off = float(np.abs(found.boundary() / _curve(found) - 1).max())
    return Outcome((Check("time at which half of the pairs are together, relative error", off, high=0.1),), figure)


def _run(key: Any, config: Config) -> Outcome:
    series: list[Series] = []
    high = _diagram(key, config, config.high)
    for dim in (LOW, config.between, config.high):
        found = high if dim == config.high else _diagram(key, config, dim)
        # what has not happened by the last time is drawn there
        times = [np.minimum(found.boundary(level), config.time) for level in (0.1, 0.5, 0.9)]
        low, half, most = (tuple(t.tolist()) for t in times)
        betas = tuple(found.betas.tolist())
        series += [
            Series(f"half of the pairs, d = {dim}", betas, half, "line"),
            Series(f"10 % to 90 %, d = {dim}", betas, low, "band", most),
        ]
    series.append(Series("equation, d = ∞", tuple(high.betas.tolist()), tuple(_curve(high).tolist()), "dashed"))
    figure = Figure(
        "Phase diagram: when tokens are together",
        "inverse temperature β",
        "depth t",
        tuple(series),
        caption=(
            f"{config.n} tokens, uniform on the sphere, {config.batches} starts. A pair is together at cosine > 0.999; "
            f"times are cut at {config.time:g}."
        ),
    )
    return _outcome(high, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_diagram(key, config, LOW))


claim = Claim(
    name="geshkovski-2023-phase-curve",
    title="The phase diagram in high dimension",
    statement=(
        "For n tokens, independent and uniform on the sphere of R^d, and d → ∞: all cosines follow the solution γ_β(t) "
        "of the equation for equal angles that starts at 0, so that pairs come within cosine 1 − δ when γ_β(t) = 1 − δ."
    ),
    hypotheses=("Q = K = V = I with the softmax", "n and β fixed, d → ∞"),
    reference="geshkovski2023",
    run=_run,
    control=_control,
    control_statement="The same in dimension 2, where pairs meet early or very late.",
    quick=Config(),
    full=Config(n=32, batches=128, values=20, most=6.5, time=30.0, frames=240),
)
