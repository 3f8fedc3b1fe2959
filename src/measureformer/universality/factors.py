"""`Factors`: many elementary blocks at once, their parameters stacked."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.measures.gaussian import AbstractGaussianLike

TOGETHER = 16
"""Blocks that are computed at the same time: memory is linear in the number of tokens, however many blocks."""


class Factors(NamedTuple):
    """Parameters of blocks γ[mu](x) = ⟨x, u⟩ + ∫ softmax(⟨Ax + b, y⟩)(⟨v, y⟩ + c) dmu(y), one per entry."""

    A: Any
    """(B, d, d)"""
    b: Any
    """(B, d)"""
    c: Any
    """(B,)"""
    u: Any
    """(B, d)"""
    v: Any
    """(B, d)"""

    @property
    def dim(self) -> int:
        return self.b.shape[1]

    @property
    def size(self) -> int:
        return self.b.shape[0]

    def rows(self, index: Any) -> Factors:
        """The blocks at these places, on concrete arrays, in NumPy."""
        return Factors(*(np.asarray(leaf)[index] for leaf in self))

    def values(self, mu: Any, x: Any, t: Any) -> Array:
        """Values of all blocks at queries (m, d), as (B, m): the formula, called under `jit`."""

        def one(block: Factors) -> Array:
            a = x @ block.A.T + block.b
            if isinstance(mu, AbstractGaussianLike):
                context = mu.tilted(a, None)[1] @ block.v
            else:
                # the softmax weights sum to 1, so that c can stay outside of the integral
                v = (mu.points @ block.v)[:, None]
                context = attend(a, mu.points, v, mu.log_weights, times=mu.visible(t)).values[:, 0]
            return x @ block.u + context + block.c

        return cast("Array", jax.lax.map(one, self, batch_size=min(TOGETHER, self.size)))


@jax.jit
def table(factors: Factors, points: Any, log_weights: Any, x: Any) -> Float[Array, "k m B"]:
    """Values in many small contexts at once: points (k, n, d), log-weights (k, n), queries (k, m, d).

    The same numbers as `Factors.values`, by the plain formula, whose memory is k·m·n numbers for each block.
    """

    def one(block: Factors) -> Array:
        logits = jnp.einsum("kmd,knd->kmn", x @ block.A.T + block.b, points) + log_weights[:, None, :]
        weights = jax.nn.softmax(logits, axis=-1)
        return x @ block.u + jnp.einsum("kmn,kn->km", weights, points @ block.v) + block.c

    return jnp.moveaxis(cast("Array", jax.lax.map(one, factors)), 0, -1)
