"""Heads of a trained encoder average at both ends and retrieve in between; shuffled weights only average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series

AVERAGING, SELECTIVE = 1 / 2, 1 / 32
"""Parts of the mass above which a head is of class I, and below which it is of class IV."""


@dataclass(frozen=True)
class Config:
    tokens: int = 64


def _needed(reader: Any, tokens: int) -> list[np.ndarray]:
    """For each layer and head, the part of the mass that holds 90 % of the attention, in the median of the tokens."""
    from measureformer.lens.columns import Look

    return [Look(step).needed for step in reader.steps(real_text(reader, tokens))]


def _outcome(parts: list[np.ndarray], figure: Figure | None = None) -> Outcome:
    first, *middle, last = (float(np.median(row)) for row in parts)
    checks = (
        Check(
            "part of the mass that the median head needs, first and last layer, least", min(first, last), low=AVERAGING
        ),
        Check("the same in the layers between, largest", max(middle), high=AVERAGING),
        Check("part that the most selective head of all needs", float(min(map(np.min, parts))), high=SELECTIVE),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    reader = model("minilm")
    parts, mixed = (_needed(which, config.tokens) for which in (reader, reader.shuffled(0)))
    depth = tuple(i + 1.0 for i in range(len(parts)))
    x = tuple(float(i + 0.7 * (h + 0.5) / len(row) + 0.65) for i, row in enumerate(parts) for h in range(len(row)))
    ends = (0.5, len(parts) + 0.5)
    figure = Figure(
        "Which heads are memories?",
        "layer",
        "mass that holds 90 % of attention",
        (
            Series("heads", x, tuple(float(v) for row in parts for v in row), "points"),
            Series("median", depth, tuple(float(np.median(row)) for row in parts), "line"),
            Series("median, weights shuffled", depth, tuple(float(np.median(row)) for row in mixed), "line"),
            Series("class I above", ends, (AVERAGING, AVERAGING), "dashed"),
            Series("class IV below", ends, (SELECTIVE, SELECTIVE), "dashed"),
        ),
        yscale="log",
        caption=f"all-MiniLM-L6-v2 on {config.tokens} tokens. Class I averages over most of them, IV retrieves few.",
    )
    return _outcome(parts, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_needed(model("minilm").shuffled(0), config.tokens))


claim = Claim(
    name="ramsauer-2020-head-classes-by-depth",
    title="Heads average at the ends and retrieve in between",
    statement=(
        "In all-MiniLM-L6-v2 on real text, the median head of the first and of the last layer is of class I: 90 % of "
        "its attention needs more than half of the mass. In the layers between it needs less, and some head is of "
        "class IV, with less than 1/32."
    ),
    hypotheses=("one trained model, one text",),
    reference="ramsauer2020",
    run=_run,
    control=_control,
    control_statement="The entries of every weight matrix in random order: all heads average.",
    quick=Config(),
    full=Config(tokens=256),
    needs=needs("minilm"),
)
