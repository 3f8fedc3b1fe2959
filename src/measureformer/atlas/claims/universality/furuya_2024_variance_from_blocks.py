"""The variance is a limit of two blocks, to second order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.universality_blocks import largest
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.universality import Block


@dataclass(frozen=True)
class Config:
    atoms: int = 6
    steps: int = 5
    largest_step: float = 0.2


def _tilted(b: float) -> Block:
    return Block(None, [b], 0.0, None, [1.0])


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    places, weights = rng.exponential(size=(config.atoms, 1)), rng.uniform(0.2, 1, config.atoms)
    mu = Discrete.weighted(places, weights)
    p = weights / weights.sum()
    y = places[:, 0] - p @ places[:, 0]
    variance = p @ y**2
    fourth = p @ y**4 - 3 * variance**2
    steps = config.largest_step * 2.0 ** -np.arange(config.steps)
    errors = np.zeros(config.steps)
    for i, h in enumerate(steps.tolist()):
        left = 0.0 if variant == "one-sided" else -h
        pair = (_tilted(h) - _tilted(left)) * (1 / (h - left))
        errors[i] = largest(np.asarray(pair(mu, [[0.0]])) - variance)
    # at larger steps the next term of the expansion is still there
    slope = np.log(errors[-2] / errors[-1]) / np.log(steps[-2] / steps[-1])
    predicted = steps**2 * abs(fourth) / 6
    ratio = errors[-1] / predicted[-1]
    checks = (
        Check("slope in h at the two smallest", slope, low=1.9, high=2.1, rejected_by="one-sided"),
        Check("error / (h² |κ₄| / 6) at the smallest h", ratio, low=0.95, high=1.05, rejected_by="one-sided"),
    )
    figure = Figure(
        "The variance from two blocks",
        "h",
        "error",
        (
            Series("measured", steps, errors, "points", role="measured"),
            Series("h² |κ₄| / 6", steps, predicted, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="furuya-2024-variance-from-blocks",
    title="The variance as a limit of two blocks",
    kind="theorem",
    statement=(
        "For every measure on the line with finite moments, (L_1(h) − L_1(−h))/(2h) tends to the variance, with error "
        "h² |κ_4|/6 (1 + O(h²)), where L_1(b) = ∫ y e^{by} dmu / ∫ e^{by} dmu and κ_4 is the fourth cumulant."
    ),
    hypotheses=("fourth cumulant not zero",),
    reference="furuya2024",
    measure=measure,
    controls={"one-sided": "The one-sided difference (L_1(h) − L_1(0))/h, which is of first order only."},
    quick=Config(),
    full=Config(atoms=200),
)
