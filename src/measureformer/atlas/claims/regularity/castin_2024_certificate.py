"""The certified upper value is never below the constant, on random clouds and on those made to break it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import DIM, head, norm, random_ball
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.regularity import local_lipschitz, two_clusters


@dataclass(frozen=True)
class Config:
    clouds: int = 60
    largest_n: int = 16
    largest_s: float = 10.0


def _brackets(key: Key, config: Config, shrunk: float) -> np.ndarray:
    """s = ‖A‖R², the constant at a cloud, and the certificate of the cloud times `shrunk`; a row for each."""
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
    return np.array(found)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    s, lower, upper = _brackets(key, config, 0.5 if variant == "half-the-cloud" else 1.0).T
    checks = (Check("upper over lower value, least", (upper / lower).min(), low=1.0, rejected_by="half-the-cloud"),)
    return Outcome(checks, _figure(s, upper / lower) if variant == "claim" else None)


def _figure(s: np.ndarray, ratios: np.ndarray) -> Figure:
    shown = slice(None, None, max(1, len(s) // 500))
    return Figure(
        "How much the certificate leaves open",
        "s = ‖A‖R²",
        "certified upper value / local constant",
        (
            Series("clouds", s[shown], ratios[shown], "points", role="measured"),
            Series("equality", (s[shown].min(), s[shown].max()), (1, 1), "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption="Random and adversarial clouds with random weights in dimension 3.",
    )


claim = Claim(
    name="castin-2024-certificate",
    title="A certificate for the local constant",
    kind="theorem",
    statement=(
        "For every softmax head and every weighted cloud, the local constant in L²(μ) is at most (max_j c_j)^½ + "
        "max_i |V C_i A|, with c_j = Σ_i p_i s_i P_ij/p_j and s_i the largest eigenvalue of V(I + |Ax_i|²C_i)Vᵀ."
    ),
    hypotheses=("P is the softmax, C_i the covariance of the measure that token i sees",),
    reference="castin2024, from the exact derivative",
    measure=measure,
    controls={"half-the-cloud": "The certificate of the cloud shrunk by half."},
    quick=Config(),
    full=Config(clouds=10_000),
)
