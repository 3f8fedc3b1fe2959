"""A mixture of Gaussians tilts component by component, and the weights of the components tilt too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.maps_quadrature import gauss_hermite
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import AbstractAtomic, AbstractGaussianLike, GaussianMixture


@dataclass(frozen=True)
class Config:
    smallest: int = 8
    largest: int = 14
    queries: int = 16
    nodes: int = 26
    tolerance: float = 5e-3
    slope: float = -0.6


class _Untilted(AbstractHeads):
    """Every component tilted by itself, but averaged with the weights it had before."""

    attention: Attention

    def __init__(self, attention: Attention) -> None:
        super().__init__(attention.Q, attention.K, attention.V, attention.W)
        self.attention = attention

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Any) -> Array:
        return self.attention.on_atoms(mu, x, t)

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        assert isinstance(mu, GaussianMixture)
        parts = [self.attention.on_gaussian(mu.component(c), x) for c in range(mu.means.shape[0])]
        return jnp.tensordot(mu.components().probabilities(), jnp.stack(parts), axes=1)


def _setting(key: Any, config: Config) -> tuple[Attention, GaussianMixture, np.ndarray]:
    """Random components and heads, of a size at which n points still see where the tilted mass is."""
    rng = generator(key)
    roots = 0.35 * rng.normal(size=(3, 2, 2))
    covs = roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(2)
    mixture = GaussianMixture([0.5, 0.3, 0.2], rng.normal(size=(3, 2)), covs)
    x, matrices = rng.normal(size=(config.queries, 2)), rng.normal(size=(3, 2, 2))
    x = 1.5 * x / np.linalg.norm(x, axis=1, keepdims=True)
    return Attention.head(*matrices / np.linalg.norm(matrices, axis=(1, 2), keepdims=True)), mixture, x


def _errors(key: Any, config: Config, wrap: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Largest difference of the closed form to n quasi-Monte Carlo points, n growing, and to Gauss–Hermite rules."""
    G, mixture, x = _setting(key, config)
    exact = np.asarray(wrap(G)(mixture, x))
    sizes = 2 ** np.arange(config.smallest, config.largest + 1, 3)
    first, second, third = (gauss_hermite(mixture.component(c), config.nodes) for c in range(3))
    contexts = [mixture.discretize(int(n)) for n in sizes] + [first + second + third]
    gaps = [float(np.abs(np.asarray(G(context, x)) - exact).max()) for context in contexts]
    return sizes, np.array(gaps[:-1]), gaps[-1]


def _checks(sizes: np.ndarray, errors: np.ndarray, quadrature: float, config: Config) -> tuple[Check, ...]:
    slope = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    return (
        Check(f"difference at n = {sizes[-1]}", float(errors[-1]), high=config.tolerance),
        Check("order of the difference in n", slope, high=config.slope),
        Check("difference to Gauss–Hermite rules", quadrature, high=1e-9),
    )


def _run(key: Any, config: Config) -> Outcome:
    sizes, errors, quadrature = _errors(key, config, lambda G: G)
    _, wrong, _ = _errors(key, config, _Untilted)
    n = tuple(float(s) for s in sizes)
    figure = Figure(
        "A mixture of three Gaussians and n points that follow it",
        "number of points n",
        "largest difference to the closed form",
        (
            Series("weights tilted", n, tuple(map(float, errors)), "points"),
            Series("order 1/n", n, tuple(float(errors[0] * sizes[0] / s) for s in sizes), "line"),
            Series("control: weights not tilted", n, tuple(map(float, wrong)), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Scrambled Sobol' points; largest difference over {config.queries} queries, d = 2.",
    )
    return Outcome(_checks(sizes, errors, quadrature, config), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_errors(key, config, _Untilted), config))


claim = Claim(
    name="castin-2025-mixture-tilt",
    title="Attention on a mixture of Gaussians, in closed form",
    statement=(
        "For μ = Σ_c w_c N(m_c, Σ_c), every x, and a = Ax: Γ[μ](x) = V Σ_c w'_c (m_c + Σ_c a) with tilted weights "
        "w'_c ∝ w_c exp(⟨a,m_c⟩ + aᵀΣ_c a/2)."
    ),
    hypotheses=("finitely many components", "softmax heads"),
    reference="castin2025",
    run=_run,
    control=_control,
    control_statement="The components are tilted, but their weights are left as they were.",
    quick=Config(),
    full=Config(largest=17, queries=64, nodes=60, tolerance=2e-3),
)
