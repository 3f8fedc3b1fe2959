"""GPT-2: learnt positions, causal attention, normalisation before each half."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import (
    Anatomy,
    Block,
    Family,
    Half,
    Settings,
    columns_per_head,
    register,
    rows_per_head,
    text_measure,
)
from measureformer.maps import MLP, AffineAttention, LayerNorm, Linear, Positional, PositionTable
from measureformer.numerics.arrays import on_device
from measureformer.numerics.random import normal


def read(checkpoint: Checkpoint) -> Anatomy:
    settings = Settings(checkpoint.config, "GPT-2")
    dim, heads = settings.count("n_embd", default=768), settings.count("n_head", default=12)
    vocabulary, limit = settings.count("vocab_size"), settings.count("n_positions", "n_ctx", default=1024)
    eps = settings.number("layer_norm_epsilon", default=1e-5)
    activation = settings.activation("activation_function", default="gelu_new")
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("add_cross_attention", False)
    root = "transformer." if "transformer.wte.weight" in checkpoint else ""
    if dim % heads:
        raise settings.wrong("n_head", heads, f"a divisor of n_embd = {dim}")

    def norm(name: str) -> LayerNorm:
        weight, bias = (checkpoint.tensor(f"{root}{name}.{part}", (dim,)) for part in ("weight", "bias"))
        return LayerNorm(weight, bias, eps=eps)

    def affine(name: str, out: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Stored as (in, out), unlike everywhere else."""
        matrix = checkpoint.tensor(f"{root}{name}.weight", (None, out)).T
        return matrix, checkpoint.tensor(f"{root}{name}.bias", (matrix.shape[0],))

    def block(i: int) -> Block:
        matrix, bias = affine(f"h.{i}.attn.c_attn", 3 * dim)
        out, out_bias = affine(f"h.{i}.attn.c_proj", dim)
        Q, K, V = (rows_per_head(part, heads) for part in np.split(matrix, 3))
        biases = [rows_per_head(part, heads) for part in np.split(bias, 3)]
        attention = AffineAttention(
            Q, K, V, columns_per_head(out, heads), biases=(*biases, out_bias), scale=1 / math.sqrt(dim // heads)
        )
        perceptron = MLP(*affine(f"h.{i}.mlp.c_fc"), *affine(f"h.{i}.mlp.c_proj", dim), activation=activation)
        return Block(
            Half(attention, before=norm(f"h.{i}.ln_1")), Half(perceptron, before=norm(f"h.{i}.ln_2")), causal=True
        )

    head = "lm_head.weight" if "lm_head.weight" in checkpoint else f"{root}wte.weight"
    checkpoint.require(f"{root}wte.weight", (vocabulary, dim))
    return Anatomy(
        dim=dim,
        depth=settings.count("n_layer", default=12),
        heads=heads,
        block=block,
        tokens=text_measure(lambda ids: checkpoint.rows(f"{root}wte.weight", ids)),
        entry=lambda: Positional(PositionTable(checkpoint.tensor(f"{root}wpe.weight", (limit, dim)))),
        exit=lambda: norm("ln_f"),
        # the largest matrix of all: one copy of it is enough
        head=lambda: Linear(on_device(checkpoint.tensor(head, (vocabulary, dim)))),
        vocabulary=vocabulary,
        limit=limit,
        causal=True,
    )


def random_weights(
    key: Any, *, dim: int, depth: int, heads: int, vocabulary: int = 64, positions: int = 256
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Weights and configuration of a GPT-2 that has learnt nothing: entries of variance 1/dim, norms 1, biases 0."""
    rows = 4 * depth + 2
    draws = iter(normal(key, (rows, dim * max(vocabulary, positions, 4 * dim))).astype(np.float32))

    def matrix(*shape: int) -> np.ndarray:
        return next(draws)[: math.prod(shape)].reshape(shape) / math.sqrt(dim)

    weights = {"wte.weight": matrix(vocabulary, dim) * math.sqrt(dim), "wpe.weight": matrix(positions, dim)}
    for i in range(depth):
        for name, size in (("attn.c_attn", (dim, 3 * dim)), ("attn.c_proj", (dim, dim))):
            weights |= {f"h.{i}.{name}.weight": matrix(*size), f"h.{i}.{name}.bias": np.zeros(size[1], np.float32)}
        for name, size in (("mlp.c_fc", (dim, 4 * dim)), ("mlp.c_proj", (4 * dim, dim))):
            weights |= {f"h.{i}.{name}.weight": matrix(*size), f"h.{i}.{name}.bias": np.zeros(size[1], np.float32)}
    for name in [f"h.{i}.ln_{j}" for i in range(depth) for j in (1, 2)] + ["ln_f"]:
        weights |= {f"{name}.weight": np.ones(dim, np.float32), f"{name}.bias": np.zeros(dim, np.float32)}
    sizes = {"n_embd": dim, "n_head": heads, "n_layer": depth, "vocab_size": vocabulary, "n_positions": positions}
    return weights, {"model_type": "gpt2", **sizes}


register(Family("GPT-2", ("gpt2",), read, {"gpt2": "attn.c_attn.weight"}))
