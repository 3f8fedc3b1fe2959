"""The regular part of the derivative is ψ(G(mu, x)): for attention, perceptrons, norms, compositions and flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import flow
from measureformer.maps import MLP, AbstractInContextMap, Attention, LayerNorm, Residual
from measureformer.measures import Discrete
from measureformer.structure import BlackBox, directional_derivative, regular_derivative

# in NumPy for the black box, in JAX for the formula
SLOPE = np.array([0.9, -0.6])
Gaps = dict[str, tuple[float, float, float]]


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


def _maps(key: Any, steps: int) -> dict[str, AbstractInContextMap]:
    head = Attention.random(key, 2, head_dim=2)
    attention = Residual(head)
    perceptron = Residual(MLP.random(key, 2, width=6, activation="tanh"))
    maps: dict[str, AbstractInContextMap] = {
        "attention": head,
        "MLP": perceptron,
        "LayerNorm ⋄ attention": LayerNorm([1.0, 2.0], [0.2, 0.0]) @ attention,
        "MLP ⋄ attention": perceptron @ attention,
    }
    if steps:
        velocity = Attention.random(jax.random.fold_in(key, 1), 2, head_dim=2)
        start = Discrete.dirac([0.0, 0.0])
        maps["flow"] = flow(velocity, start, [0.0, 0.5], solver="rk4", steps=steps).map(0.5)
    return maps


def _gaps(key: Any, config: Config) -> Gaps:
    """For each map: |D̄f − ψ(G)|, the same with ψ as it is, and the difference of the irregular part to its formula."""
    gaps: Gaps = {}
    for name, G in _maps(key, config.steps).items():
        rng = generator(key)
        mu = Discrete.weighted(rng.normal(size=(config.n, 2)), rng.uniform(0.3, 1, config.n))
        # of the points, the first is an atom
        places = np.concatenate([np.asarray(mu.points)[:1], rng.normal(size=(config.points - 1, 2))])
        box, rows = BlackBox(G), []
        for x in places:
            found = regular_derivative(box, mu, x, _psi)
            # x as a passive token: the same program as that of the push-forward
            points, weights = np.concatenate([mu.points, x[None]]), np.append(mu.weights, 0.0)
            exact = float(_psi(np.asarray(G.push(Discrete.weighted(points, weights)).points)[-1:])[0])
            irregular = directional_derivative(G, mu, x, _psi).irregular if name == "attention" else found.irregular
            rows.append((abs(found.value - exact), abs(found.irregular), abs(found.irregular - irregular)))
        worst = np.max(rows, axis=0)
        gaps[name] = (float(worst[0]), float(worst[1]), float(worst[2]))
    return gaps


def _outcome(gaps: Gaps, column: int, config: Config, figure: Figure | None) -> Outcome:
    checks = [Check(f"{name}: |derivative − ψ(G)|", gap[column], high=config.tolerance) for name, gap in gaps.items()]
    formula = Check("attention: irregular part against its formula", gaps["attention"][2], high=10 * config.tolerance)
    return Outcome((*checks, formula), figure)


def _run(key: Any, config: Config) -> Outcome:
    gaps = _gaps(key, config)
    at = tuple(float(i) for i in range(len(gaps)))
    figure = Figure(
        "The derivative along a new atom",
        "map",
        "largest difference to ψ(G(μ, x))",
        (
            Series("ψ flattened around the atoms", at, tuple(max(g[0], 1e-17) for g in gaps.values()), "bars"),
            Series("control: ψ as it is", at, tuple(max(g[1], 1e-17) for g in gaps.values()), "bars"),
        ),
        yscale="log",
        xticks=tuple(gaps),
        caption=f"{config.n} atoms; the new atom on the support and off it. The MLP does not feel the context.",
    )
    return _outcome(gaps, 0, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_gaps(key, config), 1, config, None)


claim = Claim(
    name="furuya-2025-regular-part",
    title="The regular part of the derivative is ψ(G)",
    statement=(
        "For f(μ) = G(μ,·)♯μ with continuous G, every finite μ, every x and ψ: if ψ is constant around each atom of "
        "f(μ), (1/ε)⟨ψ, f(μ+εδ_x) − f(μ)⟩ → ψ(G(μ,x)). For other ψ there is one more term, "
        "∫∇ψ(G(μ,z))·∂_μG(μ,z;x) dμ(z)."
    ),
    hypotheses=("G is continuous", "LayerNorm away from tokens with equal coordinates"),
    reference="furuya2025, Definition 4 and equation (42)",
    run=_run,
    control=_control,
    control_statement="ψ is not locally constant, and picks up the irregular part.",
    quick=Config(),
    full=Config(n=24, points=8, steps=16),
)
