"""Two of N tokens become independent as N grows: their covariance after a deep network is of order 1/N."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import matmul
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import once
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention, Residual
from measureformer.mean_field import PairCovariance, pair_covariance
from measureformer.measures import Discrete, Gaussian
from measureformer.numerics.arrays import scalar


@dataclass(frozen=True)
class Config:
    time: float = 0.6
    layers: int = 3
    smallest: int = 8
    factor: int = 4
    sizes: int = 2
    repetitions: int = 4000
    shift: float = 0.5
    allowed: float = 0.25


class _Shifted(eqx.Module):
    """Independent tokens, and then one random shift of all of them."""

    law: Gaussian
    shift: Array

    def sample(self, key: Any, n: int) -> Discrete:
        mu = self.law.sample(jax.random.fold_in(key, 0), n)
        return mu.with_points(mu.points + self.shift * jax.random.normal(jax.random.fold_in(key, 1), (1, 2)))


def _sizes(config: Config) -> tuple[int, ...]:
    return tuple(config.smallest * config.factor**i for i in range(config.sizes))


def _psi(x: Any) -> Any:
    return jnp.tanh(x[:, 0])


@once
def _study(key: Any, config: Config, shift: float) -> PairCovariance:
    law = Gaussian([0.3, 0.0], np.diag([0.5, 0.3]))
    layer = Residual(Attention.head([[1.0, 0.3], [-0.2, 0.8]], np.eye(2), np.eye(2)), config.time / config.layers)
    net = reduce(matmul, [layer] * config.layers)
    start = _Shifted(law, scalar(shift, "shift"))
    return pair_covariance(net, _psi, start, key, sizes=_sizes(config), repetitions=config.repetitions)


def _outcome(study: PairCovariance, config: Config, figure: Figure | None = None) -> Outcome:
    half = (study.order_interval[1] - study.order_interval[0]) / 2
    least = float((study.covariances / study.standard_errors).min())
    checks = (
        Check("order of the covariance in N", study.order, -1 - config.allowed, -1 + config.allowed, error=half),
        # a covariance that cannot be told from zero has no order
        Check("covariance over its standard error, least", least, low=5.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    study, shifted = _study(key, config, 0.0), _study(key, config, config.shift)
    sizes = np.array(study.sizes)
    n = tuple(map(float, sizes))

    def curve(values: Any) -> tuple[float, ...]:
        return tuple(map(float, values))

    five = 5 * study.standard_errors
    figure = Figure(
        "Two tokens of N",
        "number of tokens N",
        "Cov(ψ(X_1), ψ(X_2)) after the network",
        (
            Series("independent at the start", n, curve(study.covariances), "points"),
            Series("± 5 standard errors", n, curve(study.covariances - five), "band", curve(study.covariances + five)),
            Series("1/N", n, curve(study.covariances[0] * sizes[0] / sizes), "dashed"),
            Series("control: a common shift", n, curve(shifted.covariances), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; {config.layers} residual layers, ψ = tanh of a coordinate.",
    )
    return _outcome(study, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_study(key, config, config.shift), config)


claim = Claim(
    name="sznitman-1991-propagation-of-chaos",
    title="Tokens of a long prompt become independent",
    statement=(
        "For N tokens that are independent at the start and go through residual layers of attention, and smooth ψ: "
        "Cov(ψ(X_1), ψ(X_2)) is of order 1/N, so the law of two tokens tends to the product of their laws."
    ),
    hypotheses=("the tokens are independent and alike at the start", "the layers are smooth in the measure"),
    reference="sznitman1991, Chapter I",
    run=_run,
    control=_control,
    control_statement="All tokens are shifted by one random vector at the start: their covariance stays.",
    quick=Config(),
    full=Config(layers=8, factor=2, sizes=5, repetitions=20_000, allowed=0.1),
)
