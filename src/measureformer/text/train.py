"""`train`: a language model learns to predict the next token of a text, by the loop that all training here shares."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import DtypeError, OptionError, TextError
from measureformer.incontext.blocks import Architecture
from measureformer.incontext.language import CorpusLoss, LanguageModel
from measureformer.incontext.train import not_finite
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.random import two_keys
from measureformer.storage.folder import Folder
from measureformer.text import saved
from measureformer.text.corpus import split
from measureformer.text.ngram import ngram
from measureformer.text.tokens import Tokenizer
from measureformer.training.loop import Observer, trained
from measureformer.training.optimization import Optimization

TOGETHER = 16
"""Windows whose perplexity is computed at once."""


@dataclass(frozen=True)
class TextTrained:
    """A trained model of text, and how surprised it is by text that was held out, next to a trigram model."""

    text_model: saved.TextModel
    losses: np.ndarray
    records: dict[str, np.ndarray]
    """"step" and "perplexity" (held out) for each look, if training was watched."""
    perplexity: float
    """exp of the mean −log p of a held-out token."""
    trigram: float
    """The same of a trigram model with Kneser–Ney smoothing, trained on the same tokens."""


def train_text(
    text: Any,
    key: Any,
    *,
    architecture: Architecture | None = None,
    context: int = 128,
    tokenizer: Literal["characters", "byte pairs"] = "characters",
    optimization: Optimization | None = None,
    watch: int | None = None,
    save: Any = None,
) -> TextTrained:
    """A language model trained on random windows of nine tenths of a text, and its perplexity on the last tenth.

    With `save`, a folder, the state is kept there, and the same call goes on from it, with the same bits on as many
    devices; in the end the folder is one that readers of GPT-2 open. `watch` measures the perplexity every so many
    steps.

    Statement   min_θ E −(1/c) Σ_i log p_θ(t_{i+1} | t_1, …, t_i)
    Cost        about 6 · parameters · context · batch operations for each step.
    Ref         radford2019.

    >>> import jax, measureformer as mf
    >>> small = mf.incontext.Architecture(width=8, layers=1, heads=1)
    >>> found = mf.text.train_text(
    ...     "to be or not to be, that is the question. " * 20, jax.random.key(0), architecture=small, context=8,
    ...     optimization=mf.Optimization(steps=3, batch=4),
    ... )
    >>> found.losses.shape, found.trigram < found.perplexity
    ((3,), True)
    """
    optimization = Optimization(steps=2000, batch=16, rate=2e-3) if optimization is None else optimization
    architecture = Architecture(width=128, layers=4, heads=4) if architecture is None else architecture
    if save is not None:
        saved.check_architecture(architecture)
    tools, seen, unseen = _tokens(text, tokenizer, context)
    of_weights, of_data = two_keys(prng_key(key))
    start = LanguageModel.random(of_weights, architecture, vocabulary=tools.size, context=context)
    about = {
        "model": {**asdict(architecture), "context": context, "tokenizer": tokenizer, "vocabulary": tools.size},
        "training": asdict(optimization),
        "watch": watch,
    }
    observer = None
    if watch is not None:
        look = lambda weights: {"perplexity": perplexity(weights, unseen)}  # noqa: E731
        observer = Observer(look, positive_int(watch, "watch"))
    # after everything that can be refused: a folder of a training that cannot be would be in the way of one that can
    folder = None if save is None else Folder.at(save, about, [key, seen, *jax.tree.leaves(start)])
    objective = CorpusLoss(jnp.asarray(seen), optimization.batch)
    run = trained(start, objective, optimization, of_data, folder=folder, observer=observer, last=False)
    found = saved.TextModel(run.good if run.failed else run.weights, tools)
    if folder is not None:
        saved.save_text(found, folder.path)
    if run.failed:
        raise not_finite(run, folder)
    trigram = ngram(seen, tools.size).perplexity(unseen)
    return TextTrained(found, run.losses, run.records, perplexity(found.model, unseen), trigram)


def _tokens(text: Any, tokenizer: str, context: int) -> tuple[Tokenizer, np.ndarray, np.ndarray]:
    """The tokenizer, and the tokens to train on and those held out."""
    if not isinstance(text, str):
        raise DtypeError(
            got=f"a text of type {type(text).__name__}",
            need="a string",
            do="Pass mf.text.read_text(path), or mf.text.corpus.documentation().",
        )
    if tokenizer not in ("characters", "byte pairs"):
        raise OptionError(
            got=f"tokenizer = {tokenizer!r}", need='"characters" or "byte pairs"', do='Leave it out for "characters".'
        )
    kept, held_out = split(text, 0.1)
    # the alphabet is no secret; which strings are frequent is learned from the text to train on alone
    tools = Tokenizer.characters(text) if tokenizer == "characters" else Tokenizer.byte_pairs(kept)
    seen, unseen = tools.encode(kept), tools.encode(held_out)
    if len(unseen) <= positive_int(context, "context"):
        raise TextError(
            got=f"a text of {len(seen) + len(unseen)} tokens, {len(unseen)} of which are held out",
            need=f"more than {context} held-out tokens, the context",
            do="Give it more text, or take a smaller context.",
        )
    return tools, seen, unseen


def perplexity(model: LanguageModel, tokens: Any) -> float:
    """exp of the mean −log p of tokens, each with at least half of the context before it (at the beginning, less).

    >>> import jax, numpy as np, measureformer as mf
    >>> small = mf.incontext.Architecture(width=8, layers=1, heads=1)
    >>> net = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=5, context=4)
    >>> round(mf.text.perplexity(net, np.arange(40) % 5))           # before training: about that of the uniform law
    5
    """
    tokens = np.asarray(tokens)
    length = model.context + 1
    if tokens.ndim != 1 or len(tokens) < length:
        raise TextError(
            got=f"tokens of shape {tokens.shape}", need=f"at least {length} of them", do="Give it a longer text."
        )
    half = max(model.context // 2, 1)
    starts = np.arange(0, len(tokens) - length + 1, half)
    total, count = 0.0, 0
    for group in range(0, len(starts), TOGETHER):
        chosen = starts[group : group + TOGETHER]
        # every group has the same size, so that there is one program
        rows = tokens[np.resize(chosen, TOGETHER)[:, None] + np.arange(length)]
        surprise = np.asarray(model.surprise(rows), float)[: len(chosen)]
        fresh = surprise[:, model.context - half :]
        total, count = total + fresh.sum(), count + fresh.size
        if group == 0:
            early = surprise[0, : model.context - half]
            total, count = total + early.sum(), count + early.size
    return math.exp(total / count)
