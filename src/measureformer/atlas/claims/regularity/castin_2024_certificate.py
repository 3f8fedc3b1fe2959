"""The certified upper value is never below the constant, on random clouds and on those made to break it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.regularity_heads import DIM, head, norm, random_ball
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.regularity import local_lipschitz, two_clusters


@dataclass(frozen=True)
class Config:
    clouds: int = 60
    largest_n: int = 16
    largest_s: float = 10.0


def _brackets(key: Any, config: Config, shrunk: float) -> list[tuple[float, float, float]]:
    """s = ‖A‖R², the constant at a cloud, and the certificate of the cloud times `shrunk`."""
    rng, found = generator(key), []
    for i in range(config.clouds):
        s, n = config.largest_s ** rng.uniform(-1, 1), int(rng.integers(2, config.largest_n + 1))
        A, V = rng.normal(size=(2, DIM, DIM))
        # a head with a real eigenvalue, because its dimension is odd; every second cloud is adversarial
        A *= s / norm(A)
        X = two_clusters(A, n, 1.0) + 1e-3 * rng.normal(size=(n, DIM)) if i % 2 else random_ball(rng, n, 1.0)
        weights, G = rng.uniform(size=n) ** rng.choice([0, 4]) + 1e-6, head(A, V)
        constant = local_lipschitz(G, Discrete.weighted(X, weights))
        smaller = constant if shrunk == 1 else local_lipschitz(G, Discrete.weighted(shrunk * X, weights))
        found.append((s, constant.lower, smaller.upper))
    return found


def _outcome(found: list[tuple[float, float, float]], figure: Figure | None = None) -> Outcome:
    worst = min(upper / lower for _, lower, upper in found)
    return Outcome((Check("upper over lower value, least", worst, low=1.0),), figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _brackets(key, config, 1.0)
    shown = found[:: max(1, len(found) // 500)]
    s = tuple(float(entry[0]) for entry in shown)
    figure = Figure(
        "How much the certificate leaves open",
        "s = ‖A‖R²",
        "certified upper value / local constant",
        (
            Series("clouds", s, tuple(float(np.divide(upper, lower)) for _, lower, upper in shown), "points"),
            Series("equality", (min(s), max(s)), (1.0, 1.0), "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption="Random and adversarial clouds with random weights in dimension 3.",
    )
    return _outcome(found, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_brackets(key, config, 0.5))


claim = Claim(
    name="castin-2024-certificate",
    title="A certificate for the local constant",
    statement=(
        "For every softmax head and every weighted cloud, the local constant in L²(μ) is at most (max_j c_j)^½ + "
        "max_i |V C_i A|, with c_j = Σ_i p_i s_i P_ij/p_j and s_i the largest eigenvalue of V(I + |Ax_i|²C_i)Vᵀ."
    ),
    hypotheses=("P is the softmax, C_i the covariance of the measure that token i sees",),
    reference="castin2024, from the exact derivative",
    run=_run,
    control=_control,
    control_statement="The certificate of the cloud shrunk by half.",
    quick=Config(),
    full=Config(clouds=10_000),
)
