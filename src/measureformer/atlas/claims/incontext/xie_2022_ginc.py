"""Retrieval: with more and longer examples, Bayes' rule finds the concept that a prompt comes from."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series, Style, once
from measureformer.incontext import LanguageModel, retrieval, train_reader
from measureformer.incontext.bayes import Ginc, TokenPrompts, ginc
from measureformer.incontext.retrieval import Retrieval
from measureformer.training.architecture import Architecture
from measureformer.training.optimization import Optimization

LENGTHS = (3, 5, 8)
SMALL: dict[str, int] = {"values": 5, "slots": 5, "symbols": 20}
"""The world of the trained model: with a hundred states and 50 symbols, as above, it takes longer than minutes."""
JUMPS = 0.1
"""Share of uniform transitions in its documents: in prompts too, a delimiter is followed by any state."""
BLIND, MISLED = "no-concepts", "examples-of-another-prompt"


@dataclass(frozen=True)
class Config:
    prompts: int = 60
    worlds: int = 1
    eps: float = 0.05
    most: int = 2
    """Examples in a prompt: 0, 1, 2, 4, … up to this."""
    steps: int = 0
    """Of the training of a small model that is judged next to Bayes' rule; 0 for none."""
    asked: int = 4000
    """Prompts for each number and length of examples that the model is asked."""


def _counts(config: Config) -> list[int]:
    return [0, *(2**i for i in range(config.most.bit_length()))]


class _Misled(Ginc):
    """A world whose prompts have the examples of the prompt before them, mostly of another concept."""

    def prompts(self, key: Key, count: int, *, examples: int, length: int) -> TokenPrompts:
        drawn = super().prompts(key, count, examples=examples, length=length)
        shown, question = np.split(drawn.tokens, [drawn.tokens.shape[1] - (length - 1)], axis=1)
        return drawn._replace(tokens=np.concatenate([np.roll(shown, 1, axis=0), question], axis=1))


def _world(key: Key, variant: str, **sizes: int) -> Ginc:
    world = ginc(key, **sizes)
    if variant != MISLED:
        return world
    return _Misled(world.transitions, world.starts, world.emissions, world.slots, world.symbols)


