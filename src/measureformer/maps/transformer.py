"""`Transformer`: a readable composition of blocks, each attention and a perceptron with skips."""

from __future__ import annotations

from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap, GaussianLike
from measureformer.maps.call import value
from measureformer.maps.causal import Causal
from measureformer.maps.compose import AbstractWrapper, Compose, Residual
from measureformer.maps.mlp import MLP
from measureformer.maps.norm import LayerNorm, RMSNorm
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key, Size

Norm = Literal["layer", "rms", "none"]


class Transformer(AbstractWrapper):
    """The composition layer_L ⋄ … ⋄ layer_1; on an (n, d) array, `net.tokens(X)` is the classical transformer.

    Arguments:
        layers: in-context maps, in the order in which they act.

    Ref         vaswani2017; furuya2024.

    >>> import jax, numpy as np, measureformer as mf
    >>> net = mf.Transformer.random(jax.random.key(0), dim=4, depth=2, heads=2)
    >>> X = np.ones((3, 4)) * np.arange(3)[:, None]
    >>> net.tokens(X).shape, net.depth
    ((3, 4), 2)
    >>> print(net)
    1  Residual(MLP ⋄ LayerNorm) ⋄ Residual(Attention[2 heads] ⋄ LayerNorm)
    2  Residual(MLP ⋄ LayerNorm) ⋄ Residual(Attention[2 heads] ⋄ LayerNorm)
    """

    map: AbstractInContextMap

    @checked
    def __init__(self, *layers: AbstractInContextMap) -> None:
        parts: tuple[Any, ...] = layers  # users pass anything
        if not parts or not all(isinstance(layer, AbstractInContextMap) for layer in parts):
            raise OptionError(
                got=f"{len(layers)} layers, {', '.join(type(layer).__name__ for layer in layers)}",
                need="at least one in-context map",
                do="Pass layers in the order in which they act, or use Transformer.random.",
            )
        whole = Compose(tuple(reversed(layers)))
        if whole.in_dim is not None:
            whole.out_dim(whole.in_dim)
        self.map = whole

    @staticmethod
    @checked
    def random(
        key: Key,
        *,
        dim: Size,
        depth: Size,
        heads: Size = 1,
        norm: Norm = "layer",
        causal: bool = False,
    ) -> Transformer:
        """Random pre-norm blocks Residual(MLP ⋄ norm) ⋄ Residual(attention ⋄ norm), with perceptrons of width 4·dim.

        Arguments:
            key: a JAX random key.
            dim: dimension of the tokens.
            depth: number of blocks.
            heads: attention heads per block.
            norm: `LayerNorm`, `RMSNorm`, or no normalisation.
            causal: mask each block by time.
        """
        if min(dim, depth, heads) < 1:
            raise OptionError(
                got=f"dim = {dim}, depth = {depth}, heads = {heads}", need="positive integers", do="Pass sizes ≥ 1."
            )
        blocks = [_block(k, dim, heads, norm) for k in jax.random.split(prng_key(key), depth)]
        return Transformer(*(Causal(block) for block in blocks) if causal else blocks)

    @property
    def layers(self) -> tuple[AbstractInContextMap, ...]:
        """The layers in the order in which they act."""
        return self._composition().maps[::-1]

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def _composition(self) -> Compose:
        assert isinstance(self.map, Compose)  # see __init__
        return self.map

    def __str__(self) -> str:
        """One line per layer, in the order in which they act."""
        return "\n".join(f"{i}  {layer}" for i, layer in enumerate(self.layers, 1))

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return value(self.map, mu, x, t)

    def push_gaussian(self, mu: GaussianLike) -> GaussianLike:
        return self.map.push_gaussian(mu)


def _block(key: Array, dim: int, heads: int, norm: str) -> AbstractInContextMap:
    first, second = jax.random.split(key)
    attention = Attention.random(first, dim, heads=heads)
    perceptron = MLP.random(second, dim, activation="gelu")
    if norm == "none":
        return Residual(perceptron) @ Residual(attention)
    ones = np.ones(dim, attention.Q.dtype)
    if norm not in ("layer", "rms"):
        raise OptionError(got=f"norm = {norm!r}", need='"layer", "rms" or "none"', do='Leave it out for "layer".')
    normed = LayerNorm(ones) if norm == "layer" else RMSNorm(ones)
    return Residual(perceptron @ normed) @ Residual(attention @ normed)
