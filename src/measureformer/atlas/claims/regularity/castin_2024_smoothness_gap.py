"""All that is known about the smoothness of one head, on one axis: proved, attained, and typical constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import DIM, cluster_constant, head, random_ball
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.regularity import lipschitz_ball, lipschitz_ball_castin24, lipschitz_tokens, local_lipschitz


@dataclass(frozen=True)
class Config:
    growth: float = 9.0
    largest_random: int = 16
    largest: int = 1_000_000
    sizes: int = 12
    repetitions: int = 3


def _random(key: Key, config: Config) -> tuple[list[int], list[float]]:
    """Numbers of tokens, and the mean constants of random clouds of that many."""
    rng, radius = generator(key), math.sqrt(config.growth / 2)
    sizes, means = [2**k for k in range(1, int(math.log2(config.largest_random)) + 1)], []
    for n in sizes:
        clouds = [Discrete.uniform(random_ball(rng, n, radius)) for _ in range(config.repetitions)]
        means.append(float(np.mean([local_lipschitz(head(-np.eye(DIM)), mu).lower for mu in clouds])))
    return sizes, means


def measure(key: Key, config: Config, variant: str) -> Outcome:
    radius = math.sqrt(config.growth / 2) / (2 if variant == "half-the-radius" else 1)
    n = np.geomspace(2, config.largest, config.sizes)
    for_n = [lipschitz_tokens(1.0, 1.0, radius, round(size)) for size in n]
    for_all, printed = lipschitz_ball(1.0, 1.0, radius), lipschitz_ball_castin24(1.0, 1.0, radius)
    # two clusters of equal size are those of two tokens, whatever n
    sizes = np.full_like(n, 2) if variant == "equal-clusters" else n
    lower, upper = np.array([cluster_constant(size, config.growth) for size in sizes]).T
    certified = for_all if variant == "bound-for-certificate" else upper
    random_sizes, random = _random(key, config)
    share = (lower / np.minimum(for_n, min(for_all, printed))).max()
    by_share = "half-the-radius", "equal-clusters"
    over, ratio = "certificate over the adversarial constant, largest", (certified / lower).max()
    below, random_share = "random constants over the largest adversarial one", max(random) / lower.max()
    checks = (
        Check("adversarial constants over the best bound, largest", share, 0.4, 1.0, rejected_by=by_share),
        Check(over, ratio, 1.0, 2.0, rejected_by="bound-for-certificate"),
        Check(below, random_share, high=1.0, rejected_by="equal-clusters"),
    )
    if variant != "claim":
        return Outcome(checks)
    figure = Figure(
        "The smoothness of one head: what is known",
        "number of tokens n",
        "Lipschitz constant",
        (
            Series("bound for measures, any W_p", n[[0, -1]], (printed, printed), "line", role="theory"),
            Series("bound for measures, W_2", n[[0, -1]], (for_all, for_all), "line", role="theory"),
            Series("bound for n tokens", n, for_n, "line", role="theory"),
            Series("certificate at two clusters", n, upper, "line", role="measured"),
            Series("two clusters", n, lower, "points", role="measured"),
            Series("random clouds", random_sizes, random, "points", role="measured"),
        ),
        xscale="log",
        yscale="log",
        caption=f"A = −I, V = I, R² = {config.growth / 2:g}. What lies between the lines and the points is open.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="castin-2024-smoothness-gap",
    title="The open gap between bounds and worst cases",
    kind="observation",
    statement=(
        "For A = −I and V = I in B(0, R), R² = G/2: every known bound lies above the constants of one token against n "
        "− 1 for every n. Observed at the radius of the preset: the best of them by less than a factor 2.5 where they "
        "are closest, the certificate by at most 2; random clouds stay below the largest of these constants."
    ),
    hypotheses=("one softmax head", "tokens of equal weight in the ball"),
    reference="castin2024",
    measure=measure,
    controls={
        "half-the-radius": "The bounds for a ball of half the radius.",
        "bound-for-certificate": "The bound for all measures in the ball in place of the certificate at the cloud.",
        "equal-clusters": "Two clusters of equal size in place of one token against all others.",
    },
    quick=Config(),
    full=Config(largest_random=1024, sizes=60, repetitions=20),
)
