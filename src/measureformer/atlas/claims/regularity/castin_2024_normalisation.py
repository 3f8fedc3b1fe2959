"""Normalisation puts tokens on a sphere, and the constant of attention no longer depends on how far they have grown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.regularity_heads import DIM, head, norm
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import LayerNorm
from measureformer.measures import Discrete
from measureformer.regularity import ball, local_lipschitz


@dataclass(frozen=True)
class Config:
    n: int = 16
    depth: int = 8
    growth: float = 1.6


def _constants(key: Any, config: Config, *, normalised: bool) -> tuple[tuple[float, ...], float]:
    """The constant of one head at the tokens of each depth, which grow by a factor, and the bound on the sphere."""
    rng = generator(key)
    A, V = rng.normal(size=(2, DIM, DIM)) / math.sqrt(DIM)
    X, norm_layer = rng.normal(size=(config.n, DIM)), LayerNorm(np.ones(DIM), eps=0.0)
    constants: list[float] = []
    for depth in range(config.depth):
        mu = Discrete.uniform(config.growth**depth * X)
        constants.append(local_lipschitz(head(A, V), norm_layer.push(mu) if normalised else mu).lower)
    return tuple(constants), ball(norm(V), norm(A), math.sqrt(DIM))


def _outcome(constants: tuple[float, ...], bound: float, figure: Figure | None = None) -> Outcome:
    checks = (
        Check("largest constant over the smallest, minus 1", max(constants) / min(constants) - 1, high=1e-8),
        Check("largest constant over the bound for R = √d", max(constants) / bound, high=1.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    constants, bound = _constants(key, config, normalised=True)
    depth = tuple(float(i) for i in range(config.depth))
    figure = Figure(
        "Tokens that grow with depth",
        "depth",
        "local constant of the head",
        (
            Series("after LayerNorm", depth, constants, "points"),
            Series("control: without", depth, _constants(key, config, normalised=False)[0], "points"),
            Series("bound for R = √d", (depth[0], depth[-1]), (bound, bound), "dashed"),
        ),
        yscale="log",
        caption=f"{config.n} random tokens in dimension 3, times {config.growth:g} at every depth; one random head.",
    )
    return _outcome(constants, bound, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_constants(key, config, normalised=False))


claim = Claim(
    name="castin-2024-normalisation",
    title="Normalisation makes the constant independent of scale",
    statement=(
        "For every head and all tokens with unequal coordinates: at normalised tokens the local constant is the same "
        "for X and for ρX, whatever ρ > 0, and it is at most the bound for the radius √d."
    ),
    hypotheses=("LayerNorm with weight 1, bias 0 and eps = 0", "no token has equal coordinates"),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="The same tokens without LayerNorm.",
    quick=Config(),
    full=Config(n=512, depth=16),
)
