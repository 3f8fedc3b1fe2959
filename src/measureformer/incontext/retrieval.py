"""`retrieval`: how often exact Bayes, or a trained model, finds the concept of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import jax
import numpy as np
from jaxtyping import Float

from measureformer.errors import DimensionMismatchError
from measureformer.incontext.bayes import Ginc
from measureformer.incontext.language import DocumentLoss, LanguageModel
from measureformer.incontext.train import not_finite
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key, PathLike
from measureformer.storage.folder import RunFolder
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization


@dataclass(frozen=True)
class Retrieval:
    """Accuracy of the next token and posterior of the true concept, for lengths (l) and numbers (n) of examples."""

    lengths: tuple[int, ...]
    examples: tuple[int, ...]
    accuracy: Float[np.ndarray, "l n"]
    error: Float[np.ndarray, "l n"]
    """Standard error of the accuracy."""
    posterior: Float[np.ndarray, "l n"] | None
    """Mean posterior of the true concept; None for a trained model, which has none."""


@checked
def retrieval(
    reader: Ginc | LanguageModel,
    world: Ginc,
    key: Key,
    *,
    examples: Sequence[int] = (0, 1, 2, 4, 8, 16),
    lengths: Sequence[int] = (3, 5, 8, 10),
    prompts: int = 80,
) -> Retrieval:
    """How often a reader predicts the most probable next token of the true concept.

    Arguments:
        reader: a trained language model, or a world, which reads by Bayes' rule (take `world.smoothed(0.05)`).
        world: the mixture that the prompts come from.
        key: randomness of the prompts.
        examples: numbers of examples.
        lengths: tokens of an example.
        prompts: prompts for each number and length.

    Ref         xie2022, Section 4.

    >>> import jax, measureformer as mf
    >>> world = mf.incontext.bayes.ginc(jax.random.key(0))
    >>> found = mf.incontext.retrieval(
    ...     world.smoothed(0.05), world, jax.random.key(1), examples=[0, 4], lengths=[5], prompts=40
    ... )
    >>> bool(found.posterior[0, 1] > found.posterior[0, 0]), bool(found.accuracy[0, 1] > 0.9)
    (True, True)
    """
    prompts = positive_int(prompts, "prompts")
    accuracy = np.zeros((len(lengths), len(examples)))
    posterior = np.zeros_like(accuracy)
    for i, length in enumerate(lengths):
        for j, count in enumerate(examples):
            fresh = jax.random.fold_in(jax.random.fold_in(prng_key(key), length), count)
            asked = world.prompts(fresh, prompts, examples=count, length=length)
            if isinstance(reader, Ginc):
                belief = reader.believe(asked.tokens)
                posterior[i, j] = belief.posterior[np.arange(prompts), asked.concepts].mean()
                said = belief.next.argmax(axis=1)
            else:
                said = _said(reader, asked.tokens)
            accuracy[i, j] = (said == asked.labels).mean()
    error = np.sqrt(accuracy * (1 - accuracy) / prompts)
    exact = isinstance(reader, Ginc)
    return Retrieval(tuple(lengths), tuple(examples), accuracy, error, posterior if exact else None)


def _said(model: LanguageModel, tokens: np.ndarray) -> np.ndarray:
    """The most probable token after each prompt, of which the last `context` tokens are read."""
    tokens = tokens[:, -model.context :]
    count = tokens.shape[1]
    # padding comes later, and the mask hides it
    padded = np.pad(tokens, ((0, 0), (0, min(bucket(count), model.context) - count)))
    return np.asarray(model.logits(padded))[:, count - 1].argmax(axis=1)


@checked
def train_reader(
    world: Ginc,
    model: LanguageModel,
    key: Key,
    *,
    optimization: Optimization | None = None,
    save: PathLike | None = None,
) -> LanguageModel:
    """Train a language model on fresh documents of a world, each from one concept.

    Arguments:
        world: the mixture of hidden Markov models, with as many symbols as the model has tokens.
        model: the model before training; its context is the length of the documents.
        key: randomness of the documents.
        optimization: how to train; 3000 steps of 16 documents if omitted.
        save: folder for the state; the same call resumes from it.

    Ref         xie2022, Section 4.

    >>> import jax, measureformer as mf
    >>> world = mf.incontext.bayes.ginc(jax.random.key(0), concepts=2, values=2, slots=3, symbols=5)
    >>> small = mf.Architecture(width=8, layers=1, heads=1)
    >>> model = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=5, context=8)
    >>> few = mf.Optimization(steps=2, batch=2)
    >>> mf.incontext.train_reader(world, model, jax.random.key(1), optimization=few).context
    8
    """
    optimization = Optimization(steps=3000, batch=16) if optimization is None else optimization
    if model.vocabulary != world.symbols:
        raise DimensionMismatchError(
            got=f"a world of {world.symbols} symbols and a model of {model.vocabulary}",
            need="as many of one as of the other",
            do="Make the model with vocabulary=world.symbols.",
        )
    about = {"model": {**asdict(model.architecture), "context": model.context}, "training": asdict(optimization)}
    objective = DocumentLoss(world, optimization.batch)
    with RunFolder.of(save, about, [key, *jax.tree.leaves((world, model))]) as folder:
        run = trained(model, objective, optimization, prng_key(key), folder=folder, last=False)
    if run.failed:
        raise not_finite(run, None)
    return run.weights
