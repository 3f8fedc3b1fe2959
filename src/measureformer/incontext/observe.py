"""`observables`: errors, sparsity and size of attention, and steepness of a model during training."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.incontext.blocks import Blocks, attention_weights, causal_mask
from measureformer.incontext.language import LanguageModel
from measureformer.incontext.models import InContextModel, example_tokens, query_tokens, sequence_tokens
from measureformer.incontext.tasks import AbstractTask, Prompts
from measureformer.numerics.arrays import host, namespace
from measureformer.numerics.checked import checked
from measureformer.training.architecture import Architecture

FEW = 8
"""Prompts on which attention and derivatives are measured."""


class Logits(eqx.Module):
    """Bilinear forms and spectra of each head; see `head_matrices`."""

    symmetric: Float[Any, "l h"]
    """Frobenius norm of the symmetric part of A = KᵀQ."""
    antisymmetric: Float[Any, "l h"]
    spectral: Float[Any, "l h"]
    stable_rank: Float[Any, "l h"]
    """|A|_F²/|A|²: between 1 and the rank."""
    eigenvalues: Any
    """Of A, (l, h, d), complex; at most d/heads of them are not 0."""
    value_singular: Float[Any, "l h d"]
    """Singular values of W_h V_h, the largest first."""
    value_rank: Float[Any, "l h"]
    """Stable rank of W_h V_h."""


def logit_matrices(blocks: Blocks, a: Architecture) -> tuple[np.ndarray, np.ndarray]:
    """A = KᵀQ/√k and the value matrix WV of each head, (l, h, d, d), with the gain of LayerNorm folded in."""
    L, D, H, k = a.layers, a.width, a.heads, a.width // a.heads
    gain = np.asarray(blocks.norm_1)[:, 0] if a.norm == "layer" else np.ones((L, D))
    q, key, v = np.split(np.asarray(blocks.qkv, float) * gain[:, :, None], 3, axis=2)
    q, key, v = (part.reshape(L, D, H, k) for part in (q, key, v))
    out = np.asarray(blocks.out, float).reshape(L, H, k, D)
    A = np.einsum("lihk,ljhk->lhij", key, q) / np.sqrt(k)
    return A, np.einsum("lhko,lihk->lhoi", out, v)


def head_matrices(model: InContextModel | LanguageModel) -> Logits:
    """Norms, spectrum and rank of A = KᵀQ/√k, and spectrum of the value matrix, for each layer and head.

    The logit of query x and key y is ⟨A x, y⟩; the gain of LayerNorm is folded in.

    Arguments:
        model: the model whose heads are measured.

    >>> import jax, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=2, heads=2)
    >>> found = head_matrices(mf.incontext.InContextModel.random(jax.random.key(0), 3, small))
    >>> found.symmetric.shape, bool((found.stable_rank <= 4).all())
    ((2, 2), True)
    """
    A, values = logit_matrices(model.blocks, model.architecture)
    norm = lambda M: np.sqrt((M**2).sum(axis=(2, 3)))  # noqa: E731
    singular, of_values = np.linalg.svd(A, compute_uv=False), np.linalg.svd(values, compute_uv=False)
    transposed = A.swapaxes(2, 3)
    return Logits(
        norm(A + transposed) / 2,
        norm(A - transposed) / 2,
        singular[..., 0],
        _stable_rank(singular),
        np.linalg.eigvals(A),
        of_values,
        _stable_rank(of_values),
    )


def _stable_rank(singular: np.ndarray) -> np.ndarray:
    """Σ s²/max s², and 0 for the zero matrix."""
    top = singular[..., 0] ** 2
    return (singular**2).sum(axis=-1) / np.where(top > 0, top, 1)


@checked
def observables(
    model: InContextModel, prompts: Prompts, task: AbstractTask, *, steepness: bool = True
) -> dict[str, np.ndarray]:
    """Measurements of a model during training, by name.

    error        (n,) normalised error after i examples
    sparsity     (l, h) median over queries of the effective number of keys, 1/Σp², over the number of visible keys
    largest      (l, h) median over queries of the largest weight
    k90          (l, h) median number of keys that hold 0.9 of the weight, over the number of visible keys
    class        (l, h) 1 if k90 > 1/2, a global head; 2 if > 1/8; 3 if > 1/32; 4 for a head of few keys
    norm         (l, h) Frobenius norm of KᵀQ
    stable_rank  (l, h) of KᵀQ
    lipschitz    largest singular value of the derivative of all answers in all tokens, over 8 prompts

    Answers are read at questions: in a sequence at every x, in a measure at the inputs of the second half of a prompt,
    whose first half are the examples. Queries are the tokens that feed an answer: in the last layer questions only.

    Arguments:
        model: the model.
        prompts: prompts of the task; attention and derivatives are measured on the first 8.
        task: the task, whose loss and scale define the error.
        steepness: whether to compute "lipschitz", which takes longest to compile.

    >>> import jax, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(2), mf.Architecture(width=8, layers=1, heads=2)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 2, small, points=4)
    >>> prompts = task.sample(jax.random.key(1), 8, 4, dtype="float32")
    >>> found = mf.incontext.observables(model, prompts, task, steepness=False)
    >>> found["sparsity"].shape, bool((found["class"] == 1).all())          # before training, heads look at everything
    ((1, 2), True)
    """
    error, weights = jax.device_get(_measured(model, prompts.x, prompts.y, task))
    found = head_matrices(model)
    visible, asked = _sight(model, prompts.x.shape[1])
    # a query with one visible key has no choice; in the last layer only questions are read
    counted = np.tile(visible > min(1, visible.max() - 1), (len(weights), 1))
    counted[-1] &= asked
    ordered = -np.sort(-weights.astype(float), axis=-1)
    above = (np.cumsum(ordered, axis=-1) < 0.9).sum(axis=-1) + 1

    def median(rows: np.ndarray) -> np.ndarray:
        """Over prompts and queries."""
        return np.nanmedian(np.where(counted[:, None, None], rows, np.nan), axis=(1, 3))

    k90 = median(np.minimum(above, visible) / visible)
    steep: dict[str, np.ndarray] = {}
    if steepness:
        slopes = np.asarray(_slopes(model, prompts.x, prompts.y), float)
        steep["lipschitz"] = np.asarray(np.linalg.norm(slopes, ord=2, axis=(1, 2)).max())
    return steep | {
        "error": error,
        "sparsity": median(1 / (ordered**2).sum(axis=-1) / visible),
        "largest": median(ordered[..., 0]),
        "k90": k90,
        "class": 1 + np.sum([k90 <= limit for limit in (1 / 2, 1 / 8, 1 / 32)], axis=0),
        "norm": np.sqrt(found.symmetric**2 + found.antisymmetric**2),
        "stable_rank": found.stable_rank,
    }


def _tokens(model: InContextModel, x: Array, y: Array) -> tuple[Array, Array, slice]:
    """The tokens of a few prompts, the mask, and where the questions are among them."""
    x, y = x[:FEW], y[:FEW]
    if model.reading == "sequence":
        tokens = sequence_tokens(x, y)[:, :-1]  # the last label is seen by no question
        return tokens, causal_mask(tokens.shape[1], x.dtype), slice(None, None, 2)
    n, half = x.shape[1], _half(x.shape[1])
    tokens = jnp.concatenate([example_tokens(x[:, :half], y[:, :half]), query_tokens(x[:, half:])], axis=1)
    seen = jnp.where(jnp.arange(n) < half, 0, -jnp.inf).astype(x.dtype)  # questions are seen by nobody
    return tokens, jnp.broadcast_to(seen, (n, n)), slice(half, None)


def _sight(model: InContextModel, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of keys that each of these tokens sees, and which are questions."""
    if model.reading == "sequence":
        tokens = np.arange(2 * points - 1)
        return tokens + 1, tokens % 2 == 0
    half = _half(points)
    return np.full(points, half), np.arange(points) >= half


