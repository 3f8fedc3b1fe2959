"""Two theorems on the smoothness of attention, and the term that is missing where one of them was printed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.regularity_heads import DIM, head, norm, random_ball
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.regularity import castin24_ball, castin24_tokens, local_lipschitz, tokens, two_clusters


@dataclass(frozen=True)
class Config:
    clouds: int = 40
    largest_n: int = 16
    smallest_s: float = 0.01
    largest_s: float = 4.0


def _constants(key: Any, config: Config) -> list[tuple[float, float, int, float]]:
    """‖V‖, s = ‖A‖R², n and the local constant, on random clouds and on two clusters; one head has A = 0."""
    rng, measured = generator(key), []
    for s in [0.0, *np.geomspace(config.smallest_s, config.largest_s, config.clouds)]:
        A, V = rng.normal(size=(2, DIM, DIM))
        A, n = (A + A.T) * s / norm(A + A.T), int(rng.integers(2, config.largest_n + 1))
        for X in (random_ball(rng, n, 1.0), two_clusters(A, n, 1.0)):
            constant = local_lipschitz(head(A, V), Discrete.uniform(X)).lower
            measured.append((norm(V), float(s), n, constant))
    return measured


def _outcome(key: Any, config: Config, for_tokens: Callable[..., float], figure: bool) -> Outcome:
    measured = _constants(key, config)
    ball = [constant / castin24_ball(v, s, 1.0) for v, s, _, constant in measured]
    bounds = [for_tokens(v, s, 1.0, n) for v, s, n, _ in measured]
    cloud = [m[3] / bound if bound > 0 else math.inf for m, bound in zip(measured, bounds, strict=True)]
    rounding = 1e-9
    checks = (
        Check("constant over the bound for measures, largest", max(ball), high=1 + rounding),
        Check("constant over the bound for n tokens, largest", max(cloud), high=1 + rounding),
    )
    return Outcome(checks, _figure(measured, ball, cloud) if figure else None)


def _figure(measured: list[tuple[float, float, int, float]], ball: list[float], cloud: list[float]) -> Figure:
    some = [i for i, m in enumerate(measured) if m[1] > 0]
    s = tuple(measured[i][1] for i in some)
    printed = tuple(
        measured[i][3] / castin24_tokens(measured[i][0], s_i, 1.0, measured[i][2])
        for i, s_i in zip(some, s, strict=True)
    )
    return Figure(
        "Measured constants over their bounds",
        "s = ‖A‖R²",
        "local constant / bound",
        (
            Series("measures in a ball", s, tuple(ball[i] for i in some), "points"),
            Series("n tokens, with the term +n", s, tuple(cloud[i] for i in some), "points"),
            Series("control: n tokens, as printed", s, printed, "points"),
            Series("bound", (s[0], s[-1]), (1.0, 1.0), "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption="Random clouds and two clusters in dimension 3; each head with its own random V.",
    )


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, tokens, True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, castin24_tokens, False)


claim = Claim(
    name="castin-2024-lipschitz-bounds",
    title="Attention is Lipschitz: two bounds, one of them corrected",
    statement=(
        "For every head and all measures in B(0, R), with s = ‖A‖R²: the push-forward by attention is Lipschitz for "
        "W_2 with constant ‖V‖(1 + 3s)exp(2s); and on n tokens with constant √3‖V‖(s²(n + 1) + n)^½."
    ),
    hypotheses=("supports in the ball of radius R", "one softmax head without residual"),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="The bound for n tokens as printed on slides, ‖V‖s√(12n + 3), which is zero at A = 0.",
    quick=Config(),
    full=Config(clouds=3000),
)
