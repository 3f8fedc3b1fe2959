"""`train`: ordinary deep transformers, trained by gradients on the same targets that `fit` approximates greedily."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, OptionError, TrainingError
from measureformer.flows.training import Problem
from measureformer.maps.transformer import Transformer
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key, PathLike
from measureformer.storage.folder import RunFolder
from measureformer.training.architecture import Architecture
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization
from measureformer.universality.compiled import Layers, Weights, as_transformer, values
from measureformer.universality.contexts import Contexts, Target, answers, drawn
from measureformer.universality.search import Search, sizes_of


@dataclass(frozen=True)
class Trained:
    """A trained transformer and its errors on measures that it has not seen.

    >>> import jax, measureformer as mf
    >>> found = mf.universality.train_functional(
    ...     mf.universality.mean(1), mf.Box([0.0], [1.0]), jax.random.key(0),
    ...     optimization=mf.Optimization(steps=100, rate=0.01), search=mf.universality.Search(contexts=60),
    ... )
    >>> found.held_out < found.scale, found.transformer.depth
    (True, 4)
    """

    transformer: Transformer
    parameters: int
    losses: np.ndarray
    """Mean square over that of the target: before each step, and after the last."""
    stopped: str
    training_sup: float
    held_out: float
    """Largest error on measures, and numbers of atoms, that were not seen."""
    held_out_rms: float
    scale: float
    """Largest deviation of the target from its mean on the held-out measures."""


@checked
def train_functional(
    target: Target,
    domain: AbstractDomain,
    key: Key,
    *,
    architecture: Architecture | None = None,
    optimization: Optimization | None = None,
    search: Search | None = None,
    save: PathLike | None = None,
) -> Trained:
    """An ordinary transformer that approximates a target Γ*(mu, x), trained by gradients on random measures.

    It minimises the mean square error over the variance of the target. Errors are reported on the measures on which
    those of `fit` are, with the same key and `search`.

    Arguments:
        target: a function (mu, x) ↦ Γ*(mu, x) of a `Discrete` and queries (m, d).
        domain: the compact set of the atoms and queries.
        key: decides on measures and initial weights.
        architecture: its `norm` must be "none" and its `branch` 1; Architecture(16, 2, 2, 32) by default.
        optimization: 2000 steps of Adam at the rate 0.005 by default; its `batch` is not used.
        search: numbers of measures and queries, as in `fit`.
        save: a folder; an interrupted training resumes from it with the same bits.

    Statement   min_θ mean |T_θ[mu](x) − Γ*(mu, x)|² over finitely many (mu, x)
    Cost        for each update all measures, forth and back.
    Ref         furuya2024.

    >>> import jax, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, hidden=8, norm="none")
    >>> mf.universality.train_functional(
    ...     mf.universality.variance(1), mf.Box([0.0], [1.0]), jax.random.key(0), architecture=small,
    ...     optimization=mf.Optimization(steps=30), search=mf.universality.Search(contexts=60),
    ... ).parameters
    425
    """
    architecture = Architecture(16, 2, 2, 32, norm="none") if architecture is None else architecture
    if optimization is None:
        optimization = Optimization(steps=2000, rate=0.005, clip=None, warmup=0.0, final=0.0)
    search = Search() if search is None else search
    _check(architecture, domain)
    rng = generator(key)
    seen, unseen = sizes_of(search)
    held_out = drawn(rng, domain, search.contexts, unseen, search.queries)
    contexts = drawn(rng, domain, search.contexts, seen, search.queries)
    goals, truth = answers(target, contexts), answers(target, held_out)
    middle, spread = goals.mean(axis=(0, 1)), max(float(goals.std()), 1e-300)
    problem = Problem(
        contexts.points,
        contexts.log_weights,
        contexts.x,
        (goals - middle) / spread,
        np.full(contexts.x.shape[:2], 1 / (contexts.size * search.queries)),
    )
    start = _random(architecture, rng, domain.dim, goals.shape[-1])
    about = {
        "contexts": contexts.size,
        "dim": domain.dim,
        "architecture": asdict(architecture),
        "training": asdict(optimization),
    }
    with RunFolder.of(save, about, [*problem, *jax.tree.leaves(start)]) as folder:
        run = trained(start, SquaredError(problem), optimization, prng_key(key), folder=folder)
    weights = _unscaled(run.good, middle, spread)
    net = as_transformer(weights, jax.nn.gelu, (architecture.units,) * architecture.layers)
    if run.failed:
        raise TrainingError(
            got=f"a loss that is not finite after {run.done} steps",
            need="finite losses",
            do="Take a smaller rate; `error.last` holds the last transformer with a finite loss.",
            last=net,
        )
    errors = [_errors(weights, c, y) for c, y in ((contexts, goals), (held_out, truth))]
    return Trained(
        transformer=net,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(weights)),
        losses=run.losses,
        stopped=run.stopped,
        training_sup=float(errors[0].max()),
        held_out=float(errors[1].max()),
        held_out_rms=float(np.sqrt((errors[1] ** 2).mean())),
        scale=float(np.abs(truth - truth.mean(axis=(0, 1))).max()),
    )


def _check(architecture: Architecture, domain: Any) -> None:
    if architecture.norm != "none" or architecture.branch != 1:
        raise OptionError(
            got=f"norm = {architecture.norm!r}, branch = {architecture.branch}",
            need='norm = "none" and branch = 1: layers here have no LayerNorm and no factor',
            do='Pass mf.Architecture(width=16, layers=2, hidden=32, norm="none"), say.',
        )
    if not isinstance(domain, AbstractDomain):
        raise DtypeError(
            got=f"a domain of type {type(domain).__name__}", need="a compact domain", do="Pass mf.Box(low, high)."
        )


def _random(a: Architecture, rng: np.random.Generator, in_dim: int, out_dim: int) -> Weights:
    """Gaussian weights; every layer moves tokens a little at first."""
    L, D, H, k, w = a.layers, a.width, a.heads, a.width // a.heads, a.units
    Q, K, V = rng.normal(size=(3, L, H, k, D)) / np.sqrt(D)
    W = rng.normal(size=(L, H, D, k)) / np.sqrt(L * H * k)
    W1, W2 = rng.normal(size=(L, w, D)) * np.sqrt(2 / D), rng.normal(size=(L, D, w)) / np.sqrt(L * w)
    embed = rng.normal(size=(D, in_dim + 1))
    readout = np.concatenate([rng.normal(size=(out_dim, D)) / np.sqrt(D), np.zeros((out_dim, 1))], axis=1)
    return Weights(embed, Layers(Q, K, V, W, W1, np.zeros((L, w)), W2, np.zeros((L, D))), readout)


class SquaredError(eqx.Module):
    """The mean square error as an objective of the loop that trains: all data are seen in each update."""

    problem: Problem

    def __call__(self, weights: Weights, key: Any, step: Any) -> Array:
        def one(points: Array, log_weights: Array, x: Array, y: Array, shares: Array) -> Array:
            found = values(weights, jax.nn.gelu, Discrete(points, log_weights), x, None)
            return jnp.sum(shares * jnp.sum((found - y) ** 2, axis=1))

        return jnp.sum(jax.vmap(one)(*self.problem))


def _unscaled(weights: Weights, middle: np.ndarray, spread: float) -> Weights:
    """The network with values in the units of the target."""
    readout = np.asarray(weights.readout) * spread
    readout[:, -1] += middle
    return Weights(np.asarray(weights.embed), Layers(*map(np.asarray, weights.layers)), readout)


def _errors(weights: Weights, contexts: Contexts, goals: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.asarray(_evaluated(weights, *contexts)) - goals, axis=-1)


@jax.jit
def _evaluated(weights: Weights, points: Any, log_weights: Any, x: Any) -> Array:
    return jax.vmap(lambda y, a, q: values(weights, jax.nn.gelu, Discrete(y, a), q, None))(points, log_weights, x)
