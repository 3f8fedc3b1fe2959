"""Normalisation puts tokens on a sphere, and the constant of attention no longer depends on how far they have grown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import DIM, head, norm
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import LayerNorm
from measureformer.measures import Discrete
from measureformer.regularity import lipschitz_ball, local_lipschitz


@dataclass(frozen=True)
class Config:
    n: int = 16
    depth: int = 8
    growth: float = 1.6


def _constants(key: Key, config: Config, variant: str) -> tuple[list[float], float]:
    """The constant of one head at the tokens of each depth, which grow by a factor, and the bound on the sphere."""
    rng = generator(key)
    A, V = rng.normal(size=(2, DIM, DIM)) / math.sqrt(DIM)
    X, norm_layer = rng.normal(size=(config.n, DIM)), LayerNorm(np.ones(DIM), eps=0.0)
    clouds = [Discrete.uniform(config.growth**depth * X) for depth in range(config.depth)]
    seen = clouds if variant == "without-layernorm" else map(norm_layer.push, clouds)
    # without logits the bound is ‖V‖
    a_norm = 0.0 if variant == "without-logits" else norm(A)
    return [local_lipschitz(head(A, V), mu).lower for mu in seen], lipschitz_ball(norm(V), a_norm, math.sqrt(DIM))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    constants, bound = _constants(key, config, variant)
    most, least = max(constants), min(constants)
    checks = (
        Check(
            "largest constant over the smallest, minus 1", most / least - 1, high=1e-8, rejected_by="without-layernorm"
        ),
        Check("largest constant over the bound for R = √d", most / bound, high=1.0, rejected_by="without-logits"),
    )
    if variant != "claim":
        return Outcome(checks)
    depth, (without, _) = np.arange(config.depth), _constants(key, config, "without-layernorm")
    figure = Figure(
        "Tokens that grow with depth",
        "depth",
        "local constant of the head",
        (
            Series("after LayerNorm", depth, constants, "points", role="measured"),
            Series("control: without", depth, without, "points", role="control"),
            Series("bound for R = √d", depth[[0, -1]], (bound, bound), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"{config.n} random tokens in dimension 3, times {config.growth:g} at every depth; one random head.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="castin-2024-normalisation",
    title="Normalisation makes the constant independent of scale",
    kind="theorem",
    statement=(
        "For every head and all tokens with unequal coordinates: at normalised tokens the local constant is the same "
        "for X and for ρX, whatever ρ > 0, and it is at most the bound for the radius √d."
    ),
    hypotheses=("LayerNorm with weight 1, bias 0 and eps = 0", "no token has equal coordinates"),
    reference="castin2024",
    measure=measure,
    controls={
        "without-layernorm": "The same tokens without LayerNorm.",
        "without-logits": "The bound without its growth in the radius: ‖V‖, the constant of the mean.",
    },
    quick=Config(),
    full=Config(n=512, depth=16),
)