def _half(points: int) -> int:
    """Examples of a prompt read as a measure; the rest of it are questions."""
    return (points + 1) // 2


@eqx.filter_jit
def _measured(model: InContextModel, x: Array, y: Array, task: AbstractTask) -> tuple[Array, Array]:
    error = errors_of(model.predictions(x, y), y, task).mean(axis=0)
    tokens, mask, _ = _tokens(model, x, y)
    return error, attention_weights(model.blocks, model.embedded(tokens), mask, model.architecture)


@eqx.filter_jit
def _slopes(model: InContextModel, x: Array, y: Array) -> Float[Array, "b n m"]:
    """The derivative of the answers to all questions in all entries of all tokens."""
    tokens, mask, asked = _tokens(model, x, y)
    slope = jax.vmap(jax.jacrev(lambda rows: model.scores(rows[None], mask, read=asked)[0]))(tokens)
    return slope.reshape(*slope.shape[:2], -1)


def errors_of(found: Any, truth: Any, task: AbstractTask) -> Any:
    """The normalised squared error of each prediction; for signs, 1 where they are wrong."""
    xp = namespace(found, truth)
    if task.loss == "logistic":
        return (xp.sign(found) != xp.sign(truth)).astype(found.dtype)
    return (found - truth) ** 2 / host(task.scale).astype(found.dtype)
