"""TabPFN (first version): a learner of tables in context. No positions and no mask: a map on measures.

Rows of the training set are tokens with mass; rows to be predicted are tokens without mass, which look at the others
and are seen by nobody. Normalisation after each half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.errors import TextError
from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import (
    ACTIVATIONS,
    Anatomy,
    Block,
    Family,
    Half,
    Settings,
    columns_per_head,
    register,
    rows_per_head,
)
from measureformer.maps import MLP, AffineAttention, LayerNorm
from measureformer.measures import Discrete
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

LAYER = "transformer_encoder.layers.{}."


@dataclass(frozen=True, init=False)
class Table:
    """A task for a model of tables: labelled rows, and rows to predict.

    Arguments:
        X: features of the labelled rows, (n, f).
        y: their labels, (n,).
        queries: features of the rows to predict, (m, f).
        weights: masses of the labelled rows, (n,); equal by default.

    >>> Table([[0.0], [1.0]], [0, 1], [[0.5]]).X.shape
    (2, 1)
    """

    X: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    weights: np.ndarray

    @checked
    def __init__(self, X: ArrayLike, y: ArrayLike, queries: ArrayLike, weights: ArrayLike | None = None) -> None:
        X, queries = (np.atleast_2d(np.asarray(rows, np.float64)) for rows in (X, queries))
        y = np.asarray(y, np.float64)
        weights = np.ones(len(X)) / max(len(X), 1) if weights is None else np.asarray(weights, np.float64)
        good = X.ndim == queries.ndim == 2 and X.shape[1] == queries.shape[1] and X.size and queries.size
        if not good or y.shape != (len(X),) or weights.shape != (len(X),):
            raise TextError(
                got=f"rows of shape {X.shape}, labels {y.shape}, masses {weights.shape}, queries {queries.shape}",
                need="(n, f), (n,), (n,) and (m, f)",
                do="Give one label per row, and queries with the same features.",
            )
        if not (np.isfinite(X).all() and np.isfinite(queries).all() and np.isfinite(y).all()):
            raise TextError(got="a table with missing or infinite entries", need="finite numbers", do="Fill them in.")
        for name, value in (("X", X), ("y", y), ("queries", queries), ("weights", weights)):
            object.__setattr__(self, name, value)


def read(checkpoint: Checkpoint) -> Anatomy:
    settings = Settings(checkpoint.config, "TabPFN")
    heads = settings.count("nhead", "num_attention_heads", default=4)
    activation = settings.activation("activation", default="gelu")
    dim, features = checkpoint.shape("encoder.weight")
    depth = sum(name.endswith("self_attn.in_proj_weight") for name in checkpoint.names)
    if dim % heads or not depth:
        raise settings.wrong("nhead", heads, f"a divisor of {dim}, and at least one layer")

    def affine(name: str) -> tuple[np.ndarray, np.ndarray]:
        return checkpoint.tensor(f"{name}.weight"), checkpoint.tensor(f"{name}.bias")

    def tokens(table: Table) -> Discrete:
        (E, e), (F, f) = affine("encoder"), affine("y_encoder")
        rows = prepared(table, features) @ E.T + e
        rows[: len(table.X)] += table.y[:, None].astype(E.dtype) @ F.T + f
        return Discrete.weighted(rows, np.concatenate([table.weights, np.zeros(len(table.queries))]).astype(E.dtype))

    def block(i: int) -> Block:
        prefix = LAYER.format(i)
        matrix = checkpoint.tensor(f"{prefix}self_attn.in_proj_weight", (3 * dim, dim))
        bias = checkpoint.tensor(f"{prefix}self_attn.in_proj_bias", (3 * dim,))
        out, out_bias = affine(f"{prefix}self_attn.out_proj")
        Q, K, V = (rows_per_head(part, heads) for part in np.split(matrix, 3))
        biases = [rows_per_head(part, heads) for part in np.split(bias, 3)]
        attention = AffineAttention(
            Q, K, V, columns_per_head(out, heads), biases=(*biases, out_bias), scale=1 / math.sqrt(dim // heads)
        )
        perceptron = MLP(*affine(f"{prefix}linear1"), *affine(f"{prefix}linear2"), activation=activation)
        return Block(
            Half(attention, after=LayerNorm(*affine(f"{prefix}norm1"))),
            Half(perceptron, after=LayerNorm(*affine(f"{prefix}norm2"))),
            causal=False,
        )

    return Anatomy(
        dim=dim,
        depth=depth,
        heads=heads,
        block=block,
        tokens=tokens,
        head=lambda: MLP(*affine("decoder.0"), *affine("decoder.2"), activation=ACTIVATIONS["gelu"]),
        reads="table",
    )


def prepared(table: Table, features: int) -> np.ndarray:
    """All rows as the model was trained on them: standardised by the labelled ones, scaled, filled.

    Means and deviations are those of the measure, so that a row of double mass counts like two.
    """
    p = table.weights / table.weights.sum()
    rows = np.concatenate([table.X, table.queries])
    mean = p @ table.X
    # the reference divides by n − 1, which no measure knows; the rows differ by a factor √(1 − 1/n)
    deviation = np.sqrt(p @ (table.X - mean) ** 2)
    rows = np.clip((rows - mean) / (deviation + 1e-6), -100, 100)
    used = rows.shape[1]
    if used > features:
        raise TextError(got=f"{used} features", need=f"at most {features}", do="Leave some out.")
    filled = np.zeros((len(rows), features), np.float32)
    filled[:, :used] = rows * (features / used)
    return filled


register(Family("TabPFN", ("tabpfn",), read, {"tabpfn": "self_attn.in_proj_weight"}))
