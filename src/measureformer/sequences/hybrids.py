"""Small networks with attention in all, half or none of their layers, trained on functions of sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from measureformer.errors import OptionError, TrainingError
from measureformer.maps import MLP, AbstractInContextMap, Attention, Linear, Residual, Transformer
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.random import generator
from measureformer.sequences.function import SequenceFunction
from measureformer.sequences.mixers import Bilinear, SeparableConv

Mixer = Literal["attention", "bilinear", "conv", "none"]
MIXERS = ("attention", "bilinear", "conv", "none")
_QUICKLY = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}


class _Weights(NamedTuple):
    """Every layer has the arrays of all mixers, and `flags` say which is used: any choice is the same program."""

    embed: Any
    places: Any
    Q: Any
    K: Any
    V: Any
    P: Any
    kernel: Any
    W: Any
    W1: Any
    b1: Any
    W2: Any
    b2: Any
    readout: Any


@dataclass(frozen=True, eq=False)
class Hybrid:
    """A trained network: its error on sequences it has not seen, and the same network of ordinary maps.

    >>> import jax, measureformer as mf
    >>> train = mf.sequences.hybrids.train
    >>> small = {"d": 1, "n": 3, "dim": 8, "steps": 40, "batch": 64}
    >>> found = train(lambda X: X[::-1], ("attention", "bilinear"), jax.random.key(0), **small)
    >>> found.map.depth, found.mixers
    (4, ('attention', 'bilinear'))
    """

    mixers: tuple[str, ...]
    parameters: int
    """Of the mixers that are used, and all else."""
    losses: np.ndarray
    """Mean square error before each step."""
    error: Any
    """L2 distance to f over the cube, measured on sequences that were not seen."""
    map: Transformer
    """On `SpaceTime.sequence(X)`; `map.tokens(X)` for an (n, d) array."""


def train(
    f: Any,
    mixers: Sequence[str],
    key: Any,
    *,
    d: int,
    n: int,
    dim: int = 16,
    steps: int = 1500,
    rate: Any = 5e-3,
    batch: int = 512,
) -> Hybrid:
    """A network with one layer for each of `mixers`, trained on random sequences in the cube to compute f.

    A layer is a mixer, "attention", "bilinear", "conv" or "none", and a GELU perceptron, both with skips; tokens are
    embedded with trained positions. The width of each perceptron makes up for what its mixer has fewer parameters than
    attention has, so that networks of equal depth are of nearly equal size. Adam with a cosine schedule.

    Ref         yun2020, Section 5.

    >>> import jax, numpy as np, measureformer as mf
    >>> f = lambda X: np.broadcast_to(X.mean(axis=-2, keepdims=True), X.shape)
    >>> small = {"d": 1, "n": 3, "dim": 8, "steps": 40, "batch": 64}
    >>> net = mf.sequences.hybrids.train(f, ("attention", "none"), jax.random.key(0), **small)
    >>> bool(net.losses[-1] < 0.5 * net.losses[0])
    True
    """
    kinds = tuple(mixers)
    if not kinds or any(kind not in MIXERS for kind in kinds):
        raise OptionError(
            got=f"mixers = {mixers!r}", need=f"a sequence of {', '.join(MIXERS)}", do="One for each layer."
        )
    for name, value in (("d", d), ("n", n), ("dim", dim), ("steps", steps), ("batch", batch)):
        positive_int(value, name)
    function, rng = SequenceFunction(f, d, n), generator(key)
    weights, widths = _random(rng, kinds, (d, n, dim))
    X = rng.uniform(size=(2 * batch, n, d))
    Y = function(X)
    middle, spread = Y[:batch].mean(axis=0), float(Y[:batch].std()) or 1.0
    flags = _flags(kinds)
    weights, losses = _trained(weights, (X[:batch], (Y[:batch] - middle) / spread), flags, steps, np.asarray(rate))
    losses = np.asarray(losses) * spread**2
    if not np.isfinite(losses).all():
        raise TrainingError(got="a loss that is not finite", need="finite losses", do="Take a smaller rate.")
    found = np.asarray(_evaluated(weights, X[batch:], flags)) * spread + middle
    error = math.sqrt(float(((found - Y[batch:]) ** 2).sum(axis=(1, 2)).mean()))
    used = sum(_mixing(kind, n, dim) for kind in kinds)
    rest = dim * (d + 1) + n * dim + sum(w * (2 * dim + 1) + dim for w in widths) + d * (dim + 1)
    return Hybrid(kinds, used + rest, losses, error, _as_map(weights, kinds, widths, (middle, spread)))


def _mixing(kind: str, n: int, dim: int) -> int:
    """Parameters of a mixer: Q, K, V, W; W and P; W and a kernel of three."""
    return {"attention": 4 * dim**2, "bilinear": dim**2 + n * n, "conv": dim**2 + 3 * dim, "none": 0}[kind]


def _random(rng: Any, kinds: tuple[str, ...], sizes: tuple[int, int, int]) -> tuple[_Weights, list[int]]:
    d, n, dim = sizes
    L = len(kinds)
    most = 4 * dim**2
    widths = [2 * dim + round((most - _mixing(kind, n, dim)) / (2 * dim + 1)) for kind in kinds]
    widest = 2 * dim + math.ceil(most / (2 * dim + 1))  # of a layer without mixer: the same for all choices
    # units beyond the width of a layer have weights 0 on both sides, and stay so
    there = np.arange(widest)[None] < np.array(widths)[:, None]
    Q, K, V, W = rng.normal(size=(4, L, dim, dim)) / math.sqrt(dim)
    weights = _Weights(
        embed=rng.normal(size=(dim, d + 1)),
        places=rng.normal(size=(n, dim)) / 2,
        Q=Q,
        K=K,
        V=V,
        P=rng.normal(size=(L, n, n)) / math.sqrt(n),
        kernel=rng.normal(size=(L, 3, dim)) / math.sqrt(3),
        W=W / math.sqrt(L),
        W1=rng.normal(size=(L, widest, dim)) * math.sqrt(2 / dim) * there[..., None],
        b1=np.zeros((L, widest)),
        W2=(rng.normal(size=(L, dim, widest)) / np.sqrt(L * np.array(widths))[:, None, None]) * there[:, None, :],
        b2=np.zeros((L, dim)),
        readout=np.concatenate([rng.normal(size=(d, dim)) / math.sqrt(dim), np.zeros((d, 1))], axis=1),
    )
    return weights, widths


def _flags(kinds: tuple[str, ...]) -> np.ndarray:
    return np.array([[float(kind == name) for name in ("attention", "bilinear", "conv")] for kind in kinds])


def _values(w: _Weights, X: Any, flags: Any) -> Array:
    def layer(tokens: Array, this: tuple[Any, ...]) -> tuple[Array, None]:
        flag, Q, K, V, P, kernel, W, W1, b1, W2, b2 = this
        logits = jnp.einsum("bmk,bnk->bmn", tokens @ Q.T, tokens @ K.T)
        wide = jnp.pad(tokens, ((0, 0), (1, 1), (0, 0)))
        near = jnp.stack([wide[:, s : s + X.shape[1]] for s in range(3)])
        mixed = (
            flag[0] * (jax.nn.softmax(logits, axis=-1) @ tokens @ V.T)
            + flag[1] * jnp.einsum("kj,bjd->bkd", P, tokens)
            + flag[2] * jnp.einsum("sd,sbnd->bnd", kernel, near)
        )
        tokens = tokens + mixed @ W.T
        return tokens + jax.nn.gelu(tokens @ W1.T + b1) @ W2.T + b2, None

    # one loop, however many layers there are: its body is compiled once
    tokens = X @ w.embed[:, :-1].T + w.embed[:, -1] + w.places
    tokens, _ = jax.lax.scan(layer, tokens, (flags, w.Q, w.K, w.V, w.P, w.kernel, w.W, w.W1, w.b1, w.W2, w.b2))
    return tokens @ w.readout[:, :-1].T + w.readout[:, -1]


# small programs: the compiler's last passes take longer than they save
@partial(jax.jit, static_argnums=3, compiler_options=_QUICKLY)
def _trained(weights: _Weights, data: Any, flags: Any, steps: int, rate: Any) -> tuple[_Weights, Array]:
    import optax

    optimizer = optax.adam(lambda count: rate * 0.5 * (1 + jnp.cos(jnp.pi * count / steps)))
    # one long vector, so that an update is a handful of operations
    start, shaped = ravel_pytree(weights)

    def loss(vector: Array) -> Array:
        return jnp.mean((_values(shaped(vector), data[0], flags) - data[1]) ** 2)

    def one(carry: Any, _: None) -> tuple[Any, Array]:
        vector, memory = carry
        value, slope = jax.value_and_grad(loss)(vector)
        changes, memory = optimizer.update(slope, memory, vector)
        return (vector + changes, memory), value

    (vector, _), losses = jax.lax.scan(one, (start, optimizer.init(start)), None, steps)
    return shaped(vector), losses


_evaluated = jax.jit(_values)


class _Rows:
    """The encoding that gives the token in slot i the row i."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.dim = rows, rows.shape[1]

    def __call__(self, t: Any) -> Array:
        from measureformer.sequences.slots import slot

        return jnp.asarray(self.rows)[slot(t, len(self.rows))]


