"""GGUF files of the LLaMA family under the names, and in the layout, of Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from measureformer.errors import FamilyError
from measureformer.lens.checkpoint import Checkpoint

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
CONFIG = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
    "head_dim": "attention.key_length",
}


class Renamed(Checkpoint):
    """Another checkpoint under other names; some tensors are rearranged as they are read."""

    def __init__(self, inner: Checkpoint, config: dict[str, Any], names: dict[str, str]) -> None:
        found = {name: inner.entry(old) for name, old in names.items() if old in inner}
        super().__init__(found, config, source=inner.source, folder=inner.folder)
        self.edits: dict[str, Callable[[np.ndarray], np.ndarray]] = {}

    def tensor(self, name: str, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
        array = super().tensor(name, shape)
        return self.edits[name](array) if name in self.edits else array


def renamed(checkpoint: Checkpoint) -> Checkpoint:
    """A GGUF checkpoint as one in Hugging Face layout."""
    family = checkpoint.config["general.architecture"]
    config = {key: checkpoint.config.get(f"{family}.{name}") for key, name in CONFIG.items()}
    config = {key: value for key, value in config.items() if value is not None} | {"model_type": family}
    if "token_embd.weight" in checkpoint:
        config["vocab_size"] = checkpoint.shape("token_embd.weight")[0]
    depth, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    if type(depth) is not int or type(heads) is not int or not (0 < depth < 10_000 and heads > 0):
        raise FamilyError(
            got=f"{depth} layers with {heads} heads in the metadata of {checkpoint.source}",
            need="their numbers",
            do="Convert the model again with a current converter.",
        )
    names = dict(OUTSIDE)
    for i in range(depth):
        for new, old in LAYER.items():
            names |= {f"model.layers.{i}.{new}.{part}": f"blk.{i}.{old}.{part}" for part in ("weight", "bias")}
    view = Renamed(checkpoint, config, names)
    if family == "llama":
        groups = config.get("num_key_value_heads", heads)
        for name in view.names:
            if ".q_proj." in name or ".k_proj." in name:
                view.edits[name] = _halves(heads if ".q_proj." in name else groups)
    return view


def _halves(heads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Coordinates that turn together are neighbours in the file, and stand k/2 apart here."""

    def edit(array: np.ndarray) -> np.ndarray:
        split = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
        return split.swapaxes(1, 2).reshape(array.shape)

    return edit
