"""First-order blocks separate measures that mean and variance cannot tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.universality import tilted_mean


@dataclass(frozen=True)
class Config:
    pairs: int = 30
    atoms: int = 5
    tilts: int = 41
    reach: float = 5.0


def _standardised(rng: np.random.Generator, n: int) -> Discrete:
    """A random measure with mean 0 and variance 1."""
    y, p = rng.normal(size=n), rng.dirichlet(np.ones(n))
    y = y - p @ y
    return Discrete.weighted((y / np.sqrt(p @ y**2))[:, None], p)


def _gaps(key: Any, config: Config, reach: float) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(key)
    tilts = np.linspace(-reach, reach, config.tilts)
    pairs = [[_standardised(rng, config.atoms) for _ in range(2)] for _ in range(config.pairs)]
    values = [[tilted_mean(mu, tilts[:, None])[:, 0] for mu in pair] for pair in pairs]
    return tilts, np.array([np.abs(one - other) for one, other in values])


def _outcome(gaps: np.ndarray, figure: Figure | None = None) -> Outcome:
    return Outcome(
        (Check("smallest over pairs of the largest |L_1(b) − L_1'(b)|", float(gaps.max(axis=1).min()), low=1e-4),),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    tilts, gaps = _gaps(key, config, config.reach)
    hardest = gaps[gaps.max(axis=1).argmin()]
    figure = Figure(
        "What one block sees of two measures with equal mean and variance",
        "tilt b",
        "|L_1(b) − L_1'(b)|",
        (
            Series("median pair", tuple(tilts.tolist()), tuple(np.median(gaps, axis=0).tolist())),
            Series("hardest pair", tuple(tilts.tolist()), tuple(hardest.tolist())),
        ),
    )
    return _outcome(gaps, figure)


def _control(key: Any, config: Config) -> Outcome:
    # so near to b = 0 a block shows the mean and the variance, which are equal, and no more
    return _outcome(_gaps(key, config, 1e-3)[1])


claim = Claim(
    name="furuya-2024-separation",
    title="Blocks separate points",
    statement=(
        "For all measures mu ≠ mu' on the line there is a tilt b with L_1(b) ≠ L_1'(b), L_1(b) = ∫ y e^{by} dmu / "
        "∫ e^{by} dmu: here on random pairs with equal mean and variance, by more than 1e-4 for some |b| ≤ 5."
    ),
    hypotheses=("compact support",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="Tilts |b| ≤ 1e-3, at which only mean and variance are seen.",
    quick=Config(),
    full=Config(pairs=1000, tilts=201),
)
