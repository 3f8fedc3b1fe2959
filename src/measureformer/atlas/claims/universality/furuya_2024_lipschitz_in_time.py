"""Prompts that sample a curve have a common Lipschitz constant in time; rough ones have none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import SpaceTime
from measureformer.universality import time_lipschitz


@dataclass(frozen=True)
class Config:
    smallest: int = 8
    doublings: int = 2
    lipschitz: float = 3.0


def _constants(key: Key, config: Config, *, rough: bool) -> dict[int, float]:
    """The smallest constant, for each number of tokens."""
    rng = generator(key)
    phase = rng.uniform(0, np.pi)
    found: dict[int, float] = {}
    for n in (config.smallest * 2**k for k in range(config.doublings + 1)):
        curve = np.sin(config.lipschitz * (np.arange(n) + 1) / n + phase)[:, None]
        tokens = rng.uniform(-1, 1, (n, 1)) if rough else curve
        found[n] = time_lipschitz(SpaceTime.sequence(tokens), p=1).constant
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _constants(key, config, rough=variant == "independent-tokens")
    check = Check("largest constant", max(found.values()), high=config.lipschitz, rejected_by="independent-tokens")
    return Outcome((check,), _figure(key, config, found) if variant == "claim" else None)


def _figure(key: Key, config: Config, found: dict[int, float]) -> Figure:
    sizes, rough = list(found), _constants(key, config, rough=True)
    return Figure(
        "Speed at which the context of a masked prompt changes",
        "tokens",
        "smallest constant C",
        (
            Series("tokens on a curve", sizes, list(found.values()), "points", role="measured"),
            Series("control: independent tokens", sizes, list(rough.values()), "points", role="control"),
            Series("Lipschitz constant of the curve", sizes, [config.lipschitz] * len(sizes), "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
    )


claim = Claim(
    name="furuya-2024-lipschitz-in-time",
    title="The hypothesis of the masked theorem",
    kind="theorem",
    statement=(
        "Prompts whose n tokens sample a curve with Lipschitz constant L at times 1/n, …, 1 satisfy the hypothesis of "
        "the masked theorem with one constant for all n: W_1(mu_s, mu_t) ≤ L |s − t| for the contexts mu_t seen at t."
    ),
    hypotheses=("tokens on a curve",),
    reference="furuya2024",
    measure=measure,
    controls={
        "independent-tokens": "Independent tokens: the second takes half of the mass in a time 1/n, so C grows like n."
    },
    quick=Config(),
    full=Config(doublings=7),
)
