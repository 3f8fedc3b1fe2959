"""`generate`: sample text from a language model."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError, TextError
from measureformer.incontext.language import LanguageModel
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key
from measureformer.text.saved import TextModel


@checked
def generate(
    text_model: TextModel,
    prompt: str,
    key: Key,
    *,
    length: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> str:
    """Sample a continuation of a prompt, token by token; each depends on the last `context` tokens.

    Arguments:
        text_model: the model and its tokenizer.
        prompt: the text to continue, at least one token.
        key: randomness of the tokens.
        length: number of tokens to sample.
        temperature: divisor of the logits, ≥ 0; at 0 the most probable token is taken.
        top_k: sample only among this many of the most probable tokens; among all if omitted.

    >>> import jax, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> net = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=3, context=4)
    >>> model = TextModel(net, mf.text.Tokenizer.characters("abc"))
    >>> len(mf.text.generate(model, "ab", jax.random.key(1), length=10))
    10
    """
    net, tokenizer = text_model
    if not 0 <= temperature < math.inf:
        raise OptionError(got=f"temperature = {temperature!r}", need="a number ≥ 0", do="1 draws as the model says.")
    kept = net.vocabulary if top_k is None else min(positive_int(top_k, "top_k"), net.vocabulary)
    given, more = tokenizer.encode(prompt), positive_int(length, "length")
    if not len(given):
        raise TextError(
            got="an empty prompt", need="at least one token", do='Begin with a word, or a line break "\\n".'
        )
    given = given[-net.context :]
    # room in buckets, so that prompts and lengths share programs
    room = np.zeros(net.context + bucket(len(given) + more), np.int32)
    room[: len(given)] = given
    counts = np.asarray(len(given)), np.asarray(len(given) + more)
    numbers = np.asarray(temperature, net.embedding.dtype), np.asarray(kept)
    written = np.asarray(_written(net, room, *counts, prng_key(key), *numbers))
    return tokenizer.decode(written[len(given) : len(given) + more])


@eqx.filter_jit
def _written(net: LanguageModel, room: Any, first: Any, last: Any, key: Any, temperature: Any, kept: Any) -> Array:
    """The tokens up to `last`; for each, the model reads the last `context` tokens again."""

    def one(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        place, tokens = carry
        start = jnp.maximum(place - net.context, 0)
        window = jax.lax.dynamic_slice(tokens, (start,), (net.context,))
        # tokens after the place are not written yet; the mask hides them
        logits = net.logits(window[None])[0, place - 1 - start]
        threshold = jnp.sort(logits)[logits.shape[0] - kept]
        cut = jnp.where(logits >= threshold, logits, -jnp.inf)
        cold = temperature == 0
        drawn = jax.random.categorical(jax.random.fold_in(key, place), cut / jnp.where(cold, 1, temperature))
        token = jnp.where(cold, jnp.argmax(logits), drawn).astype(tokens.dtype)
        return place + 1, tokens.at[place].set(token)

    return jax.lax.while_loop(lambda carry: carry[0] < last, one, (first, jnp.asarray(room)))[1]
