"""Attention sees a measure, not a list: four laws, and three layers that break them."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.numerics.arrays import on_device

LAWS = {
    "mass is irrelevant": "sink",
    "one atom split": "weights-ignored",
    "atoms permuted": "later-atoms-favoured",
    "one-atom context": "sink",
}
"""Each with the control that breaks it."""


@dataclass(frozen=True)
class Config:
    n: int = 7
    dim: int = 3
    heads: int = 2
    trials: int = 64
    tolerance: float = 1e-12


def _seen(mass: np.ndarray, variant: str) -> np.ndarray:
    """The logarithms of the weights that a layer gives to the atoms (…, n); the last is at 0, for the sink."""
    places = np.arange(mass.shape[-1])
    if variant == "sink":
        return np.where(places == places[-1], 0.0, mass)
    if variant == "weights-ignored":
        return np.where(mass > -np.inf, 0.0, mass)
    return mass + 0.1 * places if variant == "later-atoms-favoured" else mass


@eqx.filter_jit
def _values(G: Attention, points: Array, mass: Array, x: Array) -> Array:
    """G on every context of every trial, at the trial's queries."""
    one = jax.vmap(lambda y, a, x: G.evaluate(Discrete(y, a), x, None), in_axes=(0, 0, None))
    return jax.vmap(one)(points, mass, x)


def _violations(key: Key, config: Config, variant: str) -> np.ndarray:
    """Largest violation of each law over random measures, queries, splits and orders."""
    rng, n, trials = generator(key), config.n, config.trials
    G = Attention.random(key, config.dim, heads=config.heads, head_dim=config.dim)
    # one more atom than needed, without mass: room for the second half of a split atom
    points = rng.normal(size=(trials, n + 1, config.dim))
    mass = np.concatenate([rng.normal(size=(trials, n)), np.full((trials, 1), -np.inf)], axis=1)
    x = rng.normal(size=(trials, 3, config.dim))
    # one atom only is split: splitting all of them alike would not notice ignored weights
    share = rng.uniform(0.05, 0.95, size=trials)
    split_points, split = points.copy(), mass.copy()
    split_points[:, n], split[:, n] = points[:, 0], mass[:, 0] + np.log1p(-share)
    split[:, 0] += np.log(share)
    order = np.stack([rng.permutation(n + 1) for _ in range(trials)])
    permuted = np.take_along_axis(points, order[:, :, None], 1), np.take_along_axis(mass, order, 1)
    dirac = np.where(np.arange(n + 1) == 0, mass, -np.inf)
    contexts = [(points, mass), (points, mass + np.log(17)), (split_points, split), permuted, (points, dirac)]
    all_points, all_masses = (np.stack(arrays, axis=1) for arrays in zip(*contexts, strict=True))
    # an atom at 0 that only the sink gives a weight
    all_points = np.pad(all_points, ((0, 0), (0, 0), (0, 1), (0, 0)))
    all_masses = np.pad(all_masses, ((0, 0), (0, 0), (0, 1)), constant_values=-np.inf)
    values = np.asarray(_values(G, on_device(all_points), on_device(_seen(all_masses, variant)), on_device(x)))
    at_dirac = np.einsum("hoe,hed,td->to", np.asarray(G.W), np.asarray(G.V), points[:, 0])[:, None, None]
    differences = values[:, 1:] - values[:, :1]
    differences[:, -1:] = values[:, -1:] - at_dirac
    return np.abs(differences).max(axis=(0, 2, 3))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _violations(key, config, variant)
    checks = tuple(
        Check(law, value, high=config.tolerance, rejected_by=control)
        for (law, control), value in zip(LAWS.items(), found, strict=True)
    )
    if variant != "claim":
        return Outcome(checks)
    broken = [_violations(key, config, control)[i] for i, control in enumerate(LAWS.values())]
    places, edges = np.arange(len(LAWS)), (-0.5, len(LAWS) - 0.5)
    figure = Figure(
        "What attention sees of a context",
        "law",
        "largest change of the output",
        (
            # a difference of exactly 0 has no logarithm: shown at the resolution of float64
            Series("attention on measures", places, np.maximum(found, 1e-17), "bars", role="measured"),
            Series("control of the law", places, broken, "bars", role="control"),
            Series("tolerance", edges, (config.tolerance, config.tolerance), "dashed", role="theory"),
        ),
        yscale="log",
        xticks=tuple(LAWS),
        caption=(
            f"Largest change over {config.trials} random contexts of {config.n} atoms; zeros are drawn at 1e-17. "
            "Controls, from left to right: a sink, weights ignored, later atoms favoured, a sink."
        ),
    )
    return Outcome(checks, figure)


claim = Claim(
    name="furuya-2025-measure-laws",
    title="Attention is a function of a measure",
    kind="theorem",
    statement=(
        "For every measure μ, every c > 0 and every x: Γ[cμ](x) = Γ[μ](x); splitting an atom into two at the same "
        "place, or reordering atoms, changes nothing; and Γ[δ_y](x) = Σ_h W_h V_h y whatever x is."
    ),
    hypotheses=("μ has finitely many atoms and positive mass", "softmax heads with arbitrary Q, K, V, W"),
    reference="furuya2025, equation (20)",
    measure=measure,
    controls={
        "sink": "The denominator of the softmax has one more term, 1, as with an attention sink.",
        "weights-ignored": "Attention that ignores the weights of the atoms: it notices when one atom is split.",
        "later-atoms-favoured": "Attention with a bias of 0.1 for each place in the list: it notices the order.",
    },
    quick=Config(),
    full=Config(n=64, dim=8, heads=4, trials=1024),
)
