"""Layers compose by ⋄, and pushing forward is functorial. A second layer that reads the old context breaks both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import MLP, Attention, Residual
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Discrete
from measureformer.numerics.arrays import on_device


@dataclass(frozen=True)
class Config:
    n: int = 32
    dim: int = 2
    queries: int = 24
    tolerance: float = 1e-11


class _StaleContext(AbstractInContextMap):
    """x ↦ G2(mu, G1(mu, x)): the second layer looks at the tokens as they were before the first."""

    outer: AbstractInContextMap
    inner: AbstractInContextMap

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return self.outer.evaluate(mu, self.inner.evaluate(mu, x, t), t)


@eqx.filter_jit
def _values(layers: tuple[AbstractInContextMap, ...], mu: Discrete, x: Array) -> dict[str, tuple[Array, ...]]:
    """For each variant: values at once and step by step, at atoms, at other queries, one layer on."""
    first, second, third = layers
    moved = first.push(mu)
    by_steps, stepwise = second.push(moved), second(moved, first(mu, x))
    on_top = third(by_steps, stepwise)
    return {
        name: (composed.push(mu).points, by_steps.points, composed(mu, x), stepwise, (third @ composed)(mu, x), on_top)
        for name, composed in (("claim", second @ first), ("old-context", _StaleContext(second, first)))
    }


def _experiment(key: Key, config: Config) -> dict[str, tuple[Array, ...]]:
    rng, dim = generator(key), config.dim
    first, attention, third = (
        Residual(Attention.random(jax.random.fold_in(key, i), dim, heads=2, head_dim=dim)) for i in range(3)
    )
    second = Residual(MLP.random(jax.random.fold_in(key, 3), dim, activation="tanh")) @ attention
    mu = Discrete.weighted(rng.normal(size=(config.n, dim)), rng.uniform(0.1, 1, config.n))
    # queries off the support: composition is a statement about maps, not only about tokens
    return _values((first, second, third), mu, on_device(rng.normal(size=(config.queries, dim))))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    values = {name: [np.asarray(v) for v in found] for name, found in _experiment(key, config).items()}
    names = ("push-forward of the composition", "values off the support", "a third layer on top")
    checks = tuple(
        Check(name, np.abs(at_once - stepwise).max(), high=config.tolerance, rejected_by="old-context")
        for name, at_once, stepwise in zip(names, values[variant][::2], values[variant][1::2], strict=True)
    )
    direct, stepwise = (v[:, 0] for v in values["claim"][2:4])
    ends = stepwise.min(), stepwise.max()
    figure = Figure(
        "Two layers, one after the other or at once",
        "first coordinate: layer by layer",
        "first coordinate: composition",
        (
            Series("equality", ends, ends, role="theory"),
            Series("second ⋄ first", stepwise, direct, "points", role="measured"),
            Series("control: old context", stepwise, values["old-context"][2][:, 0], "points", role="control"),
        ),
        equal=True,
        caption=f"{config.queries} queries off the support of a measure with {config.n} atoms.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="furuya-2025-composition",
    title="Composition of layers is ⋄, and push-forward is a functor",
    kind="theorem",
    statement=(
        "For all in-context maps Γ1, Γ2 and every measure μ: (Γ2 ⋄ Γ1)[μ](x) = Γ2[Γ1[μ]♯μ](Γ1[μ](x)) for every x, "
        "on the support or off it, and "
        "Φ(Γ2 ⋄ Γ1) = Φ(Γ2) ∘ Φ(Γ1) for the push-forwards Φ(Γ)(μ) = Γ[μ]♯μ; ⋄ is associative."
    ),
    hypotheses=("μ has finitely many atoms and positive mass",),
    reference="furuya2025, equation (8)",
    measure=measure,
    controls={"old-context": "The second layer reads the original context instead of the pushed one."},
    quick=Config(),
    full=Config(n=512, dim=8, queries=256),
)
