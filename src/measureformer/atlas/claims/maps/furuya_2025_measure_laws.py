"""Attention sees a measure, not a list: four laws, and a layer that ignores weights to break one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import AbstractAtomic, Discrete
from measureformer.numerics.arrays import on_device

LAWS = ("mass is irrelevant", "one atom split", "atoms permuted", "one-atom context")


@dataclass(frozen=True)
class Config:
    n: int = 7
    dim: int = 3
    heads: int = 2
    trials: int = 64
    tolerance: float = 1e-12


class _Subject(AbstractHeads):
    """Attention; or, if `blind`, attention over the list of tokens whatever their weights, as plain code does it."""

    attention: Attention
    blind: Array

    def __init__(self, key: Any, config: Config, *, blind: bool) -> None:
        attention = Attention.random(key, config.dim, heads=config.heads, head_dim=config.dim)
        super().__init__(attention.Q, attention.K, attention.V, attention.W)
        self.attention, self.blind = attention, jnp.asarray(blind)

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Any) -> Array:
        seen = jnp.where(self.blind & (mu.log_weights > -jnp.inf), 0, mu.log_weights)
        return self.attention.on_atoms(mu.with_log_weights(seen), x, t)


@eqx.filter_jit
def _values(G: _Subject, points: Array, mass: Array, x: Array) -> Array:
    """G on every context of every trial, at the trial's queries."""
    one = jax.vmap(lambda y, a, x: G.evaluate(Discrete(y, a), x, None), in_axes=(0, 0, None))
    return jax.vmap(one)(points, mass, x)


def _measure(key: Any, config: Config, *, blind: bool) -> np.ndarray:
    """Largest violation of each law over random measures, queries, splits and orders."""
    rng, n, trials = generator(key), config.n, config.trials
    G = _Subject(key, config, blind=blind)
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
    variants = [(points, mass), (points, mass + np.log(17)), (split_points, split), permuted, (points, dirac)]
    all_points, all_masses = (on_device(np.stack(arrays, axis=1)) for arrays in zip(*variants, strict=True))
    values = np.asarray(_values(G, all_points, all_masses, on_device(x)))
    at_dirac = np.einsum("hoe,hed,td->to", np.asarray(G.W), np.asarray(G.V), points[:, 0])[:, None, None]
    differences = values[:, 1:] - values[:, :1]
    differences[:, -1:] = values[:, -1:] - at_dirac
    return np.abs(differences).max(axis=(0, 2, 3))


def _outcome(values: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    checks = [Check(law, float(v), high=config.tolerance) for law, v in zip(LAWS, values, strict=True)]
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    truth, blind = _measure(key, config, blind=False), _measure(key, config, blind=True)
    places = tuple(float(i) for i in range(len(LAWS)))
    # a difference of exactly 0 has no logarithm: shown at the resolution of float64
    bars = [tuple(float(v) for v in np.maximum(values, 1e-17)) for values in (truth, blind)]
    figure = Figure(
        "What attention sees of a context",
        "law",
        "largest change of the output",
        (
            Series("attention on measures", places, bars[0], "bars"),
            Series("control: weights ignored", places, bars[1], "bars"),
            Series("tolerance", (-0.5, len(LAWS) - 0.5), (config.tolerance, config.tolerance), "dashed"),
        ),
        yscale="log",
        xticks=LAWS,
        caption=f"Largest change over {config.trials} random contexts of {config.n} atoms; zeros are drawn at 1e-17.",
    )
    return _outcome(truth, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_measure(key, config, blind=True), config)


claim = Claim(
    name="furuya-2025-measure-laws",
    title="Attention is a function of a measure",
    statement=(
        "For every measure μ, every c > 0 and every x: Γ[cμ](x) = Γ[μ](x); splitting an atom into two at the same "
        "place, or reordering atoms, changes nothing; and Γ[δ_y](x) = Σ_h W_h V_h y whatever x is."
    ),
    hypotheses=("μ has finitely many atoms and positive mass", "softmax heads with arbitrary Q, K, V, W"),
    reference="furuya2025, equation (20)",
    run=_run,
    control=_control,
    control_statement="Attention that ignores the weights of the atoms: it notices when one atom is split.",
    quick=Config(),
    full=Config(n=64, dim=8, heads=4, trials=1024),
)
