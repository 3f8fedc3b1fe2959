"""A small language model retrieves labels that it knows, and does not learn new ones from its context."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer._claims.lens._data import model, needs
from measureformer.result import Check, Figure, Outcome, Series

COLOURS = {
    "white": "snow milk cloud salt",
    "green": "grass leaf lime frog",
    "red": "blood tomato cherry ruby",
    "yellow": "lemon banana gold sun",
    "black": "coal night tar raven",
    "blue": "sky sea ocean sapphire",
}
ERRORS = 5
KINDS = ("true", "shuffled", "renamed")


@dataclass(frozen=True)
class Config:
    trials: int = 40
    most: int = 8
    """Shots in the longest prompt."""
    sizes: int = 1
    """Numbers of shots: most, most/2, …"""


@dataclass(frozen=True)
class Task:
    """Questions with known answers, how they are written, and other names for the answers."""

    name: str
    answers: dict[str, str]
    new: dict[str, str]


def _tasks() -> tuple[Task, Task]:
    colours = {f"{word}:": f" {name}" for name, words in COLOURS.items() for word in words.split()}
    things = (" dog", " house", " tree", " car", " book", " fish")
    # the operation is hidden behind a sign that has no meaning of its own
    sums = {f"{a}?{b}=": str(a + b) for a in range(1, 5) for b in range(1, 5)}
    new = dict(zip(sorted(set(sums.values())), "kwmtrxb", strict=True))
    return (
        Task("word: colour", colours, dict(zip((f" {name}" for name in COLOURS), things, strict=True))),
        Task("a?b=c", sums, new),
    )


def _accuracy(rng: np.random.Generator, task: Task, kind: str, shots: int, trials: int) -> float:
    """How often the right label is the likeliest of all labels after `shots` examples."""
    reader = model("smollm2")
    labels = {answer: task.new[answer] if kind == "renamed" else answer for answer in task.new}
    first = {answer: int(reader.tokenized(label)[0]) for answer, label in labels.items()}
    right = 0
    for _ in range(trials):
        *shown, asked = rng.permutation(list(task.answers))[: shots + 1]
        said = [labels[task.answers[question]] for question in shown]
        if kind == "shuffled":
            said = list(rng.permutation(said))
        prompt = "".join(f"{question}{label}\n" for question, label in zip(shown, said, strict=True)) + asked
        logits = np.asarray(reader.logits(str(prompt), last=True))[0]
        right += max(first, key=lambda answer: logits[first[answer]]) == task.answers[asked]
    return right / trials


def _outcome(pairs: dict[str, tuple[float, float]], trials: int, figure: Figure | None = None) -> Outcome:
    checks: list[Check] = []
    for name, (above, below) in pairs.items():
        error = math.sqrt((above * (1 - above) + below * (1 - below)) / trials + 1e-12)
        checks.append(Check(f"{name}, true labels minus renamed ones", above - below, low=0.0, error=ERRORS * error))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    shots = [max(1, config.most >> i) for i in reversed(range(config.sizes))]
    found = {
        (task.name, kind): [_accuracy(rng, task, kind, k, config.trials) for k in shots]
        for task in _tasks()
        for kind in KINDS
    }
    x, marker = tuple(map(float, shots)), "line" if len(shots) > 1 else "points"
    figure = Figure(
        "Retrieval or learning?",
        "examples in the prompt",
        "share of right answers",
        tuple(Series(f"{name}, {kind} labels", x, tuple(values), marker) for (name, kind), values in found.items()),
        caption=f"SmolLM2-135M, {config.trials} prompts each; chance is 1/6 and 1/7. Renamed: each label by another.",
    )
    last = {task.name: (found[task.name, "true"][-1], found[task.name, "renamed"][-1]) for task in _tasks()}
    return _outcome(last, config.trials, figure)


def _control(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    pairs = {
        task.name: tuple(_accuracy(rng, task, kind, config.most, config.trials) for kind in ("renamed", "true"))
        for task in _tasks()
    }
    return _outcome({name: (a, b) for name, (a, b) in pairs.items()}, config.trials)


claim = Claim(
    name="min-2022-retrieval-not-learning",
    title="A small language model retrieves, and does not learn",
    statement=(
        "Prompted with examples 'word: colour', or 'a?b=c' where ? hides a sum, SmolLM2-135M answers another question "
        "more often if labels have their own names than if each is consistently called by another one."
    ),
    hypotheses=("one trained model; six colours with four words each, sums of two numbers from 1 to 4",),
    reference="min2022",
    run=_run,
    control=_control,
    control_statement="The two kinds of labels exchanged: renamed ones are predicted better.",
    quick=Config(),
    full=Config(trials=120, sizes=4),
    needs=needs("smollm2"),
)
