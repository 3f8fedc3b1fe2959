"""`train`: ordinary deep transformers, trained by gradients on the same targets that `fit` approximates greedily."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, TrainingError
from measureformer.flows.training import Problem
from measureformer.maps.transformer import Transformer
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.random import generator
from measureformer.storage.folder import Folder
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization
from measureformer.universality.compiled import Layers, Weights, as_transformer, values
from measureformer.universality.contexts import Contexts, answers, drawn
from measureformer.universality.search import Search, sizes_of


@dataclass(frozen=True)
class Architecture:
    """An ordinary transformer: tokens of dimension `dim`, `layers` times attention with `heads` and a GELU perceptron.

    >>> import measureformer as mf
    >>> mf.universality.Architecture(layers=1, dim=8, heads=2, width=16).parameters(2, 1)
    569
    """

    layers: int = 2
    dim: int = 16
    heads: int = 2
    width: int = 32

    def __post_init__(self) -> None:
        for name in ("layers", "dim", "heads", "width"):
            positive_int(getattr(self, name), name)

    @property
    def head_dim(self) -> int:
        return max(1, self.dim // self.heads)

    def parameters(self, in_dim: int, out_dim: int) -> int:
        """Number of weights and biases between tokens in R^in_dim and values in R^out_dim."""
        layer = 4 * self.heads * self.head_dim * self.dim + self.width * (2 * self.dim + 1) + self.dim
        return self.layers * layer + self.dim * (in_dim + 1) + out_dim * (self.dim + 1)

    def random(self, rng: np.random.Generator, in_dim: int, out_dim: int) -> Weights:
        """Gaussian weights; every layer moves tokens a little at first."""
        L, D, H, k, w = self.layers, self.dim, self.heads, self.head_dim, self.width
        Q, K, V = rng.normal(size=(3, L, H, k, D)) / np.sqrt(D)
        W = rng.normal(size=(L, H, D, k)) / np.sqrt(L * H * k)
        W1, W2 = rng.normal(size=(L, w, D)) * np.sqrt(2 / D), rng.normal(size=(L, D, w)) / np.sqrt(L * w)
        embed = rng.normal(size=(D, in_dim + 1))
        readout = np.concatenate([rng.normal(size=(out_dim, D)) / np.sqrt(D), np.zeros((out_dim, 1))], axis=1)
        return Weights(embed, Layers(Q, K, V, W, W1, np.zeros((L, w)), W2, np.zeros((L, D))), readout)


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


def train_functional(
    target: Any,
    domain: Any,
    key: Any,
    *,
    architecture: Architecture | None = None,
    optimization: Optimization | None = None,
    search: Search | None = None,
    save: Any = None,
) -> Trained:
    """An ordinary transformer that approximates a target Γ*(mu, x), trained by gradients on random measures.

    Errors are reported on the measures on which those of `fit` are, with the same key and `search`. What is minimised
    is the mean square error over the variance of the target. Of `training`, steps, method, rate and tol are used;
    solver and depth are of flows. With `save`, a folder, an interrupted training goes on with the same bits.

    Statement   min_θ mean |T_θ[mu](x) − Γ*(mu, x)|² over finitely many (mu, x)
    Cost        for each update all measures, forth and back.
    Ref         furuya2024.

    >>> import jax, measureformer as mf
    >>> small = mf.universality.Architecture(layers=1, dim=8, width=8)
    >>> mf.universality.train_functional(
    ...     mf.universality.variance(1), mf.Box([0.0], [1.0]), jax.random.key(0), architecture=small,
    ...     optimization=mf.Optimization(steps=30), search=mf.universality.Search(contexts=60),
    ... ).parameters
    425
    """
    architecture = Architecture() if architecture is None else architecture
    if optimization is None:
        optimization = Optimization(steps=2000, rate=0.005, clip=None, warmup=0.0, final=0.0)
    search = Search() if search is None else search
    if not isinstance(domain, AbstractDomain):
        raise DtypeError(
            got=f"a domain of type {type(domain).__name__}", need="a compact domain", do="Pass mf.Box(low, high)."
        )
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
    start = architecture.random(rng, domain.dim, goals.shape[-1])
    about = {
        "contexts": contexts.size,
        "dim": domain.dim,
        "architecture": asdict(architecture),
        "training": asdict(optimization),
    }
    folder = None if save is None else Folder.at(save, about, [*problem, *jax.tree.leaves(start)])
    run = trained(start, SquaredError(problem), optimization, prng_key(key), folder=folder)
    weights = _unscaled(run.good, middle, spread)
    net = as_transformer(weights, jax.nn.gelu, (architecture.width,) * architecture.layers)
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
        parameters=architecture.parameters(domain.dim, goals.shape[-1]),
        losses=run.losses,
        stopped=run.stopped,
        training_sup=float(errors[0].max()),
        held_out=float(errors[1].max()),
        held_out_rms=float(np.sqrt((errors[1] ** 2).mean())),
        scale=float(np.abs(truth - truth.mean(axis=(0, 1))).max()),
    )


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