def _as_map(w: _Weights, kinds: tuple[str, ...], widths: list[int], units: tuple[np.ndarray, float]) -> Transformer:
    from measureformer.maps import Positional

    w = _Weights(*(np.asarray(leaf) for leaf in w))
    n, spread = len(w.places), units[1]
    layers: list[AbstractInContextMap] = [Linear(w.embed[:, :-1], w.embed[:, -1]), Positional(_Rows(w.places))]
    for i, kind in enumerate(kinds):
        mixer: list[AbstractInContextMap] = []
        if kind == "attention":
            parts: list[Any] = [leaf[i][None] for leaf in (w.Q, w.K, w.V, w.W)]
            mixer = [Residual(Attention(*parts))]
        elif kind == "bilinear":
            mixer = [Residual(Bilinear(w.W[i], w.P[i]))]
        elif kind == "conv":
            mixer = [Residual(SeparableConv(w.kernel[i], w.W[i], n=n))]
        k = widths[i]
        layer = MLP(w.W1[i, :k], w.b1[i, :k], w.W2[i, :, :k], w.b2[i], activation="gelu", skip=True)
        layers.append(layer @ mixer[0] if mixer else layer)
    first = Positional(_Rows(np.asarray(units[0])))
    return Transformer(
        layers[1] @ layers[0], *layers[2:], first @ Linear(spread * w.readout[:, :-1], spread * w.readout[:, -1])
    )
