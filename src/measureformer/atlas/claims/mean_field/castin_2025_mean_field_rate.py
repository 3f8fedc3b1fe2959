"""A deep network on N tokens in five dimensions: where it takes a point is known to N^{-1/2}, whatever W_1 says.

E W_1(μ_N, μ) is of order N^{-1/5} there, and by stability no better rate follows from it for the network. But where a
point is taken depends smoothly on averages over the tokens, and averages have the rate of Monte Carlo. The reference is
exact: on a Gaussian every layer is affine, and its image is Gaussian again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import matmul

import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.maps import Attention, Residual
from measureformer.mean_field import mean_field_rate
from measureformer.mean_field.convergence import MeanField
from measureformer.measures import AbstractMeasure, Discrete, Gaussian
from measureformer.transport import wasserstein


@dataclass(frozen=True)
class Config:
    dim: int = 5
    layers: int = 3
    time: float = 0.5
    smallest: int = 32
    factor: int = 8
    sizes: int = 2
    repetitions: int = 256
    allowed: float = 0.15
    """Half-way to the rate N^{-1/5} of the control."""


@once
def _study(key: Key, config: Config, variant: str) -> MeanField:
    law = Gaussian(np.zeros(config.dim), np.eye(config.dim))
    sizes = tuple(config.smallest * config.factor**i for i in range(config.sizes))
    if variant == "distance":
        few = max(4, config.repetitions // 32)
        return mean_field_rate(_halves_apart, law, key, sizes=sizes, repetitions=few, exact=0.0)
    rng, d = generator(key), config.dim
    A, V, x = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d)
    G = Attention.head(0.3 * A / np.linalg.norm(A, 2), np.eye(d), V / np.linalg.norm(V, 2))
    net = reduce(matmul, [Residual(G, config.time / config.layers)] * config.layers)
    return mean_field_rate(lambda mu: net(mu, x), law, key, sizes=sizes, repetitions=config.repetitions)


def _halves_apart(mu: AbstractMeasure) -> Array:
    """W_1 between two halves of a sample, at the start: the network would change the constant and not the rate."""
    assert isinstance(mu, Discrete)  # samples are
    half = mu.n // 2
    return wasserstein(Discrete.uniform(mu.points[:half]), Discrete.uniform(mu.points[half:]), 1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    study = _study(key, config, variant)
    half = np.ptp(study.order_interval) / 2
    low, high = -0.5 - config.allowed, -0.5 + config.allowed
    check = Check("order in N", study.order, low, high, error=half, rejected_by="distance")
    return Outcome((check,), _figure(key, config, study) if variant == "claim" else None)


def _figure(key: Key, config: Config, study: MeanField) -> Figure:
    n, (low, high) = np.array(study.sizes), study.interval.T
    decay = study.errors[0] * (n / n[0]) ** -0.5
    return Figure(
        f"N tokens instead of their law, dimension {config.dim}",
        "number of tokens N",
        "root mean square error",
        (
            Series("where a point is taken", n, study.errors, "points", role="measured"),
            Series("95 % confidence", n, low, "band", high, role="measured"),
            Series("N^{-1/2}", n, decay, "dashed", role="theory"),
            Series(
                "control: W_1 between two halves", n, _study(key, config, "distance").errors, "points", role="control"
            ),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; {config.layers} residual layers of attention, exact reference.",
    )


claim = Claim(
    name="castin-2025-mean-field-rate",
    title="Networks on N tokens converge at the rate of Monte Carlo in dimension 5",
    kind="theorem",
    statement=(
        "For a residual network of softmax attention, N independent tokens of μ = N(0, I) in dimension 5, any x: the "
        "root mean square of |φ[μ_N](x) − φ[μ](x)| is of order N^{-1/2}, where φ[μ] is affine and known exactly."
    ),
    hypotheses=(
        "the tokens are independent, in dimension 5",
        "softmax attention, so that Gaussians stay Gaussian",
    ),
    reference="castin2025; vandervaart1998, Theorem 3.1",
    measure=measure,
    controls={"distance": "The distance W_1 of two samples instead, which is of order N^{-1/5}."},
    quick=Config(),
    full=Config(layers=4, factor=2, sizes=6, repetitions=512, allowed=0.05),
)
