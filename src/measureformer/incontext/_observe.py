"""What is watched during training: errors, how sparse attention is, how large its weights, how steep the model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.incontext.blocks import Architecture, Blocks, attention_weights, causal_mask
from measureformer.incontext.models import InContextModel, example_tokens, sequence_tokens
from measureformer.incontext.tasks import AbstractTask, Prompts
from measureformer.numerics.arrays import host, namespace

FEW = 8
"""Prompts at which attention and derivatives are looked at."""


class Logits(eqx.Module):
    """What the trained weights of each head are, as bilinear forms and spectra; see `logit_matrices`."""

    symmetric: Float[Any, "l h"]
    """Frobenius norm of the symmetric part of A = KᵀQ."""
    antisymmetric: Float[Any, "l h"]
    spectral: Float[Any, "l h"]
    stable_rank: Float[Any, "l h"]
    """|A|_F²/|A|²: between 1 and the rank."""
    eigenvalues: Any
    """Of A, (l, h, d), complex: those of the part that matters have d/heads entries, the others are 0."""
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


def structure(model: Any) -> Logits:
    """The symmetric and antisymmetric part, spectrum and rank of KᵀQ, and the spectrum of V, for each layer and head.

    The model is an `InContextModel` or a `LanguageModel`.

    The logit of query x and key y is ⟨A x, y⟩ with A = KᵀQ/√k; the gain of LayerNorm is folded in.

    >>> import jax, measureformer as mf
    >>> small = mf.incontext.Architecture(width=8, layers=2, heads=2)
    >>> found = mf.incontext.structure(mf.incontext.InContextModel.random(jax.random.key(0), 3, small))
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


def observables(
    model: InContextModel, prompts: Prompts, task: AbstractTask, *, steepness: bool = True
) -> dict[str, np.ndarray]:
    """What is worth a look at a model while it is trained, by name.

    error        (n,) normalised error after i examples
    sparsity     (l, h) median over queries of the number of keys that attention rests on, 1/Σp², over those it sees
    largest      (l, h) median over queries of the largest weight
    k90          (l, h) median number of keys that hold 0.9 of the weight, over those it sees
    class        (l, h) 1 if k90 > 1/2, a global head; 2 if > 1/8; 3 if > 1/32; 4 for a head of few keys
    norm         (l, h) Frobenius norm of KᵀQ
    stable_rank  (l, h) of KᵀQ
    lipschitz    largest singular value of the derivative of all read-outs in all tokens, the largest of 8 prompts;
                 left out without `steepness`, since it takes longest to compile

    >>> import jax, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(2), mf.incontext.Architecture(width=8, layers=1, heads=2)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 2, small, points=4)
    >>> prompts = task.sample(jax.random.key(1), 8, 4, dtype="float32")
    >>> found = mf.incontext.observables(model, prompts, task, steepness=False)
    >>> found["sparsity"].shape, bool((found["class"] == 1).all())          # before training, heads look at everything
    ((1, 2), True)
    """
    error, weights = jax.device_get(_measured(model, prompts.x, prompts.y, task))
    found = structure(model)
    visible = np.arange(1, weights.shape[-1] + 1) if model.reading == "sequence" else weights.shape[-1]
    ordered = -np.sort(-weights.astype(float), axis=-1)
    above = (np.cumsum(ordered, axis=-1) < 0.9).sum(axis=-1) + 1
    median = lambda rows: np.median(rows, axis=(1, 3))  # noqa: E731  over prompts and queries
    # a query that sees one key has no choice
    late = slice(1, None)
    k90 = median((np.minimum(above, visible) / visible)[..., late])
    steep = {}
    if steepness:
        slopes = np.asarray(_slopes(model, prompts.x, prompts.y), float)
        steep["lipschitz"] = np.asarray(np.linalg.norm(slopes, ord=2, axis=(1, 2)).max())
    return steep | {
        "error": error,
        "sparsity": median((1 / (ordered**2).sum(axis=-1) / visible)[..., late]),
        "largest": median(ordered[..., 0][..., late]),
        "k90": k90,
        "class": 1 + sum((k90 <= limit).astype(int) for limit in (1 / 2, 1 / 8, 1 / 32)),
        "norm": np.sqrt(found.symmetric**2 + found.antisymmetric**2),
        "stable_rank": found.stable_rank,
    }


def _tokens(model: InContextModel, x: Array, y: Array) -> tuple[Array, Array]:
    """The tokens of a few prompts, and the mask."""
    few = slice(None, FEW)
    tokens = (sequence_tokens if model.reading == "sequence" else example_tokens)(x[few], y[few])
    n = tokens.shape[1]
    return tokens, causal_mask(n, x.dtype) if model.reading == "sequence" else jnp.zeros((n, n), x.dtype)


@eqx.filter_jit
def _measured(model: InContextModel, x: Array, y: Array, task: AbstractTask) -> tuple[Array, Array]:
    error = errors_of(model.predictions(x, y), y, task).mean(axis=0)
    tokens, mask = _tokens(model, x, y)
    return error, attention_weights(model.blocks, model.embedded(tokens), mask, model.architecture)


@eqx.filter_jit
def _slopes(model: InContextModel, x: Array, y: Array) -> Float[Array, "b n m"]:
    """The derivative of all read-outs in all entries of all tokens."""
    tokens, mask = _tokens(model, x, y)
    slope = jax.vmap(jax.jacrev(lambda rows: model.scores(rows[None], mask)[0]))(tokens)
    return slope.reshape(*slope.shape[:2], -1)


def errors_of(found: Any, truth: Any, task: AbstractTask) -> Any:
    """The normalised squared error of each prediction; for signs, 1 where they are wrong."""
    xp = namespace(found, truth)
    if task.loss == "logistic":
        return (xp.sign(found) != xp.sign(truth)).astype(found.dtype)
    return (found - truth) ** 2 / host(task.scale).astype(found.dtype)
