"""The variance is a limit of two blocks, to second order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.universality_blocks import largest
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.universality import Block


@dataclass(frozen=True)
class Config:
    atoms: int = 6
    steps: int = 5
    largest_step: float = 0.2


def _tilted(b: float) -> Block:
    return Block(None, [b], 0.0, None, [1.0])


def _measured(key: Any, config: Config, *, one_sided: bool) -> Outcome:
    rng = generator(key)
    places, weights = rng.exponential(size=(config.atoms, 1)), rng.uniform(0.2, 1, config.atoms)
    mu = Discrete.weighted(places, weights)
    p, y = weights / weights.sum(), places[:, 0] - (weights / weights.sum()) @ places[:, 0]
    variance, fourth = float(p @ y**2), float(p @ y**4 - 3 * (p @ y**2) ** 2)
    steps = [config.largest_step * 2.0**-k for k in range(config.steps)]
    errors: list[float] = []
    for h in steps:
        pair = (_tilted(h) - _tilted(0.0)) * (1 / h) if one_sided else (_tilted(h) - _tilted(-h)) * (1 / (2 * h))
        errors.append(largest(np.asarray(pair(mu, [[0.0]])) - variance))
    slope = float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
    predicted = [h**2 * abs(fourth) / 6 for h in steps]
    figure = Figure(
        "The variance from two blocks",
        "h",
        "error",
        (
            Series("measured", tuple(steps), tuple(errors), "points"),
            Series("h² |κ₄| / 6", tuple(steps), tuple(predicted), "dashed"),
        ),
        xscale="log",
        yscale="log",
    )
    checks = (
        Check("slope in h", slope, low=1.9, high=2.1),
        Check("error / (h² |κ₄| / 6) at the smallest h", errors[-1] / predicted[-1], low=0.95, high=1.05),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _measured(key, config, one_sided=False)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_measured(key, config, one_sided=True).checks)


claim = Claim(
    name="furuya-2024-variance-from-blocks",
    title="The variance as a limit of two blocks",
    statement=(
        "For every measure on the line with finite moments, (L_1(h) − L_1(−h))/(2h) tends to the variance, with error "
        "h² |κ_4|/6 (1 + O(h²)), where L_1(b) = ∫ y e^{by} dmu / ∫ e^{by} dmu and κ_4 is the fourth cumulant."
    ),
    hypotheses=("fourth cumulant not zero",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The one-sided difference (L_1(h) − L_1(0))/h, which is of first order only.",
    quick=Config(),
    full=Config(atoms=200),
)
