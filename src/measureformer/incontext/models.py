"""Models that learn in context: a transformer with pre-norm blocks and a read-out, trained as a batched program.

A prompt can be read in two ways. As a *sequence* x_1, y_1, x_2, y_2, … with a causal mask and, usually, positions: a
measure on space–time. Or as a *measure* (1/k) Σ δ_(x_i, y_i) with the question x as a point: the model is then an
in-context map G(mu, x), invariant under order and repetition, and defined for any number of examples. In both cases
`model.map` is the same model as a composition of this library's maps.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from measureformer.errors import OptionError, ShapeError
from measureformer.incontext.blocks import EPS, EVERY, Blocks, causal_mask, normed, through
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.causal import Causal
from measureformer.maps.compose import Residual
from measureformer.maps.mlp import MLP, Linear
from measureformer.maps.norm import LayerNorm
from measureformer.maps.positions import Positional
from measureformer.maps.transformer import Transformer
from measureformer.measures import Discrete, SpaceTime
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key, Real
from measureformer.training.architecture import Architecture

Reading = Literal["sequence", "measure"]


class InContextModel(eqx.Module):
    """A transformer that reads a prompt of examples and predicts the label of a question. Made by `random`.

    A "sequence" with positions for `points` examples reads at most that many; without positions, any number. A
    "measure" reads any number from 1 on, with any weights.

    Arguments:
        read_in: matrix from tokens to the width, (e, w).
        read_in_bias: its bias, (w,).
        positions: rows of the positions, (p, w), or None.
        blocks: weights of the blocks.
        final_norm: gain and shift of the last LayerNorm, (2, w).
        read_out: column from the width to the prediction, (w, 1).
        read_out_bias: its bias, (1,).
        architecture: shape of the blocks.
        reading: "sequence" or "measure".

    >>> import jax, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 3, small, points=5)
    >>> prompts = mf.incontext.tasks.linear(3).sample(jax.random.key(1), 4, 5)
    >>> model.predictions(prompts.x, prompts.y).shape           # after 0, 1, …, 4 examples
    (4, 5)
    """

    read_in: Float[Array, "e w"]
    read_in_bias: Float[Array, " w"]
    positions: Float[Array, "p w"] | None
    blocks: Blocks
    final_norm: Float[Array, "2 w"]
    read_out: Float[Array, "w 1"]
    read_out_bias: Float[Array, " 1"]
    architecture: Architecture = eqx.field(static=True)
    reading: Reading = eqx.field(static=True)

    @staticmethod
    @checked
    def random(
        key: Key,
        dim: int,
        architecture: Architecture | None = None,
        *,
        points: int | None = None,
        reading: Reading = "sequence",
        dtype: DTypeLike = np.float32,
    ) -> InContextModel:
        """An untrained model.

        Arguments:
            key: randomness of the weights.
            dim: dimension of the inputs.
            architecture: shape of the blocks; `Architecture()` if omitted.
            points: examples that a sequence has positions for; without, it has no positions.
            reading: how the model reads a prompt.
            dtype: floating type of the weights.
        """
        a = Architecture() if architecture is None else architecture
        if reading not in ("sequence", "measure") or (reading == "measure" and points is not None):
            raise OptionError(
                got=f"reading = {reading!r}" + ("" if points is None else f" with points = {points}"),
                need='"sequence", with or without positions, or "measure", which has none',
                do="Leave points out for a measure.",
            )
        places = None if points is None else 2 * positive_int(points, "points")
        return _random(prng_key(key), positive_int(dim, "dim"), a, places, reading, np.dtype(dtype))

    @property
    def dim(self) -> int:
        """Dimension of the inputs."""
        return self.read_in.shape[0] - (2 if self.reading == "measure" else 0)

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum(leaf.size for leaf in jax.tree.leaves(self))

    def about(self) -> dict[str, Any]:
        """The arguments of `random` that rebuild its shape, as JSON."""
        points = None if self.positions is None else self.positions.shape[0] // 2
        return {"dim": self.dim, "points": points, "reading": self.reading, **asdict(self.architecture)}

    @eqx.filter_jit
    def predictions(self, x: ArrayLike, y: ArrayLike) -> Float[Array, "b n"]:
        """The prediction at x_i after the first i examples, for every i, in one pass (a sequence) or n (a measure).

        A measure needs an example: before the first, its prediction is 0. Pure JAX.

        Arguments:
            x: inputs (b, n, d).
            y: labels (b, n).
        """
        x, y = jnp.asarray(x), jnp.asarray(y)
        if self.reading == "sequence":
            # the last label is seen by no question
            return self.scores(sequence_tokens(x, y)[:, :-1], read=slice(None, None, 2))
        seen = jnp.arange(x.shape[1])
        first = jnp.moveaxis(jax.vmap(lambda k: self._after(x, y, x, k, k))(seen[1:]), 0, 1)
        return jnp.concatenate([jnp.zeros((x.shape[0], 1), first.dtype), first], axis=1)

    @eqx.filter_jit
    def answers(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> Float[Array, "b n"]:
        """The prediction at queries_i after the first i examples, for every i, where questions are not examples.

        Arguments:
            x: inputs (b, n, d).
            y: labels (b, n).
            queries: questions (b, n, d).
        """
        x, y, queries = jnp.asarray(x), jnp.asarray(y), jnp.asarray(queries)
        seen = jnp.arange(x.shape[1])
        if self.reading == "sequence":
            asked = jax.vmap(lambda k: self.scores(sequence_tokens(x.at[:, k].set(queries[:, k]), y))[:, 2 * k])(seen)
            return asked.T
        found = jax.vmap(lambda k: self._after(x, y, queries, jnp.maximum(k, 1), k))(seen).T
        return jnp.where(seen == 0, 0, found)

    def _after(self, x: Array, y: Array, queries: Array, count: Any, i: Any) -> Array:
        """The prediction at queries_i, where the context is the first `count` examples with equal weights."""
        log_weights = jnp.where(jnp.arange(x.shape[1]) < count, 0, -jnp.inf).astype(x.dtype)
        question = jax.lax.dynamic_slice_in_dim(queries, i, 1, axis=1)
        return self.at(x, y, jnp.broadcast_to(log_weights, y.shape), question)[:, 0]

    @eqx.filter_jit
    def at(self, x: ArrayLike, y: ArrayLike, log_weights: ArrayLike, queries: ArrayLike) -> Float[Array, "b m"]:
        """G(mu, query) for measures mu = Σ_j e^{log_weights_j} δ_(x_j, y_j). Pure JAX.

        Arguments:
            x: inputs (b, n, d).
            y: labels (b, n).
            log_weights: logarithms of the weights, (b, n).
            queries: questions (b, m, d).
        """
        x, y, log_weights, queries = map(jnp.asarray, (x, y, log_weights, queries))
        tokens = jnp.concatenate([example_tokens(x, y), query_tokens(queries)], axis=1)
        n, m = x.shape[1], queries.shape[1]
        passive = jnp.full((x.shape[0], m), -jnp.inf, x.dtype)  # questions are seen by nobody
        mask = jnp.concatenate([log_weights, passive], axis=1)[:, None, :]
        return self.scores(tokens, jnp.broadcast_to(mask, (x.shape[0], n + m, n + m)), read=slice(n, None))

    def embedded(self, tokens: Array) -> Array:
        """Tokens (b, n, e) after the read-in and the positions."""
        h = tokens @ self.read_in + self.read_in_bias
        return h if self.positions is None else h + self.positions[: tokens.shape[1]]

    def scores(self, tokens: Array, log_weights: Array | None = None, read: slice = EVERY) -> Float[Array, "b m"]:
        """The read-out at the tokens of the slice `read`."""
        mask = causal_mask(tokens.shape[1], tokens.dtype) if log_weights is None else log_weights
        h = through(self.blocks, self.embedded(tokens), mask, self.architecture, read)
        h = normed(h, self.final_norm) if self.architecture.norm == "layer" else h
        return (h @ self.read_out + self.read_out_bias)[..., 0]

    @property
    def map(self) -> AbstractInContextMap:
        """The model as a composition of this library's maps, of a measure and a point or of space–time.

        The measures are those of `examples_measure` and `sequence_measure`.
        """
        first, last = Linear(self.read_in.T, self.read_in_bias), Linear(self.read_out.T, self.read_out_bias)
        inner = as_layers(self.positions, self.blocks, self.final_norm, self.architecture)
        layers = [first, *inner, last]
        return Transformer(*(Causal(layer) for layer in layers) if self.reading == "sequence" else layers)


@eqx.filter_jit
def _random(
    key: Key, dim: int, a: Architecture, places: int | None, reading: Reading, dtype: DTypeLike
) -> InContextModel:
    entries = dim + (2 if reading == "measure" else 0)
    keys = jax.random.split(key, 4)
    draw = lambda k, *shape: jax.random.normal(k, shape, dtype)  # noqa: E731
    return InContextModel(
        draw(keys[0], entries, a.width) / math.sqrt(entries),
        jnp.zeros(a.width, dtype),
        None if places is None else 0.1 * draw(keys[1], places, a.width),
        Blocks.random(keys[2], a, dtype),
        jnp.stack([jnp.ones(a.width, dtype), jnp.zeros(a.width, dtype)]),
        draw(keys[3], a.width, 1) / a.width,
        jnp.zeros(1, dtype),
        a,
        reading,
    )


def as_layers(positions: Any, blocks: Blocks, final_norm: Any, a: Architecture) -> list[AbstractInContextMap]:
    """Everything between the read-in and the read-out, as maps of this library."""
    layers: list[AbstractInContextMap] = [] if positions is None else [Positional(Table(positions))]
    for i in range(a.layers):
        layers += block_maps(jax.tree.map(lambda leaf, i=i: leaf[i], blocks), a)
    return [*layers, LayerNorm(*final_norm, eps=EPS)] if a.norm == "layer" else layers


class Table(eqx.Module):
    """Learned positions as an encoding of times: time i is row i."""

    rows: Float[Array, "p w"]

    def __call__(self, t: Any) -> Array:
        return self.rows[jnp.clip(jnp.round(t).astype(int), 0, self.rows.shape[0] - 1)]


def block_maps(block: Blocks, a: Architecture) -> list[AbstractInContextMap]:
    """One block as two residual maps.

    Biases of queries, keys and values are columns that act on a coordinate 1 appended by a linear map.
    """
    D, H, k = a.width, a.heads, a.width // a.heads
    q, key, v = (part.T.reshape(H, k, D) for part in jnp.split(block.qkv, 3, axis=1))
    biases = (part.reshape(H, k, 1) for part in jnp.split(block.qkv_bias, 3))
    Q, K, V = (jnp.concatenate([m, b], axis=2) for m, b in zip((q, key, v), biases, strict=True))
    lift = Linear(jnp.concatenate([jnp.eye(D), jnp.zeros((1, D))]), jnp.zeros(D + 1).at[D].set(1.0))
    W = block.out.reshape(H, k, D).transpose(0, 2, 1)
    attention = Linear(jnp.eye(D), block.out_bias) @ Attention(Q, K, V, W, scale=jnp.asarray(1 / math.sqrt(k))) @ lift
    perceptron: Any = MLP(block.up.T, block.up_bias, block.down.T, block.down_bias, activation="gelu")
    if a.norm == "layer":
        attention = attention @ LayerNorm(*block.norm_1, eps=EPS)
        perceptron = perceptron @ LayerNorm(*block.norm_2, eps=EPS)
    return [Residual(attention, step=a.branch), Residual(perceptron, step=a.branch)]


def sequence_tokens(x: Array, y: Array) -> Array:
    """x_1, y_1, x_2, y_2, … as (b, 2n, d): the first entry of a label's vector is the label, the others are 0."""
    labels = jnp.zeros_like(x).at[..., 0].set(y)
    return jnp.stack([x, labels], axis=2).reshape(x.shape[0], 2 * x.shape[1], x.shape[2])


