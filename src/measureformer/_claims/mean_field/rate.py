"""A flow on N tokens in five dimensions: where a point goes is known to N^{-1/2}, whatever W_1 says.

E W_1(μ_N, μ) is of order N^{-1/5} there, and by stability no better rate follows from it for the flow. But where a
point is taken depends smoothly on averages over the tokens, and averages have the rate of Monte Carlo. The reference
is exact: for V = I, A symmetric and μ_0 = N(0, Σ), φ_T[μ_0](x) = (I − 2TΣA)^{-1/2} x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer.flows import MeanField, flow, mean_field
from measureformer.maps import Attention
from measureformer.measures import Discrete, Gaussian
from measureformer.result import Check, Figure, Outcome, Series
from measureformer.transport import wasserstein


@dataclass(frozen=True)
class Config:
    dim: int = 5
    time: float = 0.2
    smallest: int = 32
    factor: int = 4
    sizes: int = 3
    repetitions: int = 128
    allowed: float = 0.08


def _sizes(config: Config) -> tuple[int, ...]:
    return tuple(config.smallest * config.factor**i for i in range(config.sizes))


def _point(key: Any, config: Config) -> MeanField:
    rng, d, T = generator(key), config.dim, config.time
    A = rng.normal(size=(d, d))
    A = 0.6 * (A + A.T) / np.linalg.norm(A + A.T, 2)
    x = rng.normal(size=d)
    law = Gaussian(np.zeros(d), np.eye(d))
    values, vectors = np.linalg.eigh(A)
    exact = vectors @ ((vectors.T @ x) / np.sqrt(1 - 2 * T * values))
    # steps of order 4: their error, 1e-6, is far below that of sampling
    traj = flow(Attention.head(A, np.eye(d), np.eye(d)), Discrete.dirac(x), [0.0, T], solver="rk4", steps=4)
    phi = traj.map(T)
    return mean_field(
        lambda mu: phi(mu, x), law, key, sizes=_sizes(config), repetitions=config.repetitions, exact=exact
    )


def _distance(key: Any, config: Config) -> MeanField:
    """Between two halves of the sample, at the start: the flow would change the constant and not the rate."""

    def apart(mu: Any) -> Any:
        half = mu.n // 2
        return wasserstein(Discrete.uniform(mu.points[:half]), Discrete.uniform(mu.points[half:]), 1)

    law = Gaussian(np.zeros(config.dim), np.eye(config.dim))
    return mean_field(apart, law, key, sizes=_sizes(config), repetitions=max(4, config.repetitions // 16), exact=0.0)


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
        caption=f"{config.repetitions} repetitions; softmax attention to time {config.time:g}, exact reference.",
    )
    return _outcome(study, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_distance(key, config), config)


claim = Claim(
    name="castin-2025-mean-field-rate",
    title="Flows on N tokens converge at the rate of Monte Carlo in every dimension",
    statement=(
        "For μ_0 = N(0, I) in dimension 5, V = I, A symmetric and N independent tokens of μ_0: the root mean square "
        "of |φ_T[μ_N](x) − (I − 2TA)^{-1/2} x| is of order N^{-1/2}."
    ),
    hypotheses=("the tokens are independent", "T is before the blow-up"),
    reference="castin2025; vandervaart1998, Theorem 3.1",
    run=_run,
    control=_control,
    control_statement="The distance W_1 of two samples instead, which is of order N^{-1/5}.",
    quick=Config(),
    full=Config(factor=2, sizes=6, repetitions=1024, allowed=0.05),
)
