"""`train_text`: a language model learns to predict the next token of a text, by the shared training loop."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import TextError
from measureformer.incontext.language import CorpusLoss, LanguageModel
from measureformer.incontext.train import not_finite
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.random import two_keys
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.storage.folder import RunFolder
from measureformer.text import saved
from measureformer.text.corpus import split
from measureformer.text.ngram import ngram
from measureformer.text.tokens import Tokenizer
from measureformer.training.architecture import Architecture
from measureformer.training.loop import Observer, trained
from measureformer.training.optimization import Optimization

TOGETHER = 16
"""Windows per call of the perplexity."""


@dataclass(frozen=True)
class TextTrained:
    """A trained model of text, and its perplexity on held-out text next to that of a trigram model."""

    text_model: saved.TextModel
    losses: np.ndarray
    records: dict[str, np.ndarray]
    """With `watch`, one entry per look: "step" and "perplexity" (held out)."""
    perplexity: float
    """exp of the mean −log p of a held-out token."""
    trigram: float
    """The same of a trigram model with Kneser–Ney smoothing, trained on the same tokens."""


@checked
def train_text(
    text: str,
    key: Key,
    *,
    architecture: Architecture | None = None,
    context: int = 128,
    tokenizer: Literal["characters", "byte pairs"] = "characters",
    optimization: Optimization | None = None,
    watch: int | None = None,
    save: PathLike | None = None,
) -> TextTrained:
    """Train a language model on random windows of nine tenths of a text, and measure its perplexity on the rest.

    An interrupted training resumes with the same bits on as many devices.

    Arguments:
        text: the text, such as `read_text(path)`.
        key: randomness of the weights and the windows.
        architecture: shape of the model; width 128, 4 layers and 4 heads if omitted.
        context: most tokens that the model reads.
        tokenizer: "characters" or "byte pairs".
        optimization: how to train; 2000 steps of 16 windows if omitted.
        watch: record the held-out perplexity every this many steps.
        save: folder for the state; the same call resumes from it, and `load_text` reads the trained model.

    Statement   min_θ E −(1/c) Σ_i log p_θ(t_{i+1} | t_1, …, t_i)
    Cost        about 6 · parameters · context · batch operations for each step.
    Ref         radford2019.

    >>> import jax, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=1)
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
    # create the folder last, so that a rejected call leaves nothing behind
    objective = CorpusLoss(jnp.asarray(seen), optimization.batch)
    with RunFolder.of(save, about, [key, seen, *jax.tree.leaves(start)]) as folder:
        run = trained(start, objective, optimization, of_data, folder=folder, observer=observer, last=False)
        found = saved.TextModel(run.good if run.failed else run.weights, tools)
        if folder is not None:
            saved.save_text(found, folder.path)
    if run.failed:
        raise not_finite(run, folder)
    trigram = ngram(seen, tools.size).perplexity(unseen)
    return TextTrained(found, run.losses, run.records, perplexity(found.model, unseen), trigram)


def _tokens(text: str, tokenizer: str, context: int) -> tuple[Tokenizer, np.ndarray, np.ndarray]:
    """The tokenizer, and the tokens to train on and those held out."""
    kept, held_out = split(text, 0.1)
    # the alphabet is that of the whole text; byte pairs are learned from the training part only
    tools = Tokenizer.characters(text) if tokenizer == "characters" else Tokenizer.byte_pairs(kept)
    seen, unseen = tools.encode(kept), tools.encode(held_out)
    if len(unseen) <= positive_int(context, "context"):
        raise TextError(
            got=f"a text of {len(seen) + len(unseen)} tokens, {len(unseen)} of which are held out",
            need=f"more than {context} held-out tokens, the context",
            do="Give it more text, or take a smaller context.",
        )
    return tools, seen, unseen


@checked
def perplexity(model: LanguageModel, tokens: ArrayLike) -> float:
    """exp of the mean −log p of tokens, each given at least half a context (less at the beginning).

    Arguments:
        model: the language model.
        tokens: token numbers (t,), more than the context.

    >>> import jax, numpy as np, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=1)
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
        # groups of one size need one compiled program
        rows = tokens[np.resize(chosen, TOGETHER)[:, None] + np.arange(length)]
        surprise = np.asarray(model.surprise(rows), float)[: len(chosen)]
        fresh = surprise[:, model.context - half :]
        total, count = total + fresh.sum(), count + fresh.size
        if group == 0:
            early = surprise[0, : model.context - half]
            total, count = total + early.sum(), count + early.size
    return math.exp(total / count)
