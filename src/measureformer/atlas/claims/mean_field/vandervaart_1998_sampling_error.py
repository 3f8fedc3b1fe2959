"""How fast attention on N samples reaches attention on their law: the exact constant of the central limit theorem.

Γ[μ_N](x) is a ratio of two empirical means, so by the delta method √N (Γ[μ_N](x) − Γ[μ](x)) is asymptotically normal
with covariance E[w²(Vy−Γ)(Vy−Γ)ᵀ], w = e^{⟨Ax,y⟩}/Z. For μ = N(m, Σ), V = I and a = Ax the trace of it is computed by
completing the square twice: under w², y is N(m + 2Σa, Σ) with total mass e^{aᵀΣa}, and Γ = m + Σa, hence

    N E|Γ[μ_N](x) − Γ[μ](x)|² → e^{aᵀΣa} (tr Σ + |Σa|²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
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


@once
def _experiment(key: Key, config: Config, *, copies: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes N, and mean and standard error of N·|Γ[μ_N](x) − Γ[μ](x)|²; with copies, points come √N times each."""
    G = Attention.head(QUERIES, KEYS, np.eye(2))
    exact = G(Gaussian(MEAN, COV), QUERY)
    sizes = 2 ** np.arange(3, int(math.log2(config.largest)) + 1, 3)
    rng, root = generator(key), np.linalg.cholesky(COV)
    means, errors = [], []
    for n in sizes:
        samples = MEAN + rng.normal(size=(config.repetitions, n, 2)) @ root.T
        if copies:
            samples = samples[:, np.arange(n) // math.isqrt(n)]
        squares = np.asarray(_squared_errors(on_device(samples), G, exact))
        means.append(squares.mean())
        errors.append(squares.std() / math.sqrt(config.repetitions))
    return sizes, np.array(means), np.array(errors)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sizes, means, errors = _experiment(key, config, copies=variant == "copies")
    limit, plain = _constants()
    constant = plain if variant == "no-exponential" else limit
    slope = np.polyfit(np.log(sizes), np.log(means / sizes), 1)[0]
    ratio, error, allowed = means[-1] / constant, 5 * errors[-1] / constant, config.allowed
    checks = (
        Check("N·E|error|² over its limit", ratio, 1 - allowed, 1 + allowed, error, rejected_by="no-exponential"),
        Check("order of E|error|² in N", slope, -1.15, -0.85, rejected_by="copies"),
    )
    ends = sizes[[0, -1]]
    figure = Figure(
        "N tokens instead of a Gaussian",
        "number of tokens N",
        "N · E|Γ[μ_N](x) − Γ[μ](x)|²",
        (
            Series("measured", sizes, means, "points", role="measured"),
            Series("± 5 standard errors", sizes, means - 5 * errors, "band", means + 5 * errors, role="measured"),
            Series("limit exp(aᵀΣa)(tr Σ + |Σa|²)", ends, (limit, limit), role="theory"),
            Series("control: tr Σ + |Σa|²", ends, (plain, plain), "dashed", role="control"),
        ),
        xscale="log",
        caption=f"{config.repetitions} repetitions for each N; softmax attention, d = 2, A not symmetric.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="vandervaart-1998-sampling-error",
    title="Attention on N samples: the rate and its constant",
    kind="theorem",
    statement=(
        "For μ = N(m, Σ), V = I, every x, and a = Ax with A = KᵀQ: N · E|Γ[μ_N](x) − Γ[μ](x)|² → exp(aᵀΣa) "
        "(tr Σ + |Σa|²) as the number N of independent samples grows."
    ),
    hypotheses=("the samples are independent", "one softmax head, V = I"),
    reference="vandervaart1998, Theorem 3.1 (delta method)",
    measure=measure,
    controls={
        "no-exponential": "The constant without the exponential factor, tr Σ + |Σa|².",
        "copies": "The samples are not independent: each point occurs about √N times.",
    },
    quick=Config(),
    full=Config(repetitions=20_000, allowed=0.08),
)
