"""ALBERT: BERT with one layer that is applied again and again. An autonomous flow of the token cloud."""

from __future__ import annotations

from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import Anatomy, Block, Family, Settings, register, text_measure
from measureformer.lens.families.bert import Names, Reader
from measureformer.maps import AbstractInContextMap, Linear, Positional, PositionTable

NAMES = Names(
    layer="encoder.albert_layer_groups.{}.albert_layers.0.",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    output="attention.dense",
    attention_norm="attention.LayerNorm",
    up="ffn",
    down="ffn_output",
    norm="full_layer_layer_norm",
    transform="predictions.dense",
    transform_norm="predictions.LayerNorm",
    decoder="predictions.decoder",
    head_bias="predictions.bias",
)


def read(checkpoint: Checkpoint) -> Anatomy:
    settings = Settings(checkpoint.config, "ALBERT")
    dim, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    small, vocabulary = settings.count("embedding_size", default=128), settings.count("vocab_size")
    positions, depth = settings.count("max_position_embeddings"), settings.count("num_hidden_layers", default=12)
    groups = settings.count("num_hidden_groups", default=1)
    activation = settings.activation("hidden_act", default="gelu_new")
    settings.only("inner_group_num", 1)
    settings.only("position_embedding_type", "absolute")
    if dim % heads:
        raise settings.wrong("num_attention_heads", heads, f"a divisor of hidden_size = {dim}")
    reader = Reader(checkpoint, settings, ("albert.", ""), "embeddings.word_embeddings.weight")
    root = reader.root

    def entry() -> AbstractInContextMap:
        table = checkpoint.tensor(f"{root}embeddings.position_embeddings.weight", (positions, small))
        table = table + checkpoint.rows(f"{root}embeddings.token_type_embeddings.weight", 0)
        wider = Linear(*reader.affine(f"{root}encoder.embedding_hidden_mapping_in", dim))
        return wider @ reader.norm(f"{root}embeddings.LayerNorm") @ Positional(PositionTable(table))

    def block(i: int) -> Block:
        return reader.block(NAMES, i * groups // depth, heads, dim, activation)

    words = f"{root}embeddings.word_embeddings.weight"
    checkpoint.require(words, (vocabulary, small))
    predicts = f"{NAMES.transform}.weight" in checkpoint
    return Anatomy(
        dim=dim,
        depth=depth,
        heads=heads,
        block=block,
        tokens=text_measure(lambda ids: checkpoint.rows(words, ids)),
        entry=entry,
        head=(lambda: reader.predictions(NAMES, activation, words)) if predicts else None,
        vocabulary=vocabulary,
        limit=positions,
        tied=groups == 1,
    )


register(Family("ALBERT", ("albert",), read, {"albert": "albert_layers.0."}))
