"""Two theorems on the smoothness of attention, and the term that is missing where one of them was printed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import DIM, head, norm, random_ball
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.regularity import (
    lipschitz_ball_castin24,
    lipschitz_tokens,
    lipschitz_tokens_castin24,
    local_lipschitz,
    two_clusters,
)


@dataclass(frozen=True)
class Config:
    clouds: int = 40
    largest_n: int = 16
    smallest_s: float = 0.01
    largest_s: float = 4.0


def _constants(key: Key, config: Config) -> list[tuple[float, float, int, float]]:
    """‖V‖, s = ‖A‖R², n and the local constant, on random clouds and on two clusters; one head has A = 0."""
    rng, measured = generator(key), []
    for s in [0.0, *np.geomspace(config.smallest_s, config.largest_s, config.clouds)]:
        A, V = rng.normal(size=(2, DIM, DIM))
        A, n = (A + A.T) * s / norm(A + A.T), int(rng.integers(2, config.largest_n + 1))
        for X in (random_ball(rng, n, 1.0), two_clusters(A, n, 1.0)):
            constant = local_lipschitz(head(A, V), Discrete.uniform(X)).lower
            measured.append((norm(V), s, n, constant))
    return measured


def measure(key: Key, config: Config, variant: str) -> Outcome:
    measured = _constants(key, config)
    # without logits s = 0, and the bound is ‖V‖
    logits = 0.0 if variant == "without-logits" else 1.0
    ball = [constant / lipschitz_ball_castin24(v, logits * s, 1.0) for v, s, _, constant in measured]
    cloud, printed = (
        [constant / bound if (bound := for_tokens(v, s, 1.0, n)) > 0 else math.inf for v, s, n, constant in measured]
        for for_tokens in (lipschitz_tokens, lipschitz_tokens_castin24)
    )
    largest, high = max(printed if variant == "as-printed" else cloud), 1 + 1e-9
    checks = (
        Check("constant over the bound for measures, largest", max(ball), high=high, rejected_by="without-logits"),
        Check("constant over the bound for n tokens, largest", largest, high=high, rejected_by="as-printed"),
    )
    s = [entry[1] for entry in measured]
    return Outcome(checks, _figure(s, ball, cloud, printed) if variant == "claim" else None)


def _figure(s: list[float], ball: list[float], cloud: list[float], printed: list[float]) -> Figure:
    # on a logarithmic axis, those at s > 0
    x, for_all, for_n, on_slides = np.array([s, ball, cloud, printed])[:, np.array(s) > 0]
    return Figure(
        "Measured constants over their bounds",
        "s = ‖A‖R²",
        "local constant / bound",
        (
            Series("measures in a ball", x, for_all, "points", role="measured"),
            Series("n tokens, with the term +n", x, for_n, "points", role="measured"),
            Series("control: n tokens, as printed", x, on_slides, "points", role="control"),
            Series("bound", x[[0, -1]], (1, 1), "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption="Random clouds and two clusters in dimension 3; each head with its own random V.",
    )


claim = Claim(
    name="castin-2024-lipschitz-bounds",
    title="Attention is Lipschitz: two bounds, one of them corrected",
    kind="theorem",
    statement=(
        "For every head and all measures in B(0, R), with s = ‖A‖R²: the push-forward by attention is Lipschitz for "
        "W_2 with constant ‖V‖(1 + 3s)exp(2s); and on n tokens with constant √3‖V‖(s²(n + 1) + n)^½."
    ),
    hypotheses=("supports in the ball of radius R", "one softmax head without residual"),
    reference="castin2024",
    measure=measure,
    controls={
        "as-printed": "The bound for n tokens as printed on slides, ‖V‖s√(12n + 3), which is zero at A = 0.",
        "without-logits": "The bound for measures without its growth in s: ‖V‖, the constant of the mean.",
    },
    quick=Config(),
    full=Config(clouds=3000),
)
