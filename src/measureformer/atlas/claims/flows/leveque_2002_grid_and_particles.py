"""Two ways to solve one equation: cells that exchange mass, and particles that move, end at the same measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import GridFlow, flow, grid_flow
from measureformer.maps import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Discrete, Gaussian
from measureformer.transport import wasserstein

MEANS, VARIANCES = (-1.5, 1.0), (0.2, 0.4)
BOX = (-7.0, 7.0)


@dataclass(frozen=True)
class Config:
    cells: int = 192
    particles: int = 1024
    time: float = 0.8


class _Frozen(AbstractInContextMap):
    """The velocity in the context of the start: a linear equation, and not this one."""

    velocity: AbstractInContextMap
    start: Discrete

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return self.velocity.evaluate(self.start, x, None)


def _density(x: Any) -> np.ndarray:
    y = np.asarray(x)
    bumps = [np.exp(-((y - m) ** 2) / (2 * v)) / np.sqrt(2 * np.pi * v) for m, v in zip(MEANS, VARIANCES, strict=True)]
    return (bumps[0] + bumps[1])[:, 0] / 2


def _particles(config: Config) -> Discrete:
    parts = [Gaussian([m], [[v]]).discretize(config.particles // 2) for m, v in zip(MEANS, VARIANCES, strict=True)]
    return 0.5 * (parts[0] + parts[1])


def _both(config: Config, *, frozen: bool) -> tuple[GridFlow, Discrete]:
    G, start = Attention.head([[1.0]], [[0.5]], [[-1.0]]), _particles(config)
    times = [0.0, config.time]
    cells = grid_flow(_Frozen(G, start) if frozen else G, _density, [BOX], times, cells=config.cells)
    return cells, flow(G, start, times).measures[-1]


def _moments_gap(config: Config) -> float:
    """A Gaussian, whose flow is known: the largest error of mean and variance, in units of h²."""
    a, v, m, t = 0.5, -1.0, 0.5, config.time

    def density(x: Any) -> np.ndarray:
        return np.exp(-((np.asarray(x)[:, 0] - m) ** 2) / 2) / np.sqrt(2 * np.pi)

    G = Attention.head([[1.0]], [[a]], [[v]])
    last = grid_flow(G, density, [BOX], [0.0, t], cells=config.cells).measures[-1]
    # σ² = 1/(1 − 2vat) and m' = v(1 + aσ²)m
    variance = 1 / (1 - 2 * v * a * t)
    mean = m * np.exp(v * t) * np.sqrt(variance)
    gap = max(abs(float(last.mean()[0]) - mean), abs(float(last.covariance()[0, 0]) - variance))
    return gap / ((BOX[1] - BOX[0]) / config.cells) ** 2


def _outcome(cells: GridFlow, particles: Discrete, config: Config, figure: Figure | None = None) -> Outcome:
    width = (BOX[1] - BOX[0]) / config.cells
    gap = float(wasserstein(cells.measures[-1].normalized(), particles.normalized(), 1))
    drift = abs(float(np.asarray(cells.masses[-1]).sum() + cells.lost[-1] - np.asarray(cells.masses[0]).sum()))
    checks = (
        # atoms at the centres are h/4 away from the density by themselves
        Check("W_1 between cells and particles, in cells", gap / width, high=0.5),
        Check("mass that appeared or vanished", drift, high=1e-12),
        Check("least mass of a cell", float(cells.masses.min()), low=0.0),
        Check("moments of a Gaussian: error in units of h²", _moments_gap(config), high=2.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    cells, particles = _both(config, frozen=False)
    stale, _ = _both(config, frozen=True)
    x = tuple(map(float, np.asarray(cells.centers)[:, 0]))
    heights, edges = np.histogram(
        np.asarray(particles.points)[:, 0], 48, weights=np.asarray(particles.weights), density=True
    )

    def curve(values: Any) -> tuple[float, ...]:
        return tuple(map(float, np.asarray(values)))

    figure = Figure(
        "One equation, solved twice",
        "x",
        "density",
        (
            Series("start", x, curve(cells.densities[0]), "dashed"),
            Series("grid", x, curve(cells.densities[-1]), "line"),
            Series("particles", curve((edges[1:] + edges[:-1]) / 2), curve(heights), "points"),
            Series("control: context of the start", x, curve(stale.densities[-1]), "line"),
        ),
        caption=f"Softmax attention on two bumps, to time {config.time:g}; {config.cells} cells.",
    )
    return _outcome(cells, particles, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_both(config, frozen=True), config)


claim = Claim(
    name="leveque-2002-grid-and-particles",
    title="Particles and a grid agree on the flow of a density",
    statement=(
        "Finite volumes on cells of width h and particles at quantiles solve ∂_t μ + div(μ v[μ]) = 0 with the same "
        "result, up to half a cell in W_1; masses of cells stay ≥ 0 and their sum does not change; moments of a "
        "Gaussian are those of its closed flow up to O(h²)."
    ),
    hypotheses=("dimension 1", "softmax attention, velocity read from cells as atoms at their centres"),
    reference="leveque2002, Chapters 6 and 20; castin2025",
    run=_run,
    control=_control,
    control_statement="The velocity is read from the context of the start: a linear transport equation.",
    quick=Config(),
    full=Config(cells=1024, particles=8192),
)
