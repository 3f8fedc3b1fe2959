"""A mixture of Gaussians tilts component by component, and the weights of the components tilt too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.maps_quadrature import gauss_hermite
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention
from measureformer.measures import Discrete, GaussianMixture


@dataclass(frozen=True)
class Config:
    smallest: int = 8
    largest: int = 14
    queries: int = 16
    nodes: int = 26


def _setting(key: Key, config: Config) -> tuple[Attention, GaussianMixture, np.ndarray]:
    """Random components and heads, of a size at which n points still see where the tilted mass is."""
    rng = generator(key)
    roots = 0.35 * rng.normal(size=(3, 2, 2))
    covs = roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(2)
    mixture = GaussianMixture([0.5, 0.3, 0.2], rng.normal(size=(3, 2)), covs)
    x, matrices = rng.normal(size=(config.queries, 2)), rng.normal(size=(3, 2, 2))
    x = 1.5 * x / np.linalg.norm(x, axis=1, keepdims=True)
    return Attention.head(*matrices / np.linalg.norm(matrices, axis=(1, 2), keepdims=True)), mixture, x


def _standard_deviations(G: Attention, rule: Discrete, x: np.ndarray) -> np.ndarray:
    """√n times the standard errors of attention to n independent points, (m, d): of a quotient of two means."""
    points, weights = np.asarray(rule.points), np.asarray(rule.probabilities())
    tilts = np.exp(x @ np.asarray(G.A[0]).T @ points.T)
    tilts /= tilts @ weights[:, None]
    images = points @ np.asarray(G.W[0] @ G.V[0]).T
    off = images[None] - ((tilts * weights) @ images)[:, None]
    return np.sqrt(np.einsum("mn,mnd->md", weights * tilts**2, off**2))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    G, mixture, x = _setting(key, config)
    components = [mixture.component(c) for c in range(3)]
    parts = np.stack([np.asarray(G(component, x)) for component in components])
    formulas = {
        "claim": np.asarray(G(mixture, x)),
        "untilted-weights": np.tensordot(np.asarray(mixture.components().probabilities()), parts, axes=1),
    }
    # n quasi-Monte Carlo points, n growing, and last the Gauss–Hermite rules of the components
    sizes = 2 ** np.arange(config.smallest, config.largest + 1, 3)
    first, second, third = (gauss_hermite(component, config.nodes) for component in components)
    contexts = [mixture.discretize(int(n)) for n in sizes] + [first + second + third]
    values = np.stack([np.asarray(G(context, x)) for context in contexts])
    gaps = {name: np.abs(values - formula).max(axis=(1, 2)) for name, formula in formulas.items()}
    *errors, quadrature = gaps[variant]
    spread = _standard_deviations(G, contexts[-1], x)
    share = (np.abs(values[-2] - formulas[variant]) / (5 * spread / np.sqrt(sizes[-1]))).max()
    rejected_by = "untilted-weights"
    checks = (
        # scrambled Sobol' points have at most e times the variance of independent ones, and usually far less
        Check(f"difference at n = {sizes[-1]} over five standard errors", share, high=1.0, rejected_by=rejected_by),
        Check("difference to Gauss–Hermite rules", quadrature, high=1e-9, rejected_by=rejected_by),
    )
    figure = Figure(
        "A mixture of three Gaussians and n points that follow it",
        "number of points n",
        "largest difference to the closed form",
        (
            Series("weights tilted", sizes, errors, "points", role="measured"),
            Series("order 1/n", sizes, errors[0] * sizes[0] / sizes, role="theory"),
            Series("control: weights not tilted", sizes, gaps["untilted-weights"][:-1], "points", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Scrambled Sobol' points; largest difference over {config.queries} queries, d = 2.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="castin-2025-mixture-tilt",
    title="Attention on a mixture of Gaussians, in closed form",
    kind="theorem",
    statement=(
        "For μ = Σ_c w_c N(m_c, Σ_c), every x, and a = Ax: Γ[μ](x) = V Σ_c w'_c (m_c + Σ_c a) with tilted weights "
        "w'_c ∝ w_c exp(⟨a,m_c⟩ + aᵀΣ_c a/2)."
    ),
    hypotheses=("finitely many components", "softmax heads"),
    reference="castin2025",
    measure=measure,
    controls={"untilted-weights": "The components are tilted, but their weights are left as they were."},
    quick=Config(),
    full=Config(largest=17, queries=64, nodes=60),
)
