"""G and D̄f have the same Lipschitz constants, up to that of ψ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.structure_zoo import pushed, residual_head
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.structure import recover
from measureformer.structure.black_box import Atoms, w1

A = np.array([[0.4, 0.2], [-0.1, 0.3]])


@dataclass(frozen=True)
class Config:
    n: int = 3
    pairs: int = 60
    bound: float = 2.0


@once
def _pairs(key: Key, config: Config) -> np.ndarray:
    """|D̄f_1 − D̄f_2|, ‖ψ_1 − ψ_2‖ on the image, W_1(μ_1, μ_2), |x_1 − x_2| for random pairs of triplets."""
    rng, G = generator(key), recover(pushed(residual_head(A)))
    grid = np.stack(np.meshgrid(*[np.linspace(-2.0, 2.0, 15)] * 2), axis=-1).reshape(-1, 2)
    rows = []
    for k in range(config.pairs):
        near = 10.0 ** -rng.uniform(0, 3)
        points, weights = rng.uniform(-0.7, 0.7, (config.n, 2)), rng.dirichlet(np.ones(config.n))
        mu = Atoms(points, weights)
        nu = Atoms(np.clip(points + near * rng.normal(size=points.shape), -0.7, 0.7), weights)
        x = rng.uniform(-0.7, 0.7, (2, 2))
        # a third of the pairs share the query, and a third the measure
        nu = mu if k % 3 == 1 else nu
        x[1] = x[0] if k % 3 == 0 else np.clip(x[0] + near * (x[1] - x[0]), -0.7, 0.7)
        w, b = rng.normal(size=(2, 2)), rng.normal(size=2)
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        w[1], b[1] = (w[0], b[0]) if k % 2 == 0 else (w[1], b[1])

        def psi(i: int, y: np.ndarray, w: np.ndarray = w, b: np.ndarray = b) -> np.ndarray:
            return config.bound * np.tanh(y @ w[i] + b[i])

        values = [psi(i, G.read(m, x[i : i + 1]))[0] for i, m in enumerate((mu, nu))]
        psi_gap = np.abs(psi(0, grid) - psi(1, grid)).max()
        rows.append((abs(values[0] - values[1]), psi_gap, w1(mu, nu), np.linalg.norm(x[0] - x[1])))
    return np.array(rows).T


def measure(key: Key, config: Config, variant: str) -> Outcome:
    difference, psi_gap, transport, apart = _pairs(key, config)
    # constants of attention on the ball of radius 0.7√2
    size, square = np.linalg.norm(A, 2), 2 * 0.7**2
    in_point, in_measure = 1 + size * square, (1 + 2 * size * square) * math.exp(2 * size * square)
    terms = {
        "no-psi-term": psi_gap,
        "no-query-term": config.bound * in_point * apart,
        "no-transport-term": config.bound * in_measure * transport,
    }
    bound = np.sum([term for control, term in terms.items() if control != variant], axis=0)
    checks = (Check("largest excess over the bound", (difference - bound).max(), high=1e-9, rejected_by=tuple(terms)),)
    return Outcome(checks, _figure(config, difference, bound) if variant == "claim" else None)


def _figure(config: Config, difference: np.ndarray, bound: np.ndarray) -> Figure:
    ends = (bound.min(), bound.max())
    return Figure(
        "The regular derivative is as smooth as the map",
        "‖ψ₁−ψ₂‖ + R·(L_x |x₁−x₂| + L_μ W₁)",
        "|D̄f₁ − D̄f₂|",
        (
            Series("pairs of triplets", bound, np.maximum(difference, 1e-12), "points", role="measured"),
            Series("bound", ends, ends, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.pairs} pairs (μ, x, ψ), ψ = {config.bound:g}·tanh(⟨w, y⟩ + b), |w| = 1; residual attention.",
    )


claim = Claim(
    name="furuya-2025-lipschitz-transfer",
    title="Lipschitz constants pass from G to its regular derivative",
    kind="theorem",
    statement=(
        "If |G(μ₁,x₁) − G(μ₂,x₂)| ≤ L_μ W₁(μ₁,μ₂) + L_x|x₁−x₂| then |D̄f(μ₁,x₁,ψ₁) − D̄f(μ₂,x₂,ψ₂)| ≤ ‖ψ₁−ψ₂‖ + "
        "R(L_μ W₁ + L_x|x₁−x₂|) for all ψ with Lipschitz constant ≤ R; and each component of G inherits the constant "
        "of D̄f."
    ),
    hypotheses=("residual attention on a ball: L_x = 1 + ‖V‖‖A‖R₀², L_μ = ‖V‖(1 + 2‖A‖R₀²)e^{2‖A‖R₀²}",),
    reference="furuya2025, Theorem 1",
    measure=measure,
    controls={
        "no-transport-term": "The term with W₁(μ₁,μ₂) is dropped.",
        "no-query-term": "The term with |x₁−x₂| is dropped.",
        "no-psi-term": "The term ‖ψ₁−ψ₂‖ is dropped.",
    },
    quick=Config(),
    full=Config(n=8, pairs=5000),
)
