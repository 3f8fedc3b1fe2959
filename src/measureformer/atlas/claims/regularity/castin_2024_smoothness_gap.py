"""All that is known about the smoothness of one head, on one axis: proved, attained, and typical constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.regularity_heads import DIM, cluster_constant, head, random_ball
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.regularity import ball, castin24_ball, local_lipschitz, tokens


@dataclass(frozen=True)
class Config:
    growth: float = 9.0
    largest_random: int = 16
    largest: int = 1_000_000
    sizes: int = 12
    repetitions: int = 3


def _random(key: Any, config: Config) -> list[tuple[int, float]]:
    """The number of tokens and the mean constant of random clouds of that many."""
    rng, radius = generator(key), math.sqrt(config.growth / 2)
    found: list[tuple[int, float]] = []
    for n in (2**k for k in range(1, int(math.log2(config.largest_random)) + 1)):
        clouds = [Discrete.uniform(random_ball(rng, n, radius)) for _ in range(config.repetitions)]
        found.append((n, float(np.mean([local_lipschitz(head(-np.eye(DIM)), mu).lower for mu in clouds]))))
    return found


def _outcome(key: Any, config: Config, shrunk: float, draw: bool) -> Outcome:
    radius = shrunk * math.sqrt(config.growth / 2)
    n = [float(size) for size in np.geomspace(2, config.largest, config.sizes)]
    clusters = [cluster_constant(size, config.growth) for size in n]
    for_n = [tokens(1.0, 1.0, radius, round(size)) for size in n]
    for_all, printed = ball(1.0, 1.0, radius), castin24_ball(1.0, 1.0, radius)
    typical = _random(key, config)
    proved = [min(bound, for_all, printed) for bound in for_n]
    share = max(lower / bound for (lower, _), bound in zip(clusters, proved, strict=True))
    checks = (
        Check("adversarial constants over the best bound, largest", share, 0.4, 1.0),
        Check("certificate over the adversarial constant, largest", max(up / low for low, up in clusters), 1.0, 2.0),
        Check(
            "random constants over the largest adversarial one", max(c for _, c in typical) / max(clusters)[0], high=1.0
        ),
    )
    if not draw:
        return Outcome(checks)
    sizes, ends = tuple(n), (n[0], n[-1])
    figure = Figure(
        "The smoothness of one head: what is known",
        "number of tokens n",
        "Lipschitz constant",
        (
            Series("bound for measures, any W_p", ends, (printed, printed), "line"),
            Series("bound for measures, W_2", ends, (for_all, for_all), "line"),
            Series("bound for n tokens", sizes, tuple(for_n), "line"),
            Series("certificate at two clusters", sizes, tuple(upper for _, upper in clusters), "line"),
            Series("two clusters", sizes, tuple(lower for lower, _ in clusters), "points"),
            Series("random clouds", tuple(float(m) for m, _ in typical), tuple(c for _, c in typical), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"A = −I, V = I, R² = {config.growth / 2:g}. What lies between the lines and the points is open.",
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, 1.0, True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, 0.5, False)


claim = Claim(
    name="castin-2024-smoothness-gap",
    title="The open gap between bounds and worst cases",
    statement=(
        "For A = −I and V = I in B(0, R): every known bound lies above the constants of two clusters for every n, the "
        "best of them by less than a factor 2.5 where they are closest; random clouds are far smoother."
    ),
    hypotheses=("one softmax head", "tokens of equal weight in the ball"),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="The bounds for a ball of half the radius.",
    quick=Config(),
    full=Config(largest_random=1024, sizes=60, repetitions=20),
)
