"""Retrieval: with more and longer examples, Bayes' rule finds the concept that a prompt comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer._claims.base import Claim
from measureformer._claims.incontext._floats import floats
from measureformer.incontext import Architecture, LanguageModel, Training, retrieval, train_reader
from measureformer.incontext.bayes import Ginc, ginc
from measureformer.result import Check, Figure, Outcome, Series

LENGTHS = (3, 5, 8)


@dataclass(frozen=True)
class Config:
    prompts: int = 60
    worlds: int = 1
    eps: float = 0.05
    most: int = 2
    """Examples in a prompt: 0, 1, 2, 4, … up to this."""
    steps: int = 0
    """Of the training of a small model that is drawn next to Bayes' rule; 0 for none."""


def _counts(config: Config) -> list[int]:
    return [0, *(2**i for i in range(config.most.bit_length()))]


def _believed(key: Any, config: Config, *, blind: bool) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the true concept and accuracy, each (lengths, counts): means over worlds and prompts."""
    counts = _counts(config)
    found = np.zeros((config.worlds, len(LENGTHS), len(counts), 2))
    for w, of_world in enumerate(jax.random.split(key, config.worlds)):
        world = ginc(of_world)
        reader = world.smoothed(config.eps)
        if blind:
            mean = np.broadcast_to(np.mean(reader.transitions, axis=0), reader.transitions.shape)
            start = np.broadcast_to(np.mean(reader.starts, axis=0), reader.starts.shape)
            reader = Ginc(mean, start, reader.emissions, reader.slots, reader.symbols)
        for i, length in enumerate(LENGTHS):
            for j, n in enumerate(counts):
                prompts = world.prompts(jax.random.fold_in(of_world, n), config.prompts, examples=n, length=length)
                belief = reader.believe(prompts.tokens)
                true = belief.posterior[np.arange(config.prompts), prompts.concepts]
                found[w, i, j] = true.mean(), (belief.next.argmax(axis=1) == prompts.labels).mean()
    means = found.mean(axis=0)
    return means[..., 0], means[..., 1]


def _checks(posterior: np.ndarray, accuracy: np.ndarray) -> tuple[Check, ...]:
    return (
        Check("posterior of the true concept, most and longest examples", float(posterior[-1, -1]), low=0.95),
        Check("its growth from no example to most, length 3", float(posterior[0, -1] - posterior[0, 0]), low=0.1),
        Check("its growth from length 3 to 8, without examples", float(posterior[-1, 0] - posterior[0, 0]), low=0.1),
        Check("accuracy, most and longest examples", float(accuracy[-1, -1]), low=0.95),
    )


def _model(key: Any, config: Config) -> list[Series]:
    """The accuracy of a small transformer trained on documents of the first world."""
    if not config.steps:
        return []
    world = ginc(jax.random.split(key, config.worlds)[0])
    start = LanguageModel.random(key, Architecture(64, 3, 2), vocabulary=world.symbols, context=9 * config.most + 8)
    training = Training(steps=config.steps, batch=16, rate=2e-3)
    reader = train_reader(world, start, jax.random.fold_in(key, 1), training=training)
    fresh, counts = jax.random.fold_in(key, 2), _counts(config)
    found = retrieval(reader, world, fresh, examples=counts, lengths=LENGTHS, prompts=config.prompts)
    label = "trained model, length {}".format
    return [Series(label(k), floats(counts), floats(row)) for k, row in zip(LENGTHS, found.accuracy, strict=True)]


def _run(key: Any, config: Config) -> Outcome:
    posterior, accuracy = _believed(key, config, blind=False)
    counts = floats(_counts(config))
    curves = [Series(f"length {k}", counts, floats(row)) for k, row in zip(LENGTHS, accuracy, strict=True)]
    mass = [
        Series(f"length {k}: posterior", counts, floats(row), "points")
        for k, row in zip(LENGTHS, posterior, strict=True)
    ]
    figure = Figure(
        "Which concept is it?",
        "examples in the prompt",
        "accuracy; posterior of the true concept",
        (*curves, *mass, *_model(key, config)),
        caption=(
            f"GINC with 5 concepts of 100 states, {config.worlds * config.prompts} prompts for each point; transitions "
            f"of the reader mixed with {config.eps:g} of uniform ones."
        ),
    )
    return Outcome(_checks(posterior, accuracy), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(*_believed(key, config, blind=True)))


claim = Claim(
    name="xie-2022-ginc",
    title="In-context learning as retrieval: the posterior finds the concept",
    statement=(
        "For prompts of n independent examples of length k from one of several hidden Markov models, the posterior of "
        "the true one tends to 1 as n or k grow, and the most probable next token becomes that of the true concept."
    ),
    hypotheses=(
        "all transitions have positive probability for the reader: those of the generator may be 0",
        "the exact Bayes predictor; a trained model is drawn next to it in the full preset, and not judged",
    ),
    reference="xie2022, Theorem 1",
    run=_run,
    control=_control,
    control_statement="A reader for whom all concepts have the same, averaged transitions.",
    quick=Config(),
    full=Config(prompts=200, worlds=3, most=8, steps=1000),
)
