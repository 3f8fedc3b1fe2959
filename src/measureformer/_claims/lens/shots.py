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
NEW = dict(zip(COLOURS, ("dog", "house", "tree", "car", "book", "fish"), strict=True))
ERRORS = 5
KINDS = ("true", "shuffled", "renamed")


@dataclass(frozen=True)
class Config:
    trials: int = 60
    most: int = 8
    """Shots in the longest prompt."""
    sizes: int = 1
    """Numbers of shots: most, most/2, …"""


def _accuracy(rng: np.random.Generator, kind: str, shots: int, trials: int) -> float:
    """How often the right label is the likeliest one after `shots` examples; chance is 1/6."""
    reader = model("smollm2")
    colour = {word: name for name, words in COLOURS.items() for word in words.split()}
    labels = {name: NEW[name] if kind == "renamed" else name for name in COLOURS}
    first = {name: int(reader.tokenized(f" {label}")[0]) for name, label in labels.items()}
    right = 0
    for _ in range(trials):
        *shown, asked = rng.permutation(list(colour))[: shots + 1]
        said = [labels[colour[word]] for word in shown]
        if kind == "shuffled":
            said = list(rng.permutation(said))
        prompt = "".join(f"{word}: {label}\n" for word, label in zip(shown, said, strict=True)) + f"{asked}:"
        logits = np.asarray(reader.logits(prompt, last=True))[0]
        right += max(first, key=lambda name: logits[first[name]]) == colour[asked]
    return right / trials


def _outcome(above: float, below: float, trials: int, figure: Figure | None = None) -> Outcome:
    error = math.sqrt((above * (1 - above) + below * (1 - below)) / trials + 1e-12)
    return Outcome((Check("true labels minus renamed ones", above - below, low=0.0, error=ERRORS * error),), figure)


def _run(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    shots = [max(1, config.most >> i) for i in reversed(range(config.sizes))]
    found = {kind: [_accuracy(rng, kind, k, config.trials) for k in shots] for kind in KINDS}
    x = tuple(map(float, shots))
    series = [Series(f"{kind} labels", x, tuple(found[kind]), "line" if len(x) > 1 else "points") for kind in KINDS]
    figure = Figure(
        "Retrieval or learning?",
        "examples in the prompt",
        "share of right answers",
        (*series, Series("chance", (min(x) - 0.5, max(x) + 0.5), (1 / 6, 1 / 6), "dashed")),
        caption=f"SmolLM2-135M, {config.trials} prompts each. Renamed: each colour has the name of a thing.",
    )
    return _outcome(found["true"][-1], found["renamed"][-1], config.trials, figure)


def _control(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    true, renamed = (_accuracy(rng, kind, config.most, config.trials) for kind in ("true", "renamed"))
    return _outcome(renamed, true, config.trials)


claim = Claim(
    name="min-2022-retrieval-not-learning",
    title="A small language model retrieves, and does not learn",
    statement=(
        "Prompted with examples 'word: colour', SmolLM2-135M names the colour of another word more often if colours "
        "have their own names than if each is consistently called by another word."
    ),
    hypotheses=("one trained model, six colours, four words each",),
    reference="min2022",
    run=_run,
    control=_control,
    control_statement="The two kinds of labels exchanged: renamed ones are predicted better.",
    quick=Config(),
    full=Config(trials=120, sizes=4),
    needs=needs("smollm2"),
)
