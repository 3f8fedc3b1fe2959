"""`LanguageModel`: a causal transformer on tokens, with the architecture and the names of GPT-2."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from measureformer.incontext.bayes import Ginc
from measureformer.incontext.blocks import Blocks, causal_mask, normed, through
from measureformer.incontext.models import as_layers
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.causal import Causal
from measureformer.maps.mlp import Linear
from measureformer.maps.transformer import Transformer
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key
from measureformer.training.architecture import Architecture
from measureformer.training.devices import part_of


class LanguageModel(eqx.Module):
    """A causal language model: embeddings, learned positions, pre-norm blocks with GELU, tied read-out.

    Arguments:
        embedding: rows of the tokens, (v, w).
        positions: rows of the positions, (c, w).
        blocks: weights of the blocks.
        final_norm: gain and shift of the last LayerNorm, (2, w).
        architecture: shape of the blocks.

    >>> import jax, numpy as np, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> model = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=10, context=6)
    >>> model.logits(np.array([[3, 1, 4]])).shape, model.context
    ((1, 3, 10), 6)
    """

    embedding: Float[Array, "v w"]
    positions: Float[Array, "c w"]
    blocks: Blocks
    final_norm: Float[Array, "2 w"]
    architecture: Architecture = eqx.field(static=True)

    @staticmethod
    @checked
    def random(
        key: Key, architecture: Architecture, *, vocabulary: int, context: int, dtype: DTypeLike = np.float32
    ) -> LanguageModel:
        """An untrained model.

        Arguments:
            key: randomness of the weights.
            architecture: shape of the blocks.
            vocabulary: number of tokens.
            context: most tokens that the model reads.
            dtype: floating type of the weights.
        """
        sizes = positive_int(vocabulary, "vocabulary"), positive_int(context, "context")
        return _random(prng_key(key), architecture, *sizes, np.dtype(dtype))

    @property
    def context(self) -> int:
        """Most tokens that the model reads."""
        return self.positions.shape[0]

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.embedding.shape[0]

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum(leaf.size for leaf in jax.tree.leaves(self))

    @eqx.filter_jit
    def logits(self, tokens: ArrayLike) -> Float[Array, "b n v"]:
        """Logits of the token after each. Pure JAX.

        Arguments:
            tokens: token numbers (b, n), n ≤ context.
        """
        tokens = jnp.asarray(tokens)
        n = tokens.shape[1]
        h = self.embedding[tokens] + self.positions[:n]
        h = through(self.blocks, h, causal_mask(n, h.dtype), self.architecture)
        h = normed(h, self.final_norm) if self.architecture.norm == "layer" else h
        return h @ self.embedding.T

    @eqx.filter_jit
    def surprise(self, tokens: ArrayLike) -> Float[Array, "b m"]:
        """−log p of each token but the first, given those before it. Pure JAX.

        Arguments:
            tokens: token numbers (b, n), n ≤ context + 1.
        """
        tokens = jnp.asarray(tokens)
        logits = self.logits(tokens[:, :-1])
        chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=2)[..., 0]
        return jax.nn.logsumexp(logits, axis=2) - chosen

    @property
    def map(self) -> AbstractInContextMap:
        """The same model as an in-context map on space–time: tokens are unit vectors at times 0, 1, 2, …"""
        inner = as_layers(self.positions, self.blocks, self.final_norm, self.architecture)
        layers = [Linear(self.embedding.T), *inner, Linear(self.embedding)]
        return Transformer(*(Causal(layer) for layer in layers))


@eqx.filter_jit
def _random(key: Key, a: Architecture, vocabulary: int, context: int, dtype: DTypeLike) -> LanguageModel:
    keys = jax.random.split(key, 3)
    return LanguageModel(
        0.02 * jax.random.normal(keys[0], (vocabulary, a.width), dtype),
        0.02 * jax.random.normal(keys[1], (context, a.width), dtype),
        Blocks.random(keys[2], a, dtype),
        jnp.stack([jnp.ones(a.width, dtype), jnp.zeros(a.width, dtype)]),
        a,
    )


class Corpus(NamedTuple):
    """The tokens of a text, and the sizes of models that read it.

    Arguments:
        tokens: token numbers (n,).
        vocabulary: number of different tokens.
        context: most tokens that a model reads.

    >>> import measureformer as mf
    >>> from measureformer.incontext.language import Corpus
    >>> letters = mf.text.Tokenizer.characters("to be or not to be")
    >>> Corpus(letters.encode("to be"), letters.size, context=4).vocabulary
    7
    """

    tokens: Int[Any, " n"]
    vocabulary: int
    context: int


class CorpusLoss(eqx.Module):
    """−log p of the next token, averaged over random windows of a text."""

    tokens: Int[Any, " n"]
    batch: int = eqx.field(static=True)

    def __call__(self, model: LanguageModel, key: Any, step: Any) -> Array:
        return self.part(model, key, step, 0, 1)

    def part(self, model: LanguageModel, key: Any, step: Any, index: Any, count: int) -> Array:
        """The mean over part `index` of `count` of the windows."""
        length = min(model.context + 1, self.tokens.shape[0])
        starts = jax.random.randint(key, (self.batch, 1), 0, self.tokens.shape[0] - length + 1)
        starts = part_of(starts, index, count)
        return jnp.mean(model.surprise(self.tokens[starts + jnp.arange(length)]))


class DocumentLoss(eqx.Module):
    """−log p of the next token, averaged over fresh documents of a mixture of hidden Markov models."""

    world: Ginc
    batch: int = eqx.field(static=True)

    def __call__(self, model: LanguageModel, key: Any, step: Any) -> Array:
        return self.part(model, key, step, 0, 1)

    def part(self, model: LanguageModel, key: Any, step: Any, index: Any, count: int) -> Array:
        """The mean over part `index` of `count` of the documents; all are drawn, which is cheap."""
        documents = self.world.documents(key, self.batch, model.context + 1)
        return jnp.mean(model.surprise(part_of(documents, index, count)))
