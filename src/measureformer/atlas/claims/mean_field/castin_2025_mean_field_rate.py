"""A deep network on N tokens in five dimensions: where it takes a point is known to N^{-1/2}, whatever W_1 says.

E W_1(μ_N, μ) is of order N^{-1/5} there, and by stability no better rate follows from it for the network. But where a
point is taken depends smoothly on averages over the tokens, and averages have the rate of Monte Carlo. The reference is
exact: on a Gaussian every layer is affine, and its image is Gaussian again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import matmul
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator, once
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention, Residual
from measureformer.mean_field import MeanField, mean_field
from measureformer.measures import Discrete, Gaussian
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


def _sizes(config: Config) -> tuple[int, ...]:
    return tuple(config.smallest * config.factor**i for i in range(config.sizes))


def _point(key: Any, config: Config) -> MeanField:
    rng, d = generator(key), config.dim
    A, V, x = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d)
    G = Attention.head(0.3 * A / np.linalg.norm(A, 2), np.eye(d), V / np.linalg.norm(V, 2))
    layer = Residual(G, config.time / config.layers)
    net = reduce(matmul, [layer] * config.layers)
    law = Gaussian(np.zeros(d), np.eye(d))
    return mean_field(lambda mu: net(mu, x), law, key, sizes=_sizes(config), repetitions=config.repetitions)


@once
def _distance(key: Any, config: Config) -> MeanField:
    """Between two halves of the sample, at the start: the network would change the constant and not the rate."""

    def apart(mu: Any) -> Any:
        half = mu.n // 2
        return wasserstein(Discrete.uniform(mu.points[:half]), Discrete.uniform(mu.points[half:]), 1)

    law = Gaussian(np.zeros(config.dim), np.eye(config.dim))
    return mean_field(apart, law, key, sizes=_sizes(config), repetitions=max(4, config.repetitions // 32), exact=0.0)


def _outcome(study: MeanField, config: Config, figure: Figure | None = None) -> Outcome:
    half = (study.order_interval[1] - study.order_interval[0]) / 2
    check = Check("order in N", study.order, -0.5 - config.allowed, -0.5 + config.allowed, error=half)
    return Outcome((check,), figure)


def _run(key: Any, config: Config) -> Outcome:
    study, slow = _point(key, config), _distance(key, config)
    n = tuple(map(float, study.sizes))

    def curve(values: Any) -> tuple[float, ...]:
        return tuple(map(float, values))

    decay = (np.array(study.sizes) / study.sizes[0]) ** -0.5
    figure = Figure(
        f"N tokens instead of their law, dimension {config.dim}",
        "number of tokens N",
        "root mean square error",
        (
            Series("where a point is taken", n, curve(study.errors), "points"),
            Series("95 % confidence", n, curve(study.interval[:, 0]), "band", curve(study.interval[:, 1])),
            Series("N^{-1/2}", n, curve(study.errors[0] * decay), "dashed"),
            Series("control: W_1 between two halves", n, curve(slow.errors), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; {config.layers} residual layers of attention, exact reference.",
    )
    return _outcome(study, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_distance(key, config), config)


claim = Claim(
    name="castin-2025-mean-field-rate",
    title="Networks on N tokens converge at the rate of Monte Carlo in every dimension",
    statement=(
        "For a residual network of softmax attention, N independent tokens of μ = N(0, I) in dimension 5, any x: the "
        "root mean square of |φ[μ_N](x) − φ[μ](x)| is of order N^{-1/2}, where φ[μ] is affine and known exactly."
    ),
    hypotheses=("the tokens are independent", "softmax attention, so that Gaussians stay Gaussian"),
    reference="castin2025; vandervaart1998, Theorem 3.1",
    run=_run,
    control=_control,
    control_statement="The distance W_1 of two samples instead, which is of order N^{-1/5}.",
    quick=Config(),
    full=Config(layers=4, factor=2, sizes=6, repetitions=512, allowed=0.05),
)