def _believed(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the true concept and accuracy, each (lengths, counts): means over worlds and prompts."""
    counts = _counts(config)
    found = np.zeros((config.worlds, len(LENGTHS), len(counts), 2))
    for w, of_world in enumerate(jax.random.split(key, config.worlds)):
        world = _world(of_world, variant)
        reader = world.smoothed(config.eps)
        reader = _without_concepts(reader) if variant == BLIND else reader
        for i, length in enumerate(LENGTHS):
            for j, n in enumerate(counts):
                prompts = world.prompts(jax.random.fold_in(of_world, n), config.prompts, examples=n, length=length)
                belief = reader.believe(prompts.tokens)
                true = belief.posterior[np.arange(config.prompts), prompts.concepts]
                found[w, i, j] = true.mean(), (belief.next.argmax(axis=1) == prompts.labels).mean()
    means = found.mean(axis=0)
    return means[..., 0], means[..., 1]


def _without_concepts(world: Ginc) -> Ginc:
    """All concepts have the same, averaged transitions: there is nothing to find."""
    mean = lambda entry: np.broadcast_to(np.mean(entry, axis=0), entry.shape)  # noqa: E731
    return Ginc(mean(world.transitions), mean(world.starts), world.emissions, world.slots, world.symbols)


def _checks(posterior: np.ndarray, accuracy: np.ndarray) -> tuple[Check, ...]:
    by_number, by_length = posterior[0, -1] - posterior[0, 0], posterior[-1, 0] - posterior[0, 0]
    return (
        Check("posterior of the true concept, most and longest examples", posterior[-1, -1], 0.95, rejected_by=BLIND),
        Check("its growth from no example to most, length 3", by_number, 0.1, rejected_by=(BLIND, MISLED)),
        Check("its growth from length 3 to 8, without examples", by_length, 0.1, rejected_by=BLIND),
        Check("accuracy, most and longest examples", accuracy[-1, -1], 0.95, rejected_by=BLIND),
    )


@once
def _taught(key: Key, config: Config, *, blind: bool) -> LanguageModel:
    """A small transformer after training on documents, of which `blind` has no concepts to find."""
    world = ginc(key, **SMALL)
    taught = (_without_concepts(world) if blind else world).smoothed(JUMPS)
    start = LanguageModel.random(key, Architecture(64, 2, 2), vocabulary=world.symbols, context=9 * config.most + 8)
    optimization = Optimization(steps=config.steps, batch=32, rate=3e-3)
    return train_reader(taught, start, jax.random.fold_in(key, 1), optimization=optimization)


@once
def _read(key: Key, config: Config, variant: str) -> Retrieval:
    return _asked(key, config, _taught(key, config, blind=variant == BLIND), variant)


def _asked(key: Key, config: Config, reader: Ginc | LanguageModel, variant: str) -> Retrieval:
    fresh, world = jax.random.fold_in(key, 2), _world(key, variant, **SMALL)
    return retrieval(reader, world, fresh, examples=_counts(config), lengths=LENGTHS, prompts=config.asked)


def _model_checks(found: Retrieval) -> tuple[Check, ...]:
    accuracy, variance = found.accuracy, found.error**2
    number, length = accuracy[:, -1] - accuracy[:, 0], accuracy[-1] - accuracy[0]
    error = lambda parts: 5 * np.sqrt(parts.sum()) / parts.shape[1]  # noqa: E731
    return (
        Check("trained model: accuracy, growth from no example to most, mean over lengths", number.mean(),
              low=0.0, error=error(variance[:, [0, -1]].T), rejected_by=MISLED),
        Check("trained model: its growth from length 3 to 8, mean over numbers of examples", length.mean(),
              low=0.1, error=error(variance[[0, -1]]), rejected_by=BLIND),
        Check("trained model: accuracy, most and longest examples", accuracy[-1, -1],
              low=0.75, error=5 * found.error[-1, -1], rejected_by=BLIND),
    )  # fmt: skip


def measure(key: Key, config: Config, variant: str) -> Outcome:
    posterior, accuracy = _believed(key, config, variant)
    taught = _model_checks(_read(key, config, variant)) if config.steps else ()
    figure = _figure(key, config, posterior, accuracy) if variant == "claim" else None
    return Outcome((*_checks(posterior, accuracy), *taught), figure)


def _figure(key: Key, config: Config, posterior: np.ndarray, accuracy: np.ndarray) -> Figure:
    counts = _counts(config)
    # with a trained model two lengths of three: there are colours for six curves
    rows = [row for row in zip(LENGTHS, accuracy, posterior, strict=True) if row[0] != 5 or not config.steps]
    curves = [Series(f"length {k}", counts, right, role="measured") for k, right, _ in rows]
    mass = [Series(f"length {k}: posterior", counts, belief, "points", role="measured") for k, _, belief in rows]
    return Figure(
        "Which concept is it?",
        "examples in the prompt",
        "accuracy; posterior of the true concept",
        (*curves, *mass, *(_drawn(key, config) if config.steps else ())),
        caption=(
            f"GINC with 5 concepts of 100 states, {config.worlds * config.prompts} prompts for each point; transitions "
            f"of the reader mixed with {config.eps:g} of uniform ones."
            + (f" The trained model reads a world of 25 states, {config.asked} prompts." if config.steps else "")
        ),
    )


def _drawn(key: Key, config: Config) -> list[Series]:
    """The trained model, and Bayes' rule for the same prompts."""
    bayes = _asked(key, config, ginc(key, **SMALL).smoothed(config.eps), "claim")
    readers: list[tuple[str, Retrieval, Style, Role]] = [
        ("trained model", _read(key, config, "claim"), "line", "measured"),
        ("Bayes there", bayes, "dashed", "theory"),
        ("control: trained without concepts", _read(key, config, BLIND), "line", "control"),
    ]
    return [
        Series(f"{name}, length {k}", _counts(config), row, style, role=role)
        for name, found, style, role in readers
        for k, row in zip(LENGTHS, found.accuracy, strict=True)
        if k != 5
    ]


claim = Claim(
    name="xie-2022-ginc",
    title="In-context learning as retrieval: the posterior finds the concept",
    kind="observation",
    statement=(
        "For prompts of n independent examples of length k from one of several hidden Markov models, the posterior of "
        "the true one tends to 1 as n or k grow, and the most probable next token becomes that of the true concept. "
        "Observed: with most and longest examples both the posterior and the accuracy exceed 0.95; in the full preset "
        "the accuracy of a small transformer that was trained on documents grows with n and with k, too."
    ),
    hypotheses=(
        "all transitions have positive probability for the reader: those of the generator may be 0",
        "the exact Bayes predictor; the trained model is judged in the full preset, in a world of 25 states and 20 "
        "symbols, and stays below Bayes: how far is drawn",
    ),
    reference="xie2022, Theorem 1",
    measure=measure,
    controls={
        BLIND: "All concepts have the same, averaged transitions, for the reader and in the documents of the model.",
        MISLED: "The examples are those of another prompt, mostly of another concept than the question.",
    },
    quick=Config(),
    full=Config(prompts=200, worlds=3, most=8, steps=2500),
)
