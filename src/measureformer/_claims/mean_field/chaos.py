"""Two of N tokens become independent as N grows: their covariance after a flow is of order 1/N."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer._claims.base import Claim
from measureformer.flows import PairCovariance, flow, pair_covariance
from measureformer.maps import Attention
from measureformer.measures import Discrete, Gaussian
from measureformer.result import Check, Figure, Outcome, Series

SIZES = (8, 16, 32, 64)


@dataclass(frozen=True)
class Config:
    time: float = 0.6
    repetitions: int = 4000
    shift: float = 0.5
    allowed: float = 0.25


class _Shifted(eqx.Module):
    """Independent tokens, and then one random shift of all of them."""

    law: Gaussian
    shift: float

    def sample(self, key: Any, n: int) -> Discrete:
        mu = self.law.sample(jax.random.fold_in(key, 0), n)
        return mu.with_points(mu.points + self.shift * jax.random.normal(jax.random.fold_in(key, 1), (1, 2)))


def _study(key: Any, config: Config, shift: float) -> PairCovariance:
    law = Gaussian([0.3, 0.0], np.diag([0.5, 0.3]))
    G = Attention.head([[1.0, 0.3], [-0.2, 0.8]], np.eye(2), np.eye(2))
    phi = flow(G, law.discretize(4), [0.0, config.time], solver="rk4", steps=4).map(config.time)
    start = _Shifted(law, shift) if shift else law
    return pair_covariance(phi, lambda x: jnp.tanh(x[:, 0]), start, key, sizes=SIZES, repetitions=config.repetitions)


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
    n = tuple(map(float, SIZES))

    def curve(values: Any) -> tuple[float, ...]:
        return tuple(map(float, values))

    five = 5 * study.standard_errors
    figure = Figure(
        "Two tokens of N",
        "number of tokens N",
        "Cov(ψ(X_1), ψ(X_2)) after the flow",
        (
            Series("independent at the start", n, curve(study.covariances), "points"),
            Series("± 5 standard errors", n, curve(study.covariances - five), "band", curve(study.covariances + five)),
            Series("1/N", n, curve(study.covariances[0] * SIZES[0] / np.array(SIZES)), "dashed"),
            Series("control: a common shift", n, curve(shifted.covariances), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; softmax attention in the plane, ψ = tanh of a coordinate.",
    )
    return _outcome(study, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_study(key, config, config.shift), config)


claim = Claim(
    name="sznitman-1991-propagation-of-chaos",
    title="Tokens of a long prompt become independent",
    statement=(
        "For N tokens that are independent at the start and move by attention to time T, and a bounded smooth ψ: "
        "Cov(ψ(X_1), ψ(X_2)) is of order 1/N, so the law of two tokens tends to the product of their laws."
    ),
    hypotheses=("the tokens are independent and alike at the start", "the velocity is smooth"),
    reference="sznitman1991, Chapter I",
    run=_run,
    control=_control,
    control_statement="All tokens are shifted by one random vector at the start: their covariance stays.",
    quick=Config(),
    full=Config(repetitions=40_000, allowed=0.1),
)
