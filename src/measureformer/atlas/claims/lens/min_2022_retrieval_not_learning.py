"""A small language model retrieves labels that it knows better than it learns new ones from its context.

Protocol, fixed before the seeds below were drawn for the first time: nine examples in a prompt; 96 prompts whose words
and their order come from the seed; each prompt once with true and once with renamed labels; an answer is right if the
right label has the largest logit of the six. It holds if the share of right answers with true labels, minus that with
renamed ones, is above zero by four standard errors of the paired difference. Shuffled labels, fewer examples and the
sums are drawn and not judged.

Run once on two held-out seeds, 20271 and 40517: 0.43 of the answers are right with true and 0.13 with
renamed labels, and 0.38 and 0.09; the lead is 0.30 and 0.28, four standard errors are 0.23 and 0.19.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator

COLOURS = {
    "white": "snow milk cloud salt",
    "green": "grass leaf lime frog",
    "red": "blood tomato cherry ruby",
    "yellow": "lemon banana gold sun",
    "black": "coal night tar raven",
    "blue": "sky sea ocean sapphire",
}
ERRORS = 4
KINDS = ("true", "shuffled", "renamed")


@dataclass(frozen=True)
class Config:
    trials: int = 96
    most: int = 9
    """Shots in the longest prompt."""
    sizes: int = 1
    """Numbers of shots: most, most/2, …"""
    tasks: int = 1
    """Colours alone, or sums drawn too."""
    drawn: int = 32
    """Prompts for what is drawn and not judged."""


@dataclass(frozen=True)
class Task:
    """Questions as they are written, with their answers; and other names for the answers."""

    name: str
    answers: tuple[tuple[str, str], ...]
    names: tuple[tuple[str, str], ...]


THINGS = ("dog", "house", "tree", "car", "book", "fish")
TASKS = (
    Task(
        "word: colour",
        tuple((f"{word}:", f" {name}") for name, words in COLOURS.items() for word in words.split()),
        tuple((f" {name}", f" {thing}") for name, thing in zip(COLOURS, THINGS, strict=True)),
    ),
    # the operation is hidden behind a sign that has no meaning of its own
    Task(
        "a?b=c",
        tuple((f"{a}?{b}=", str(a + b)) for a in range(1, 5) for b in range(1, 5)),
        tuple((str(i), letter) for i, letter in zip(range(2, 9), "kwmtrxb", strict=True)),
    ),
)


@cache
def _right(seed: int, task: Task, kind: str, shots: int, trials: int) -> tuple[bool, ...]:
    """Whether the right label is the likeliest of all after `shots` examples, for prompts drawn from the seed."""
    reader, rng = model("smollm2"), np.random.default_rng(seed)
    labels = {old: new if kind == "renamed" else old for old, new in task.names}
    first = {old: int(reader.tokenized(label)[0]) for old, label in labels.items()}
    answers, found = dict(task.answers), []
    for _ in range(trials):
        *shown, asked = (str(question) for question in rng.permutation(list(answers))[: shots + 1])
        said = [labels[answers[question]] for question in shown]
        # drawn for every kind, so that all of them are asked the same
        mixed = rng.permutation(shots)
        order = mixed if kind == "shuffled" else np.arange(shots)
        prompt = "".join(f"{question}{said[i]}\n" for question, i in zip(shown, order, strict=True)) + asked
        logits = np.asarray(reader.logits(prompt, last=True))[0]
        found.append(max(first, key=lambda old: logits[first[old]]) == answers[asked])
    return tuple(found)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    seed, colours = int(generator(key).integers(1 << 31)), TASKS[0]
    kinds = ("renamed", "true") if variant == "labels-exchanged" else ("true", "renamed")
    above, below = (np.array(_right(seed, colours, kind, config.most, config.trials), float) for kind in kinds)
    # the same questions are asked both times
    lead = above - below
    error = ERRORS * lead.std(ddof=1) / math.sqrt(config.trials)
    name = f"{colours.name}: true minus renamed"
    check = Check(name, lead.mean(), low=0.0, error=error, rejected_by="labels-exchanged")
    return Outcome((check,), _figure(seed, config) if variant == "claim" else None)


def _figure(seed: int, config: Config) -> Figure:
    shots = [max(1, config.most >> i) for i in reversed(range(config.sizes))]
    kinds = KINDS if config.sizes > 1 else KINDS[::2]

    def right(task: Task, kind: str, shots: int) -> float:
        judged = task is TASKS[0] and kind in KINDS[::2] and shots == config.most
        return float(np.mean(_right(seed, task, kind, shots, config.trials if judged else config.drawn)))

    share = {
        task.name: {kind: [right(task, kind, k) for k in shots] for kind in kinds} for task in TASKS[: config.tasks]
    }
    if config.sizes == 1:
        series = [
            Series(name, (0.0, 1.0), [row[0] for row in rows.values()], "bars", role="measured")
            for name, rows in share.items()
        ]
    else:
        series = [
            Series(f"{name}, {kind} labels", shots, row, role="measured")
            for name, rows in share.items()
            for kind, row in rows.items()
        ]
    return Figure(
        "Retrieval or learning?",
        "labels in the prompt" if config.sizes == 1 else "examples in the prompt",
        "share of right answers",
        tuple(series),
        xticks=kinds if config.sizes == 1 else (),
        caption=f"SmolLM2-135M, {config.trials} prompts with {config.most} examples and true or renamed colours, "
        f"{config.drawn} for all else. Chance is 1/6 for colours and 1/7 for sums.",
    )


claim = Claim(
    name="min-2022-retrieval-not-learning",
    title="Known labels help a small language model more than new ones",
    kind="observation",
    statement=(
        "Observed: prompted with nine examples 'word: colour', SmolLM2-135M says the colour of another word more often "
        "if colours have their own names than if each is consistently called by another one."
    ),
    hypotheses=(
        "one trained model; six colours with four words each; that it learns nothing new is not shown",
        "the same with 'a?b=c', where ? hides a sum of two numbers from 1 to 4, is drawn in the full preset and not "
        "judged",
    ),
    reference="min2022",
    measure=measure,
    controls={"labels-exchanged": "The two kinds of labels exchanged: renamed ones are predicted better."},
    quick=Config(),
    full=Config(sizes=3, tasks=2),
    needs=needs("smollm2"),
)
