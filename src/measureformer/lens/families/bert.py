"""BERT and its relatives: learnt positions, attention without a mask, normalisation after each half."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import (
    Anatomy,
    Block,
    Family,
    Half,
    Settings,
    activated,
    columns_per_head,
    register,
    rows_per_head,
    text_measure,
)
from measureformer.maps import MLP, AbstractInContextMap, AffineAttention, LayerNorm, Linear, Positional, PositionTable


@dataclass(frozen=True)
class Names:
    """Where a relative keeps what BERT has too; {} stands for the number of the layer."""

    layer: str = "encoder.layer.{}."
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    norm: str = "output.LayerNorm"
    transform: str = "cls.predictions.transform.dense"
    transform_norm: str = "cls.predictions.transform.LayerNorm"
    decoder: str = "cls.predictions.decoder"
    head_bias: str = "cls.predictions.bias"


BERT = Names()
ROBERTA = Names(
    transform="lm_head.dense", transform_norm="lm_head.layer_norm", decoder="lm_head.decoder", head_bias="lm_head.bias"
)
DISTILBERT = Names(
    layer="transformer.layer.{}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    norm="output_layer_norm",
    transform="vocab_transform",
    transform_norm="vocab_layer_norm",
    decoder="vocab_projector",
    head_bias="vocab_projector.bias",
)


class Reader:
    """The tensors of a checkpoint in the layout of `torch.nn.Linear` and `LayerNorm`."""

    def __init__(self, checkpoint: Checkpoint, settings: Settings, roots: tuple[str, ...], probe: str) -> None:
        self.checkpoint = checkpoint
        self.root = next((root for root in roots if f"{root}{probe}" in checkpoint), "")
        self.eps = settings.number("layer_norm_eps", default=1e-12)

    def affine(self, name: str, out: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        matrix = self.checkpoint.tensor(f"{name}.weight", (out, None))
        return matrix, self.checkpoint.tensor(f"{name}.bias", (matrix.shape[0],))

    def norm(self, name: str) -> LayerNorm:
        # early checkpoints call weight and bias gamma and beta
        old = f"{name}.gamma" in self.checkpoint
        weight, bias = (
            self.checkpoint.tensor(f"{name}.{part}") for part in (("gamma", "beta") if old else ("weight", "bias"))
        )
        return LayerNorm(weight, bias, eps=self.eps)

    def heads(self, prefix: str, names: Names, heads: int) -> AffineAttention:
        parts = [self.affine(prefix + name) for name in (names.query, names.key, names.value)]
        out, out_bias = self.affine(prefix + names.output)
        Q, K, V = (rows_per_head(matrix, heads) for matrix, _ in parts)
        biases = [rows_per_head(bias, heads) for _, bias in parts]
        scale = 1 / math.sqrt(Q.shape[1])
        return AffineAttention(Q, K, V, columns_per_head(out, heads), biases=(*biases, out_bias), scale=scale)

    def block(self, names: Names, number: int, heads: int, dim: int, activation: Any) -> Block:
        """The layer that the checkpoint calls by this number."""
        prefix = self.root + names.layer.format(number)
        up, down = self.affine(prefix + names.up), self.affine(prefix + names.down, dim)
        return Block(
            Half(self.heads(prefix, names, heads), after=self.norm(prefix + names.attention_norm)),
            Half(MLP(*up, *down, activation=activation), after=self.norm(prefix + names.norm)),
            causal=False,
        )

    def predictions(self, names: Names, activation: object, table: str) -> AbstractInContextMap:
        """Logits of masked tokens: a transformed token against the (shared) table of tokens."""
        decoder = f"{names.decoder}.weight"
        matrix = self.checkpoint.tensor(decoder if decoder in self.checkpoint else table)
        bias = self.checkpoint.tensor(names.head_bias, (matrix.shape[0],))
        return (
            Linear(matrix, bias)
            @ self.norm(names.transform_norm)
            @ activated(*self.affine(names.transform), activation)
        )


def _times(ids: np.ndarray, pad: int) -> np.ndarray:
    """0, 1, 2, … for all tokens but padding, which is not counted and gets a time of its own, −1."""
    counted = ids != pad
    return np.where(counted, np.cumsum(counted) - 1, -1)


def read(checkpoint: Checkpoint) -> Anatomy:
    family = checkpoint.config["model_type"]
    settings = Settings(checkpoint.config, family)
    names = {"distilbert": DISTILBERT, "bert": BERT}.get(family, ROBERTA)
    dim, heads = settings.count("hidden_size", "dim"), settings.count("num_attention_heads", "n_heads")
    positions, vocabulary = settings.count("max_position_embeddings"), settings.count("vocab_size")
    activation = settings.activation("hidden_act", "activation", default="gelu")
    settings.only("position_embedding_type", "absolute")
    settings.only("is_decoder", False)
    settings.only("sinusoidal_pos_embds", False, True)
    if dim % heads:
        raise settings.wrong("num_attention_heads", heads, f"a divisor of the dimension {dim}")
    reader = Reader(checkpoint, settings, ("bert.", "roberta.", "distilbert.", ""), "embeddings.word_embeddings.weight")
    root = reader.root
    # RoBERTa counts positions from the number of its padding token on
    pad = settings.index("pad_token_id", default=1) if names is ROBERTA else -1
    offset = pad + 1

    def entry() -> AbstractInContextMap:
        table = checkpoint.tensor(f"{root}embeddings.position_embeddings.weight", (positions, dim))
        if f"{root}embeddings.token_type_embeddings.weight" in checkpoint:
            # one sentence: all tokens are of type 0
            table = table + checkpoint.rows(f"{root}embeddings.token_type_embeddings.weight", 0)
        return reader.norm(f"{root}embeddings.LayerNorm") @ Positional(PositionTable(table, offset=offset))

    def block(i: int) -> Block:
        return reader.block(names, i, heads, dim, activation)

    words = f"{root}embeddings.word_embeddings.weight"
    checkpoint.require(words, (vocabulary, dim))
    predicts = f"{names.transform}.weight" in checkpoint
    return Anatomy(
        dim=dim,
        depth=settings.count("num_hidden_layers", "n_layers"),
        heads=heads,
        block=block,
        tokens=text_measure(lambda ids: checkpoint.rows(words, ids), lambda ids: _times(ids, pad)),
        entry=entry,
        head=(lambda: reader.predictions(names, activation, words)) if predicts else None,
        vocabulary=vocabulary,
        limit=positions - offset,
    )


MARKS = {
    "bert": "attention.self.query.weight",
    "roberta": "roberta.encoder.layer.0.",
    "distilbert": "attention.q_lin.weight",
}
register(Family("BERT", ("bert", "roberta", "xlm-roberta", "distilbert"), read, MARKS))
