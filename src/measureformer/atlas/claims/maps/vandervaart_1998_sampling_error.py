"""How fast attention on N samples reaches attention on their law: the exact constant of the central limit theorem.

Γ[μ_N](x) is a ratio of two empirical means, so by the delta method √N (Γ[μ_N](x) − Γ[μ](x)) is asymptotically normal
with covariance E[w²(Vy−Γ)(Vy−Γ)ᵀ], w = e^{⟨Ax,y⟩}/Z. For μ = N(m, Σ), V = I and a = Ax the trace of it is computed by
completing the square twice: under w², y is N(m + 2Σa, Σ) with total mass e^{aᵀΣa}, and Γ = m + Σa, hence

    N E|Γ[μ_N](x) − Γ[μ](x)|² → e^{aᵀΣa} (tr Σ + |Σa|²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention
from measureformer.measures import Discrete, Gaussian
from measureformer.numerics.arrays import on_device

# A is not symmetric and m is not 0: nothing cancels by accident
MEAN = np.array([0.5, -1.0])
COV = np.array([[1.0, 0.3], [0.3, 0.5]])
KEYS, QUERIES = np.array([[1.0, 0.2], [-0.4, 0.8]]), np.array([[0.7, -0.3], [0.5, 0.6]])
QUERY = np.array([1.1, 0.95])


@dataclass(frozen=True)
class Config:
    largest: int = 512
    repetitions: int = 4000
    allowed: float = 0.15


@eqx.filter_jit
def _squared_errors(samples: Array, G: Attention, exact: Array) -> Array:
    """N·|Γ[μ_N](x) − Γ[μ](x)|² for each of the samples (repetitions, N, 2)."""
    n = samples.shape[1]

    def one(points: Array) -> Array:
        return n * jnp.sum((G(Discrete(points, jnp.full(n, -math.log(n))), QUERY) - exact) ** 2)

    return jax.lax.map(one, samples, batch_size=500)


def _constants() -> tuple[float, float]:
    """The limit, and the same without its exponential factor."""
    a = KEYS.T @ QUERIES @ QUERY
    moved = COV @ a
    plain = float(np.trace(COV) + moved @ moved)
    return math.exp(float(a @ moved)) * plain, plain


def _experiment(key: Any, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes N, and mean and standard error of N·|Γ[μ_N](x) − Γ[μ](x)|²."""
    return _cached(tuple(np.asarray(jax.random.key_data(key)).tolist()), config)


@lru_cache(maxsize=1)
def _cached(entropy: tuple[int, ...], config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # the control compares the same measurements with another constant: they are made once
    G = Attention.head(QUERIES, KEYS, np.eye(2))
    exact = G(Gaussian(MEAN, COV), QUERY)
    sizes = 2 ** np.arange(3, int(math.log2(config.largest)) + 1, 3)
    rng, root = np.random.default_rng(entropy), np.linalg.cholesky(COV)
    means, errors = [], []
    for n in sizes:
        samples = MEAN + rng.normal(size=(config.repetitions, n, 2)) @ root.T
        squares = np.asarray(_squared_errors(on_device(samples), G, exact))
        means.append(squares.mean())
        errors.append(squares.std() / math.sqrt(config.repetitions))
    return sizes, np.array(means), np.array(errors)


def _checks(
    sizes: np.ndarray, means: np.ndarray, errors: np.ndarray, constant: float, allowed: float
) -> tuple[Check, ...]:
    slope = float(np.polyfit(np.log(sizes), np.log(means / sizes), 1)[0])
    ratio, error = means[-1] / constant, 5 * errors[-1] / constant
    return (
        Check("N·E|error|² over its limit", float(ratio), 1 - allowed, 1 + allowed, error=float(error)),
        Check("order of E|error|² in N", slope, -1.15, -0.85),
    )


def _run(key: Any, config: Config) -> Outcome:
    sizes, means, errors = _experiment(key, config)
    limit, plain = _constants()
    n = tuple(float(s) for s in sizes)
    figure = Figure(
        "N tokens instead of a Gaussian",
        "number of tokens N",
        "N · E|Γ[μ_N](x) − Γ[μ](x)|²",
        (
            Series(
                "± 5 standard errors",
                n,
                tuple(map(float, means - 5 * errors)),
                "band",
                tuple(map(float, means + 5 * errors)),
            ),
            Series("measured", n, tuple(map(float, means)), "points"),
            Series("limit exp(aᵀΣa)(tr Σ + |Σa|²)", (n[0], n[-1]), (limit, limit), "line"),
            Series("control: tr Σ + |Σa|²", (n[0], n[-1]), (plain, plain), "dashed"),
        ),
        xscale="log",
        caption=f"{config.repetitions} repetitions for each N; softmax attention, d = 2, A not symmetric.",
    )
    return Outcome(_checks(sizes, means, errors, limit, config.allowed), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_experiment(key, config), _constants()[1], config.allowed))


claim = Claim(
    name="vandervaart-1998-sampling-error",
    title="Attention on N samples: the rate and its constant",
    statement=(
        "For μ = N(m, Σ), V = I, every x, and a = Ax with A = KᵀQ: N · E|Γ[μ_N](x) − Γ[μ](x)|² → exp(aᵀΣa) "
        "(tr Σ + |Σa|²) as the number N of independent samples grows."
    ),
    hypotheses=("the samples are independent", "one softmax head, V = I"),
    reference="vandervaart1998, Theorem 3.1 (delta method)",
    run=_run,
    control=_control,
    control_statement="The constant without the exponential factor, tr Σ + |Σa|².",
    quick=Config(),
    full=Config(repetitions=20_000, allowed=0.08),
)
