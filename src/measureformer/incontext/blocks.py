"""Pre-norm blocks of a transformer as one batched program: weights stacked over layers, and tokens through them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.training.architecture import Architecture

EPS = 1e-5
"""Of LayerNorm."""
EVERY = slice(None)


class Blocks(NamedTuple):
    """Weights of all blocks, stacked over layers; matrices act on rows from the right, as in GPT-2."""

    norm_1: Any
    """(l, 2, d): gain and shift."""
    qkv: Any
    """(l, d, 3d): queries, keys, values; of each, heads one after the other."""
    qkv_bias: Any
    out: Any
    """(l, d, d)"""
    out_bias: Any
    norm_2: Any
    up: Any
    """(l, d, u): to the u units of the perceptron."""
    up_bias: Any
    down: Any
    """(l, u, d)"""
    down_bias: Any

    @staticmethod
    def random(key: Any, a: Architecture, dtype: Any = np.float32) -> Blocks:
        """Normal weights of size 1/√d, smaller where they write to tokens; no biases."""
        L, D, U = a.layers, a.width, a.units
        keys = jax.random.split(key, 4)
        draw = lambda k, *shape: jax.random.normal(k, shape, dtype)  # noqa: E731
        gains = jnp.stack([jnp.ones((L, D), dtype), jnp.zeros((L, D), dtype)], axis=1)
        depth = math.sqrt(2 * L)
        return Blocks(
            gains,
            draw(keys[0], L, D, 3 * D) / math.sqrt(D),
            jnp.zeros((L, 3 * D), dtype),
            draw(keys[1], L, D, D) / (math.sqrt(D) * depth),
            jnp.zeros((L, D), dtype),
            gains,
            draw(keys[2], L, D, U) / math.sqrt(D),
            jnp.zeros((L, U), dtype),
            draw(keys[3], L, U, D) / (math.sqrt(U) * depth),
            jnp.zeros((L, D), dtype),
        )


def normed(h: Array, norm: Array) -> Array:
    """LayerNorm with gain and shift norm (2, d)."""
    centred = h - jnp.mean(h, axis=-1, keepdims=True)
    return norm[0] * centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPS) + norm[1]


def through(blocks: Blocks, h: Array, log_weights: Array, a: Architecture, read: slice = EVERY) -> Array:
    """Tokens h (b, n, d) through all blocks; what comes out are those that are `read`, and the last block computes no
    others. `log_weights` (b, n, n) or (n, n): what key j weighs for query i, −inf where it is not seen."""
    mask = log_weights if log_weights.ndim == 2 else log_weights[:, None]
    for i in range(a.layers):
        block = jax.tree.map(lambda leaf, i=i: leaf[i], blocks)
        rows = read if i == a.layers - 1 else EVERY
        h = h[:, rows] + a.branch * attended(block, h, mask, a, rows)[0]
        # one long list of tokens: sums over it, which gradients are, take one loop instead of two
        flat = h.reshape(-1, a.width)
        seen = normed(flat, block.norm_2) if a.norm == "layer" else flat
        inner = jax.nn.gelu(affine(seen, block.up, block.up_bias))
        h = (flat + a.branch * affine(inner, block.down, block.down_bias)).reshape(h.shape)
    return h


@jax.custom_vjp
def affine(x: Array, matrix: Array, bias: Array) -> Array:
    """x @ matrix + bias, for rows x (m, d).

    In its gradient rows are transposed once, as an array of its own, and are not read across by the product, which
    would take half as long again. Derivatives of it go backwards only.
    """
    return x @ matrix + bias


def _affine_forward(x: Array, matrix: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(x, matrix, bias), (x, matrix)


def _affine_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array, Array]:
    x, matrix = kept
    columns = jax.lax.optimization_barrier(x.T)  # or the compiler would put the transposition into the product again
    return slope @ matrix.T, columns @ slope, jnp.sum(slope, axis=0)


affine.defvjp(_affine_forward, _affine_backward)


def attended(block: Blocks, h: Array, mask: Array, a: Architecture, rows: slice = EVERY) -> tuple[Array, Array]:
    """What the attention of one block adds to the tokens in `rows`, and its weights (b, h, m, n)."""
    D, flat = a.width, h.reshape(-1, a.width)
    seen = normed(flat, block.norm_1) if a.norm == "layer" else flat
    if rows == EVERY:
        parts = jnp.split(affine(seen, block.qkv, block.qkv_bias), 3, axis=-1)
    else:
        asking = seen.reshape(h.shape)[:, rows].reshape(-1, D)
        queries = affine(asking, block.qkv[:, :D], block.qkv_bias[:D])
        parts = [queries, *jnp.split(affine(seen, block.qkv[:, D:], block.qkv_bias[D:]), 2, axis=-1)]
    q, k, v = (part.reshape(len(h), -1, a.heads, D // a.heads).transpose(0, 2, 1, 3) for part in parts)
    logits = jnp.einsum("bhik,bhjk->bhij", q, k) / math.sqrt(D // a.heads) + mask[..., rows, :]
    weights = jax.nn.softmax(logits, axis=-1)
    values = jnp.einsum("bhij,bhjk->bhik", weights, v).transpose(0, 2, 1, 3).reshape(-1, D)
    return affine(values, block.out, block.out_bias).reshape(len(h), -1, D), weights


def attention_weights(blocks: Blocks, h: Array, log_weights: Array, a: Architecture) -> Float[Array, "l b h n n"]:
    """The weights of all heads, layer after layer: for observation, quadratic in n."""
    mask, found = log_weights if log_weights.ndim == 2 else log_weights[:, None], []
    one_layer = dataclasses.replace(a, layers=1)
    for i in range(a.layers):
        block = jax.tree.map(lambda leaf, i=i: leaf[i], blocks)
        found.append(attended(block, h, mask, a)[1])
        h = through(jax.tree.map(lambda leaf: leaf[None], block), h, log_weights, one_layer)
    return jnp.stack(found)


def causal_mask(n: int, dtype: Any) -> Array:
    """0 where query i sees key j ≤ i, −inf elsewhere."""
    return jnp.where(jnp.tril(jnp.ones((n, n), bool)), 0, -jnp.inf).astype(dtype)
