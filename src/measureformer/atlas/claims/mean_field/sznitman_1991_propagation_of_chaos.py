"""Two of N tokens become independent as N grows: their covariance after a deep network is of order 1/N."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import matmul

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.maps import Attention, Residual
from measureformer.mean_field import pair_covariance
from measureformer.mean_field.convergence import PairCovariance
from measureformer.measures import Discrete, Gaussian
from measureformer.numerics.arrays import scalar


@dataclass(frozen=True)
class Config:
    time: float = 0.6
    layers: int = 3
    smallest: int = 32
    """At 8 tokens N·Cov is still a fifth below its limit, which makes the order −0.88."""
    factor: int = 4
    sizes: int = 2
    repetitions: int = 4000
    shift: float = 0.5
    allowed: float = 0.25


class _Shifted(eqx.Module):
    """Independent tokens, and then one random shift of all of them."""

    law: Gaussian
    shift: Array

    def sample(self, key: Key, n: int) -> Discrete:
        mu = self.law.sample(jax.random.fold_in(key, 0), n)
        return mu.with_points(mu.points + self.shift * jax.random.normal(jax.random.fold_in(key, 1), (1, 2)))


def _psi(x: Array) -> Array:
    return jnp.tanh(x[:, 0])


@once
def _study(key: Key, config: Config, variant: str) -> PairCovariance:
    law = Gaussian([0.3, 0.0], np.diag([0.5, 0.3]))
    start = _Shifted(law, scalar(config.shift if variant == "common-shift" else 0.0, "shift"))
    values = np.zeros((2, 2)) if variant == "no-interaction" else np.eye(2)
    layer = Residual(Attention.head([[1.0, 0.3], [-0.2, 0.8]], np.eye(2), values), config.time / config.layers)
    net = reduce(matmul, [layer] * config.layers)
    sizes = tuple(config.smallest * config.factor**i for i in range(config.sizes))
    return pair_covariance(net, _psi, start, key, sizes=sizes, repetitions=config.repetitions)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    study = _study(key, config, variant)
    half = np.ptp(study.order_interval) / 2
    low, high = -1 - config.allowed, -1 + config.allowed
    least = (study.covariances / study.standard_errors).min()
    checks = (
        Check("order of the covariance in N", study.order, low, high, error=half, rejected_by="common-shift"),
        # a covariance that cannot be told from zero has no order
        Check("covariance over its standard error, least", least, low=5.0, rejected_by="no-interaction"),
    )
    return Outcome(checks, _figure(key, config, study) if variant == "claim" else None)


def _figure(key: Key, config: Config, study: PairCovariance) -> Figure:
    n, found, five = np.array(study.sizes), study.covariances, 5 * study.standard_errors
    shifted = _study(key, config, "common-shift").covariances
    return Figure(
        "Two tokens of N",
        "number of tokens N",
        "Cov(ψ(X_1), ψ(X_2)) after the network",
        (
            Series("independent at the start", n, found, "points", role="measured"),
            Series("± 5 standard errors", n, found - five, "band", found + five, role="measured"),
            Series("1/N", n, found[0] * n[0] / n, "dashed", role="theory"),
            Series("control: a common shift", n, shifted, "points", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.repetitions} repetitions; {config.layers} residual layers, ψ = tanh of a coordinate.",
    )


claim = Claim(
    name="sznitman-1991-propagation-of-chaos",
    title="Tokens of a long prompt become independent",
    kind="theorem",
    statement=(
        "For N tokens that are independent at the start and go through residual layers of attention, and smooth ψ: "
        "Cov(ψ(X_1), ψ(X_2)) is of order 1/N, so the law of two tokens tends to the product of their laws."
    ),
    hypotheses=("the tokens are independent and alike at the start", "the layers are smooth in the measure"),
    reference="sznitman1991, Chapter I",
    measure=measure,
    controls={
        "common-shift": "All tokens are shifted by one random vector at the start: their covariance stays.",
        "no-interaction": "Layers with values of zero, in which no token sees another: the covariance is zero.",
    },
    quick=Config(),
    full=Config(layers=8, smallest=16, factor=2, sizes=4, repetitions=20_000, allowed=0.1),
)
