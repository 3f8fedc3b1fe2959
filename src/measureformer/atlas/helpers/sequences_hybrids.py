"""Small networks with a mixer of your choice in each layer, of nearly equal size, trained on functions of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import TrainingError
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization

MIXERS = ("attention", "bilinear", "conv")


class Weights(NamedTuple):
    """Every layer has the arrays of all mixers, and flags say which is used: any choice is the same program."""

    embed: Any
    places: Any
    layers: dict[str, Any]
    """Stacked: Q, K, V, P, kernel, W, W1, b1, W2, b2."""
    readout: Any


class Hybrid(NamedTuple):
    """A trained network: its size and its error."""

    parameters: int
    """Of the mixers in use, and of everything else."""
    error: float
    """L2 distance to f over the cube, measured on held-out sequences."""


def train(
    f: Callable[[np.ndarray], np.ndarray],
    nets: Sequence[Sequence[str]],
    key: Key,
    *,
    n: int,
    dim: int,
    steps: int,
    batch: int,
) -> list[Hybrid]:
    """Train networks to compute f, (batch, n, 1) to the same, on [0, 1]^n, each with one layer per mixer it names.

    A layer is a mixer ("attention", "bilinear", "conv", or "none") and a GELU perceptron, both with skips; tokens get
    trained positions. Perceptrons are wider where the mixer has fewer parameters than attention. The networks have
    equally many layers and are trained together: each entry has its own step size, so none of them sees the others.

    Ref         yun2020, Section 5.
    """
    rngs = [generator(key) for _ in nets]
    starts, widths = zip(*(drawn(rng, mixers, n, dim) for rng, mixers in zip(rngs, nets, strict=True)), strict=True)
    weights = jax.tree.map(lambda *each: np.stack(each), *starts)
    X = rngs[0].uniform(size=(2 * batch, n, 1))
    Y = f(X)
    middle, spread = Y[:batch].mean(axis=0), float(Y[:batch].std()) or 1.0
    flags = np.array([[[float(kind == name) for name in MIXERS] for kind in mixers] for mixers in nets])
    if steps:
        settings = Optimization(steps=steps, rate=5e-3, clip=None, warmup=0.0, final=0.0)
        objective = _SquaredErrors(X[:batch], (Y[:batch] - middle) / spread, flags)
        run = trained(weights, objective, settings, key, last=False)
        if run.failed:
            raise TrainingError(got="a loss that is not finite", need="finite losses", do="Take a smaller rate.")
        weights = run.weights
    found = np.asarray(_evaluated(weights, X[batch:], flags)) * spread + middle
    errors = np.sqrt(((found - Y[batch:]) ** 2).sum(axis=(2, 3)).mean(axis=1))
    rests = [2 * dim + n * dim + sum(width * (2 * dim + 1) + dim for width in each) + dim + 1 for each in widths]
    sizes = [rest + sum(_size(kind, n, dim) for kind in net) for rest, net in zip(rests, nets, strict=True)]
    return [Hybrid(size, float(error)) for size, error in zip(sizes, errors, strict=True)]


def _size(kind: str, n: int, dim: int) -> int:
    """Parameters of a mixer: Q, K, V, W; W and P; W and a kernel of three."""
    return {"attention": 4 * dim**2, "bilinear": dim**2 + n * n, "conv": dim**2 + 3 * dim, "none": 0}[kind]


def drawn(rng: np.random.Generator, mixers: Sequence[str], n: int, dim: int) -> tuple[Weights, list[int]]:
    """Random weights, and the widths of the perceptrons."""
    L, most = len(mixers), 4 * dim**2
    widths = [2 * dim + round((most - _size(kind, n, dim)) / (2 * dim + 1)) for kind in mixers]
    widest = 2 * dim + math.ceil(most / (2 * dim + 1))  # of a layer without mixer: the same for all choices
    # units beyond the width of a layer have weights 0 on both sides, so they stay 0
    there = np.arange(widest)[None] < np.array(widths)[:, None]
    Q, K, V, W = rng.normal(size=(4, L, dim, dim)) / math.sqrt(dim)
    embed, places = rng.normal(size=(dim, 2)), rng.normal(size=(n, dim)) / 2
    layers = {
        "Q": Q,
        "K": K,
        "V": V,
        "W": W / math.sqrt(L),
        "P": rng.normal(size=(L, n, n)) / math.sqrt(n),
        "kernel": rng.normal(size=(L, 3, dim)) / math.sqrt(3),
        "W1": rng.normal(size=(L, widest, dim)) * math.sqrt(2 / dim) * there[..., None],
        "b1": np.zeros((L, widest)),
        "W2": rng.normal(size=(L, dim, widest)) / np.sqrt(L * np.array(widths))[:, None, None] * there[:, None, :],
        "b2": np.zeros((L, dim)),
    }
    readout = np.concatenate([rng.normal(size=(1, dim)) / math.sqrt(dim), np.zeros((1, 1))], axis=1)
    return Weights(embed, places, layers, readout), widths


def values(weights: Weights, X: Any, flags: Any) -> Array:
    """The networks' values (batch, n, 1); `flags` (layers, 3) switch the mixers of each layer on."""

    def layer(tokens: Array, this: tuple[Any, dict[str, Any]]) -> tuple[Array, None]:
        flag, w = this
        logits = jnp.einsum("bmk,bnk->bmn", tokens @ w["Q"].T, tokens @ w["K"].T)
        wide = jnp.pad(tokens, ((0, 0), (1, 1), (0, 0)))
        near = jnp.stack([wide[:, s : s + X.shape[1]] for s in range(3)])
        mixed = (
            flag[0] * (jax.nn.softmax(logits, axis=-1) @ tokens @ w["V"].T)
            + flag[1] * jnp.einsum("kj,bjd->bkd", w["P"], tokens)
            + flag[2] * jnp.einsum("sd,sbnd->bnd", w["kernel"], near)
        )
        tokens = tokens + mixed @ w["W"].T
        return tokens + jax.nn.gelu(tokens @ w["W1"].T + w["b1"]) @ w["W2"].T + w["b2"], None

    tokens = X @ weights.embed[:, :-1].T + weights.embed[:, -1] + weights.places
    tokens, _ = jax.lax.scan(layer, tokens, (flags, weights.layers))
    return tokens @ weights.readout[:, :-1].T + weights.readout[:, -1]


_evaluated: Callable[..., Array] = jax.jit(jax.vmap(values, (0, None, 0)))


class _SquaredErrors(eqx.Module):
    """The sum of the networks' mean square errors on all sequences, as the objective of the training loop."""

    X: Any
    Y: Any
    flags: Any

    def __call__(self, weights: Weights, key: Any, step: Any) -> Array:
        found = jax.vmap(values, (0, None, 0))(weights, self.X, self.flags)
        return jnp.sum(jnp.mean((found - self.Y) ** 2, axis=(1, 2, 3)))
