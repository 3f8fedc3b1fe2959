"""The LLaMA family: rotary attention with shared keys and values, RMS normalisation before, gated perceptrons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import (
    LARGEST,
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
from measureformer.lens.families.gguf_names import renamed
from measureformer.maps import GatedMLP, Linear, RMSNorm, RotaryAttention
from measureformer.numerics.arrays import on_device

WORDS = "model.embed_tokens.weight"


def read(checkpoint: Checkpoint) -> Anatomy:
    if "general.architecture" in checkpoint.config:
        checkpoint = renamed(checkpoint)
    settings = Settings(checkpoint.config, checkpoint.config["model_type"])
    dim, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    groups, vocabulary = settings.count("num_key_value_heads", default=heads), settings.count("vocab_size")
    head_dim = settings.count("head_dim", default=dim // heads)
    eps, activation = settings.number("rms_norm_eps", default=1e-6), settings.activation("hidden_act", default="silu")
    settings.only("mlp_bias", False)
    if heads % groups or head_dim % 2:
        raise settings.wrong("num_key_value_heads", groups, f"a divisor of {heads}, and heads of even dimension")
    checkpoint.require(WORDS, (vocabulary, dim))  # before arrays are made of these sizes
    checkpoint.require("model.layers.0.self_attn.q_proj.weight", (heads * head_dim, dim))
    turns, (limit, limited_by) = frequencies(settings, head_dim), _limit(settings)

    def norm(name: str) -> RMSNorm:
        return RMSNorm(checkpoint.tensor(name, (dim,)), eps=eps)

    def block(i: int) -> Block:
        prefix = f"model.layers.{i}."
        counts = zip("qkv", (heads, groups, groups), strict=True)
        parts = [
            _projection(checkpoint, f"{prefix}self_attn.{letter}_proj", (count, head_dim, dim))
            for letter, count in counts
        ]
        out = checkpoint.tensor(f"{prefix}self_attn.o_proj.weight", (dim, heads * head_dim))
        bias = f"{prefix}self_attn.o_proj.bias"
        Q, K, V = (stack for stack, _ in parts)
        attention = RotaryAttention(
            Q,
            K,
            V,
            columns_per_head(out, heads),
            frequencies=turns,
            biases=(*(b for _, b in parts), checkpoint.tensor(bias) if bias in checkpoint else None),
            scale=1 / math.sqrt(head_dim),
        )
        gate, up, down = (checkpoint.tensor(f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up", "down"))
        perceptron = GatedMLP(gate, up, down, activation=activation)
        return Block(
            Half(attention, before=norm(f"{prefix}input_layernorm.weight")),
            Half(perceptron, before=norm(f"{prefix}post_attention_layernorm.weight")),
            causal=True,
        )

    head = "lm_head.weight" if "lm_head.weight" in checkpoint else WORDS
    return Anatomy(
        dim=dim,
        depth=settings.count("num_hidden_layers"),
        heads=heads,
        block=block,
        tokens=text_measure(lambda ids: checkpoint.rows(WORDS, ids)),
        exit=lambda: norm("model.norm.weight"),
        # the largest matrix of all: one copy of it is enough
        head=lambda: Linear(on_device(checkpoint.tensor(head, (vocabulary, dim)))),
        vocabulary=vocabulary,
        limit=limit,
        limited_by=limited_by,
        causal=True,
    )


def _projection(checkpoint: Checkpoint, name: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Matrices (h, k, d) and biases (h, k); a group of heads that shares keys or values has one."""
    count, head_dim, dim = shape
    matrix = rows_per_head(checkpoint.tensor(f"{name}.weight", (count * head_dim, dim)), count)
    bias = None
    if f"{name}.bias" in checkpoint:
        bias = rows_per_head(checkpoint.tensor(f"{name}.bias", (count * head_dim,)), count)
    return matrix, bias


def _limit(settings: Settings) -> tuple[int, str]:
    """The longest context, and what limits it; a sliding window is a mask of its own, and longer ones are refused."""
    limit, window = settings.count("max_position_embeddings", default=2048), settings.config.get("sliding_window")
    # Qwen2 states a window that it does not use unless told to
    used = settings.config.get("use_sliding_window", settings.config.get("model_type") == "mistral")
    if used and type(window) is int and window < limit:
        return window, "tokens in its sliding window, beyond which it masks"
    return limit, "positions"


def frequencies(settings: Settings, head_dim: int) -> np.ndarray:
    """ω_i = base^{−2i/k}, as float32 and in the order of operations of the reference."""
    rope = settings.config.get("rope_parameters") or settings.config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise settings.wrong("rope_scaling", rope, "a dictionary")
    base = rope.get("rope_theta", settings.config.get("rope_theta", 10_000.0))
    partial = rope.get("partial_rotary_factor", settings.config.get("partial_rotary_factor", 1.0))
    if type(base) not in (int, float) or not 0 < base < LARGEST or partial != 1:
        raise settings.wrong("rope_theta", base, "a positive base, and heads that turn as a whole")
    exponents = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    turns = np.float32(1) / np.power(np.float32(base), exponents)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return turns
    if kind == "linear":
        return turns / np.float32(Settings(rope, settings.family).number("factor"))
    if kind == "llama3":
        return _stretched(settings, turns, rope)
    raise settings.wrong("rope_scaling", kind, "'default', 'linear' or 'llama3'")


def _stretched(settings: Settings, turns: np.ndarray, rope: dict[str, Any]) -> np.ndarray:
    """LLaMA 3: slow frequencies are slowed down further, fast ones are kept, and those between are mixed."""
    names = "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
    inner = Settings(rope, settings.family)
    factor, low, high, length = (inner.number(name) for name in names)
    if factor <= 0 or low <= 0 or high <= low:
        raise settings.wrong("rope_scaling", rope, "a positive factor, and 0 < low_freq_factor < high_freq_factor")
    waves = 2 * math.pi / turns
    smooth = (length / waves - low) / (high - low)
    between = (1 - smooth) * turns / factor + smooth * turns
    slow = np.where(waves > length / low, turns / factor, turns)
    return np.where((waves >= length / high) & (waves <= length / low), between, slow).astype(np.float32)


ATTENTION = "layers.0.self_attn.q_proj."
MARKS = {"llama": f"{ATTENTION}weight", "mistral": f"{ATTENTION}weight", "qwen2": f"{ATTENTION}bias"}
register(Family("LLaMA", ("llama", "mistral", "qwen2"), read, MARKS))
