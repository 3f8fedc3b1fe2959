"""Prompts that sample a curve have a common Lipschitz constant in time; rough ones have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import SpaceTime
from measureformer.universality import time_lipschitz


@dataclass(frozen=True)
class Config:
    smallest: int = 8
    doublings: int = 2
    lipschitz: float = 3.0


def _constants(key: Any, config: Config, *, rough: bool) -> tuple[list[int], list[float]]:
    rng = generator(key)
    phase = float(rng.uniform(0, np.pi))
    sizes = [config.smallest * 2**k for k in range(config.doublings + 1)]
    constants: list[float] = []
    for n in sizes:
        curve = np.sin(config.lipschitz * (np.arange(n) + 1) / n + phase)[:, None]
        tokens = rng.uniform(-1, 1, (n, 1)) if rough else curve
        constants.append(time_lipschitz(SpaceTime.sequence(tokens), p=1).constant)
    return sizes, constants


def _outcome(constants: list[float], config: Config, figure: Figure | None = None) -> Outcome:
    return Outcome((Check("largest constant", max(constants), high=config.lipschitz),), figure)


def _run(key: Any, config: Config) -> Outcome:
    sizes, constants = _constants(key, config, rough=False)
    places = tuple(map(float, sizes))
    figure = Figure(
        "Speed at which the context of a masked prompt changes",
        "tokens",
        "smallest constant C",
        (
            Series("tokens on a curve", places, tuple(constants), "points"),
            Series("control: independent tokens", places, tuple(_constants(key, config, rough=True)[1]), "points"),
            Series("Lipschitz constant of the curve", places, (config.lipschitz,) * len(places), "dashed"),
        ),
        xscale="log",
        yscale="log",
    )
    return _outcome(constants, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_constants(key, config, rough=True)[1], config)


claim = Claim(
    name="furuya-2024-lipschitz-in-time",
    title="The hypothesis of the masked theorem",
    statement=(
        "Prompts whose n tokens sample a curve with Lipschitz constant L at times 1/n, …, 1 satisfy the hypothesis of "
        "the masked theorem with one constant for all n: W_1(mu_s, mu_t) ≤ L |s − t| for the contexts mu_t seen at t."
    ),
    hypotheses=("tokens on a curve",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="Independent tokens: the second one takes half of the mass in a time 1/n, so C grows like n.",
    quick=Config(),
    full=Config(doublings=7),
)
