"""Two ways to solve one equation: cells that exchange mass, and particles that move, end at the same measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.flows import Density, flow
from measureformer.maps import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Discrete, Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.transport import wasserstein

MEANS, VARIANCES = (-1.5, 1.0), (0.2, 0.4)
BOX = (-7.0, 7.0)
WIDTH = BOX[1] - BOX[0]

Function = Callable[[Any], np.ndarray]


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


def _bumps(x: Any) -> np.ndarray:
    m, v = np.asarray(MEANS), np.asarray(VARIANCES)
    return np.mean(np.exp(-((np.asarray(x)[:, :1] - m) ** 2) / (2 * v)) / np.sqrt(2 * np.pi * v), axis=1)


def _solved(G: AbstractInContextMap, density: Function, config: Config, variant: str) -> tuple[np.ndarray, float]:
    """Masses of the cells at the start and at the end, and the mass that has left the box."""
    centers = _centers(config)
    if variant == "frozen-context":
        G = _Frozen(G, Discrete.weighted(centers, density(centers)))
    found = flow(G, Density(density, [BOX], cells=config.cells), [0.0, config.time])
    masses = np.array(found.masses)
    if variant in ("advective-form", "central-fluxes"):
        masses[1] = _by_hand(G, masses[0], config, variant)
    return masses, float(found.lost[-1])


def _by_hand(G: AbstractInContextMap, masses: np.ndarray, config: Config, variant: str) -> np.ndarray:
    """Masses at the end by Euler's method: upwind without the term μ div v, or with fluxes of the mean of two cells."""
    centers, faces = _centers(config), np.linspace(*BOX, config.cells + 1)[:, None]
    left = config.time
    while left > 0:
        mu = Discrete.weighted(centers, np.maximum(masses, 0))
        v = np.asarray(G(mu, faces))[:, 0] * config.cells / WIDTH
        step = min(0.4 / np.abs(v).max(), left)
        below, above = np.r_[0, masses], np.r_[masses, 0]
        if variant == "central-fluxes":
            change = np.diff(v * (below + above) / 2)
        else:
            change = np.diff(np.maximum(v, 0) * below + np.minimum(v, 0) * above) - masses * np.diff(v)
        masses, left = masses - step * change, left - step
    return masses


def _centers(config: Config) -> np.ndarray:
    return (BOX[0] + WIDTH * (np.arange(config.cells) + 0.5) / config.cells)[:, None]


def _moments_gap(config: Config, variant: str) -> float:
    """A Gaussian, whose flow is known: the largest error of mean and variance, in units of h²."""
    a, v, m, t = 0.5, -1.0, 0.5, config.time

    def density(x: Any) -> np.ndarray:
        return np.exp(-((np.asarray(x)[:, 0] - m) ** 2) / 2) / np.sqrt(2 * np.pi)

    masses, _ = _solved(Attention.head([[1.0]], [[a]], [[v]]), density, config, variant)
    last = Discrete.weighted(_centers(config), np.maximum(masses[1], 0))
    # σ² = 1/(1 − 2vat) and m' = v(1 + aσ²)m
    variance = 1 / (1 - 2 * v * a * t)
    mean = m * np.exp(v * t) * np.sqrt(variance)
    gap = max(abs(float(last.mean()[0]) - mean), abs(float(last.covariance()[0, 0]) - variance))
    return gap / (WIDTH / config.cells) ** 2


def measure(key: Key, config: Config, variant: str) -> Outcome:
    G = Attention.head([[1.0]], [[0.5]], [[-1.0]])
    masses, lost = _solved(G, _bumps, config, variant)
    parts = [Gaussian([m], [[v]]).discretize(config.particles // 2) for m, v in zip(MEANS, VARIANCES, strict=True)]
    particles = flow(G, 0.5 * (parts[0] + parts[1]), [0.0, config.time]).measures[-1]
    cells = Discrete.weighted(_centers(config), np.maximum(masses[1], 0))
    gap = float(wasserstein(cells.normalized(), particles.normalized(), 1)) * config.cells / WIDTH
    drift, moments = abs(masses[1].sum() + lost - masses[0].sum()), _moments_gap(config, variant)
    checks = (
        # atoms at the centres are h/4 away from the density by themselves
        Check("W_1 between cells and particles, in cells", gap, high=0.5, rejected_by="frozen-context"),
        Check("mass that appeared or vanished", drift, high=1e-12, rejected_by="advective-form"),
        Check("least mass of a cell", masses.min(), low=0.0, rejected_by="central-fluxes"),
        Check("moments of a Gaussian: error in units of h²", moments, high=2.0, rejected_by="frozen-context"),
    )
    return Outcome(checks, _figure(G, config, masses, particles) if variant == "claim" else None)


def _figure(G: AbstractInContextMap, config: Config, masses: np.ndarray, particles: AbstractAtomic) -> Figure:
    x, (start, end) = _centers(config)[:, 0], masses * config.cells / WIDTH
    stale = _solved(G, _bumps, config, "frozen-context")[0][1] * config.cells / WIDTH
    heights, edges = np.histogram(
        np.asarray(particles.points)[:, 0], 48, weights=np.asarray(particles.weights), density=True
    )
    return Figure(
        "One equation, solved twice",
        "x",
        "density",
        (
            Series("start", x, start, "dashed", role="measure"),
            Series("grid", x, end, "line", role="measured"),
            Series("particles", (edges[1:] + edges[:-1]) / 2, heights, "points", role="measured"),
            Series("control: context of the start", x, stale, "line", role="control"),
        ),
        caption=f"Softmax attention on two bumps, to time {config.time:g}; {config.cells} cells.",
    )


claim = Claim(
    name="leveque-2002-grid-and-particles",
    title="Particles and a grid agree on the flow of a density",
    kind="observation",
    statement=(
        "Finite volumes on cells of width h and particles at quantiles solve ∂_t μ + div(μ v[μ]) = 0: masses of cells "
        "stay ≥ 0 and their sum does not change. Observed: both agree up to half a cell in W_1, and moments of a "
        "Gaussian are those of its closed flow up to 2h²."
    ),
    hypotheses=("dimension 1", "softmax attention, velocity read from cells as atoms at their centres"),
    reference="leveque2002, Chapters 6 and 20; castin2025",
    measure=measure,
    controls={
        "frozen-context": "The velocity is read from the context of the start: a linear transport equation.",
        "advective-form": "The equation ∂_t μ + v[μ]·∇μ = 0, without the term μ div v[μ].",
        "central-fluxes": "Fluxes of the mean of two cells in place of the one that the velocity comes from.",
    },
    quick=Config(),
    full=Config(cells=1024, particles=8192),
)