def example_tokens(x: Array, y: Array) -> Array:
    """(x, y, 1) for each example."""
    return jnp.concatenate([x, y[..., None], jnp.ones_like(y)[..., None]], axis=-1)


def query_tokens(x: Array) -> Array:
    """(x, 0, 0) for each question."""
    return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], 2), x.dtype)], axis=-1)


def sequence_measure(x: ArrayLike, y: ArrayLike) -> SpaceTime:
    """One prompt as a measure on space–time: tokens x_1, y_1, x_2, … at times 0, 1, 2, …

    Arguments:
        x: inputs (n, d).
        y: labels (n,); each is a token with the label in its first entry.

    >>> import numpy as np, measureformer as mf
    >>> sequence_measure(np.ones((2, 1)), np.array([5.0, 6.0])).points[:, 0].tolist()
    [1.0, 5.0, 1.0, 6.0]
    """
    tokens = np.asarray(sequence_tokens(jnp.asarray(x)[None], jnp.asarray(y)[None])[0])
    return SpaceTime.uniform(tokens, np.arange(len(tokens)))


@checked
def examples_measure(
    x: Annotated[ArrayLike, Real(axes=2)], y: Annotated[ArrayLike, Real(axes=1)], weights: ArrayLike | None = None
) -> Discrete:
    """One prompt as a measure on R^(d+2) with an atom (x_i, y_i, 1) for each example.

    Arguments:
        x: inputs (n, d).
        y: labels (n,).
        weights: masses of the atoms, (n,); 1/n each if omitted.

    >>> import numpy as np, measureformer as mf
    >>> mf.incontext.examples_measure(np.ones((2, 1)), np.array([5.0, 6.0])).points.tolist()
    [[1.0, 5.0, 1.0], [1.0, 6.0, 1.0]]
    """
    x, y = np.asarray(x), np.asarray(y)
    if len(x) != len(y):
        raise ShapeError(
            got=f"{len(x)} inputs and {len(y)} labels", need="one label per input", do="Cut the longer one."
        )
    points = np.concatenate([x, y[:, None], np.ones((len(y), 1))], axis=1)
    return Discrete.uniform(points) if weights is None else Discrete.weighted(points, weights)
