"""The regular part of the derivative is ψ(G(mu, x)): for attention, perceptrons, norms, compositions and flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.flows import flow
from measureformer.maps import MLP, AbstractInContextMap, Attention, Residual, RMSNorm
from measureformer.measures import Discrete
from measureformer.structure import directional_derivative, regular_derivative
from measureformer.structure.black_box import BlackBox

# in NumPy for the black box, in JAX for the formula
SLOPE = np.array([0.9, -0.6])
Gaps = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Config:
    n: int = 5
    points: int = 2
    steps: int = 0
    """Steps of a flow, which takes seconds to compile; 0 leaves it out."""
    tolerance: float = 1e-5


def _psi(y: Any) -> Any:
    xp = jnp if isinstance(y, jax.Array) else np
    return xp.sin(y @ xp.asarray(SLOPE) + 0.3)


def _maps(key: Key, steps: int) -> dict[str, AbstractInContextMap]:
    head = Attention.random(key, 2, head_dim=2)
    attention = Residual(head)
    perceptron = Residual(MLP.random(key, 2, width=6, activation="tanh"))
    maps: dict[str, AbstractInContextMap] = {
        "attention": head,
        "MLP": perceptron,
        # in the plane, LayerNorm would leave only a sign
        "RMSNorm ⋄ attention": RMSNorm([1.0, 2.0]) @ attention,
        "MLP ⋄ attention": perceptron @ attention,
    }
    if steps:
        velocity = Attention.random(jax.random.fold_in(key, 1), 2, head_dim=2)
        start = Discrete.dirac([0.0, 0.0])
        maps["flow"] = flow(velocity, start, [0.0, 0.5], solver="rk4", steps=steps).map(0.5)
    return maps


@once
def _gaps(key: Key, config: Config, variant: str) -> Gaps:
    """For each map: |D̄f − ψ(G)|, and for attention the difference of the irregular part to its formula."""
    gaps: Gaps = {}
    for name, G in _maps(key, config.steps).items():
        rng = generator(key)
        mu = Discrete.weighted(rng.normal(size=(config.n, 2)), rng.uniform(0.3, 1, config.n))
        # of the points, the first is an atom
        places = np.concatenate([np.asarray(mu.points)[:1], rng.normal(size=(config.points - 1, 2))])
        box, rows = BlackBox(G), []
        for x in places:
            along = "probability" if variant == "towards-probabilities" else "positive"
            found = regular_derivative(box, mu, x, _psi, variant=along)
            value = found.value + (found.irregular if variant == "psi-as-it-is" else 0.0)
            # x as a passive token: the same program as that of the push-forward
            points, weights = np.concatenate([mu.points, x[None]]), np.append(mu.weights, 0.0)
            exact = _psi(np.asarray(G.push(Discrete.weighted(points, weights)).points)[-1:])[0]
            formula = found.irregular
            if isinstance(G, Attention):
                swapped = eqx.tree_at(lambda head: (head.Q, head.K), G, (G.K, G.Q))
                formula = directional_derivative(swapped if variant == "transposed" else G, mu, x, _psi).irregular
            rows.append((abs(value - exact), abs(found.irregular - formula)))
        gap, irregular = np.max(rows, axis=0)
        gaps[name] = (gap, irregular)
    return gaps


def measure(key: Key, config: Config, variant: str) -> Outcome:
    gaps, tolerance = _gaps(key, config, variant), config.tolerance
    checks = [
        # an MLP does not feel the context, and has no irregular part
        Check(
            f"{name}: |derivative − ψ(G)|",
            gap,
            high=tolerance,
            rejected_by=("towards-probabilities",) if name == "MLP" else ("psi-as-it-is", "towards-probabilities"),
        )
        for name, (gap, _) in gaps.items()
    ]
    formula = "attention: irregular part against its formula"
    checks.append(Check(formula, gaps["attention"][1], high=10 * tolerance, rejected_by="transposed"))
    return Outcome(tuple(checks), _figure(key, config, gaps) if variant == "claim" else None)


def _figure(key: Key, config: Config, gaps: Gaps) -> Figure:
    at, rough = range(len(gaps)), _gaps(key, config, "psi-as-it-is")
    heights, wrong = ([max(gap, 1e-17) for gap, _ in some.values()] for some in (gaps, rough))
    return Figure(
        "The derivative along a new atom",
        "map",
        "largest difference to ψ(G(μ, x))",
        (
            Series("ψ flattened around the atoms", at, heights, "bars", role="measured"),
            Series("control: ψ as it is", at, wrong, "bars", role="control"),
        ),
        yscale="log",
        xticks=tuple(gaps),
        caption=f"{config.n} atoms; the new atom on the support and off it. The MLP does not feel the context.",
    )


claim = Claim(
    name="furuya-2025-regular-part",
    title="The regular part of the derivative is ψ(G)",
    kind="theorem",
    statement=(
        "For f(μ) = G(μ,·)♯μ with continuous G, every finite μ, every x and ψ: if ψ is constant around each atom of "
        "f(μ), (1/ε)⟨ψ, f(μ+εδ_x) − f(μ)⟩ → ψ(G(μ,x)). For other ψ there is one more term, "
        "∫∇ψ(G(μ,z))·∂_μG(μ,z;x) dμ(z)."
    ),
    hypotheses=("G is continuous", "RMSNorm away from tokens at 0"),
    reference="furuya2025, Definition 4 and equation (42)",
    measure=measure,
    controls={
        "psi-as-it-is": "ψ is not locally constant, and picks up the irregular part.",
        "towards-probabilities": "The derivative along δ_x − μ, not δ_x: it lacks ⟨ψ, f(μ)⟩.",
        "transposed": "Q and K swapped in the formula of the irregular part: Aᵀ instead of A.",
    },
    quick=Config(),
    full=Config(n=24, points=8, steps=16),
)
