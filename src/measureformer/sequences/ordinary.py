"""Constructions as ordinary maps of the library: their tokens are (x, 1), and the last coordinate carries biases."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import Residual
from measureformer.maps.mlp import MLP, Linear
from measureformer.maps.positions import Positional
from measureformer.maps.rows import all_rows
from measureformer.maps.transformer import Transformer
from measureformer.maps.variants import HardmaxAttention
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import owned
from measureformer.numerics.types import ArrayLike
from measureformer.sequences.construction import Construction
from measureformer.sequences.layers import Feed, Shift
from measureformer.sequences.sparse.attention import SparseAttention


class Switch(AbstractInContextMap):
    """x ↦ x + w2 φ(w1·x) for a piecewise linear φ with jumps, eight numbers (a1, b1, c1, a2, b2, c2, a3, b3).

    >>> import measureformer as mf
    >>> from measureformer.sequences.ordinary import Switch
    >>> G = Switch([1.0], [0, 0, 0.25, -1, 0.25, 0.5, 0, 0], [1.0])
    >>> G(mf.Discrete.dirac([0.0]), [[0.3], [0.6]]).tolist()
    [[0.25], [0.6]]
    """

    w1: Float[Array, " d"]
    pieces: Float[Array, 8]
    w2: Float[Array, " d"]

    def __init__(self, w1: ArrayLike, pieces: ArrayLike, w2: ArrayLike) -> None:
        self.w1, self.pieces, self.w2 = (owned(np.asarray(a, float)) for a in (w1, pieces, w2))

    @property
    def in_dim(self) -> int:
        return self.w1.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        a1, b1, c1, a2, b2, c2, a3, b3 = self.pieces
        s = x @ self.w1
        slope = jnp.where(s < c1, a1, jnp.where(s < c2, a2, a3))
        shift = jnp.where(s < c1, b1, jnp.where(s < c2, b2, b3))
        return (x + (slope * s)[:, None] * self.w2) + shift[:, None] * self.w2


def perceptron_map(layer: Feed, ramp: float | None) -> AbstractInContextMap:
    """x ← x + w2 φ(w1·x) on tokens (x, 1)."""
    w1, w2 = np.append(layer.w1, 0.0), np.append(np.sum(layer.w2, axis=0), 0.0)
    if ramp is None:
        return Switch(w1, layer.activation, w2)
    relus = layer.activation.relus(ramp)
    return MLP(
        relus.signs[:, None] * w1, relus.shifts, w2[:, None] * relus.coefficients, relus.constant * w2, skip=True
    )


def attention_map(layer: Shift, *, soft: bool) -> AbstractInContextMap:
    """Residual attention on tokens (x, 1): the bias of a query is the weight of the 1."""
    w = layer.weights()
    zero = np.zeros((len(layer.scales), 1, 1))
    K, V = (np.concatenate([w[name], zero], axis=2) for name in ("W_K", "W_V"))
    Q = np.concatenate([w["W_Q"], w["b_Q"][:, :, None]], axis=2)
    W = np.concatenate([w["W_O"], zero], axis=1)
    parts: list[Any] = [Q, layer.gain * K if soft else K, V, W]
    heads = Attention(*parts) if soft else HardmaxAttention(*parts)
    return Residual(heads if layer.mask is None else SparseAttention(heads, layer.mask))


class Places:
    """The encoding of times (i + 1)/n as (e_i, …, e_i, 0) for given places e."""

    def __init__(self, places: tuple[int, ...], d: int) -> None:
        self.rows = np.concatenate(
            [np.repeat(np.array(places, float)[:, None], d, axis=1), np.zeros((len(places), 1))], 1
        )
        self.dim = d + 1

    def __call__(self, t: Any) -> Array:
        n = len(self.rows)
        return jnp.asarray(self.rows)[jnp.clip(jnp.round(t * n).astype(int) - 1, 0, n - 1)]


def network(made: Construction, mode: str) -> Transformer:
    """x ↦ (x, 1), places if there are any, all layers, and back."""
    if mode not in ("hard", "soft", "clamped"):
        raise OptionError(
            got=f"mode = {mode!r}", need='"hard", "soft" or "clamped"', do="Whole numbers are not a map of tokens."
        )
    d = made.grid.d
    eye = np.eye(d + 1)
    layers = [layer for layer in made.layers if layer.tag != "clamp" or mode == "clamped"]
    start = [Linear(eye[:, :d], eye[:, d])]
    places = [] if made.grid.places is None else [Positional(Places(made.grid.places, d))]
    middle = [layer.as_map(None if mode == "hard" else made.ramp) for layer in layers]
    return Transformer(*start, *places, *middle, Linear(eye[:d]))
