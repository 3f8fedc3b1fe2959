"""A diagnosis, or two, as figures: depth on the horizontal axis, heads as small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from measureformer.figures.figure import Figure, Scale, Series
from measureformer.lens.columns import COLUMNS
from measureformer.lens.diagnose import Diagnosis


@dataclass(frozen=True)
class Drawn:
    """Columns against depth: a line for each column of layers, or for each head of a column of heads with their median.

    `control` draws the first column, or its median, for shuffled weights too.
    """

    title: str
    ylabel: str
    columns: dict[str, str]
    caption: str
    yscale: Scale = "linear"
    control: bool = False

    @property
    def per_head(self) -> bool:
        return any(COLUMNS[name].per_head for name in self.columns)


DRAWN: dict[str, Drawn] = {
    "lipschitz": Drawn(
        "How Lipschitz is attention on this text?",
        "local constant",
        {"lower": "attained", "upper": "certified bound"},
        "The constant of the attention of a layer, without the residual stream, in L² of the tokens.",
        "log",
    ),
    "heads": Drawn(
        "How Lipschitz is each head?", "local constant, attained", {"head_lower": "head"}, "In L² of the tokens.", "log"
    ),
    "size": Drawn(
        "How large are the tokens?",
        "norm",
        {"size": "root mean square", "radius": "largest"},
        "Norms after each layer. A few tokens are often much larger than the others.",
        "log",
    ),
    "rank": Drawn(
        "Does the cloud lose rank?",
        "effective rank",
        {"rank": "effective rank"},
        "e^entropy of the eigenvalues of the covariance: the number of directions that are in use.",
        "log",
        control=True,
    ),
    "cosine": Drawn(
        "Do tokens cluster?",
        "mean cosine",
        {"cosine": "mean cosine of two tokens"},
        "1: all tokens point the same way. 0: no common direction.",
        control=True,
    ),
    "moved": Drawn(
        "How far does a layer move the cloud?",
        "distance",
        {"moved": "token by token", "transport": "W₂, tokens exchangeable"},
        "W₂ is smaller where tokens take the places of others.",
        "log",
    ),
    "memories": Drawn(
        "Which heads are memories, and of which class?",
        "mass that holds 90 % of attention",
        {"needed": "head"},
        "Class I above 1/2: averages. II above 1/8, III above 1/32. IV below: single tokens are retrieved.",
        "log",
        control=True,
    ),
    "first": Drawn(
        "Which heads rest on the first token?",
        "attention on the first token",
        {"first": "head"},
        "Averaged over the tokens.",
    ),
    "attraction": Drawn(
        "Which heads attract, which repel?",
        "trace of VO / nuclear norm",
        {"attraction": "head"},
        "1: what a token adds points along it (attractive). −1: against it (repulsive).",
    ),
    "closure": Drawn(
        "How far is each head from its Gaussian closure?",
        "relative error",
        {"closure": "head"},
        "0: attention sees the mean and the covariance only. 1: the closure is as wrong as the mean value.",
        "log",
    ),
    "separation": Drawn(
        "How well do heads separate what they select?",
        "margin / largest margin",
        {"separation": "head"},
        "Lead of the selected tokens over the others, as a share of what a support vector machine reaches.",
        "log",
    ),
}


PANELS = frozenset(name for name, of in DRAWN.items() if of.per_head)
"""Figures that are small multiples, an axis for each head."""


def figures(*found: Diagnosis) -> dict[str, Figure]:
    """Name -> figure, for one diagnosis or for several beside each other."""
    made = {name: (_heads if of.per_head else _lines)(found, of) for name, of in DRAWN.items()}
    made |= {
        "sensitivity": _sensitivity(found),
        "iterated": _iterated(found),
        "growth": _growth(found),
        "sampling": _sampling(found),
    }
    return {name: figure for name, figure in made.items() if figure.series}


def _named(one: Diagnosis, words: str, found: Sequence[Diagnosis]) -> str:
    return words if len(found) == 1 else f"{one.model}, {one.tokens} tokens: {words}"


def _lines(found: Sequence[Diagnosis], of: Drawn) -> Figure:
    series: list[Series] = []
    for one in found:
        x, (first, *_) = np.arange(1, one.depth + 1), of.columns
        for name, words in of.columns.items():
            series.append(Series(_named(one, words, found), x, one.column(name), role="measured"))
        if of.control and one.control:
            mixed = one.column(first, control=True)
            series.append(Series(_named(one, "weights shuffled", found), x, mixed, "dashed", role="theory"))
    return Figure(of.title, "layer", of.ylabel, _measured(series), yscale=of.yscale, caption=of.caption)


def _heads(found: Sequence[Diagnosis], of: Drawn) -> Figure:
    series: list[Series] = []
    for one in found:
        (column,), x = of.columns, np.arange(1, one.depth + 1)
        values = one.column(column)
        if values.ndim != 2:
            continue
        medians = {"median of all heads": _medians(values)}
        if of.control and one.control:
            medians["median, weights shuffled"] = _medians(one.column(column, control=True))
        series += [
            Series(_named(one, f"head {i}", found), x, row, role="measured") for i, row in enumerate(values.T, 1)
        ]
        series += [Series(_named(one, words, found), x, y, "dashed", role="theory") for words, y in medians.items()]
    caption = f"{of.caption} Head indices are not comparable across layers."
    return Figure(of.title, "layer", of.ylabel, _measured(series), yscale=of.yscale, caption=caption)


def _measured(series: Sequence[Series]) -> tuple[Series, ...]:
    """Without series of which nothing was measured."""
    return tuple(one for one in series if np.isfinite(one.y).any())


def _medians(values: np.ndarray) -> np.ndarray:
    """Of each row, over what was measured."""
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else math.nan for row in values])


def _sensitivity(found: Sequence[Diagnosis]) -> Figure:
    series: list[Series] = []
    for one in found:
        if one.sensitivity:
            x = range(1, one.depth + 1)
            mean, least, most = ([row[key] or 0.0 for row in one.sensitivity] for key in ("mean", "least", "most"))
            series.append(Series(_named(one, "mean", found), x, mean, role="measured"))
            series.append(Series(_named(one, "least and most", found), x, least, "band", most, role="measured"))
    return Figure(
        "What does one token change?",
        "layer",
        "growth of the distance",
        tuple(series),
        yscale="log",
        caption="Distance between the clouds of two texts that differ in one token, relative to that at the entry.",
    )


def _iterated(found: Sequence[Diagnosis]) -> Figure:
    series: list[Series] = []
    for one in found:
        if one.iterated:
            cosines, depth = one.iterated, (one.depth, one.depth)
            words = _named(one, "mean cosine of two tokens", found)
            series.append(Series(words, range(len(cosines)), cosines, role="measured"))
            words = _named(one, "depth in training", found)
            series.append(Series(words, depth, (min(0.0, *cosines), 1.0), "dashed", role="theory"))
    return Figure(
        "And beyond the depth of the model?",
        "layers",
        "mean cosine",
        tuple(series),
        caption="All layers of this model are one; iterated, it moves tokens as an autonomous flow does.",
    )


def _growth(found: Sequence[Diagnosis]) -> Figure:
    series = _against_tokens(found, ("exponents", "lengths", "constants"), "points")
    if series:
        series += _powers(series, {"n^(1/4)": 0.25, "√n, the worst case": 0.5}, min(min(one.y) for one in series))
    return Figure(
        "How does attention change as the context grows?",
        "tokens in the context n",
        "local constant",
        tuple(series),
        "log",
        "log",
        caption="Pieces of the text of different lengths; the exponents are fitted, with 95 % intervals.",
    )


def _sampling(found: Sequence[Diagnosis]) -> Figure:
    series = _against_tokens(found, ("sampling_exponents", "samples", "sampling"), "line")
    if series:
        series += _powers(series, {"n^(−1/2)": -0.5}, max(one.y[0] for one in series))
    return Figure(
        "How many tokens stand for the whole context?",
        "tokens drawn from the context n",
        "error of attention, relative",
        tuple(series),
        "log",
        "log",
        caption="Attention on n tokens drawn at random, against the whole. The mean-field rate is n^(−1/2).",
    )


def _against_tokens(
    found: Sequence[Diagnosis],
    keys: tuple[Literal["exponents", "sampling_exponents"], str, str],
    style: Literal["points", "line"],
) -> list[Series]:
    """A series for each layer, with its fitted exponent; `keys` name exponents, numbers of tokens and values."""
    of, n, values = keys
    series: list[Series] = []
    for one in found:
        for layer, fit in one.exponents(of).items():
            assert one.sweep is not None  # no exponents otherwise
            # keys of a diagnosis that was read back from JSON are strings
            y = {int(i): row for i, row in one.sweep[values].items()}[layer]
            label = f"layer {layer + 1}: n^{fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]"
            series.append(Series(_named(one, label, found), one.sweep[n], y, style, role="measured"))
    return series


def _powers(series: Sequence[Series], powers: dict[str, float], start: float) -> list[Series]:
    """Reference laws n^power that begin with the value `start`."""
    n = np.array([min(series[0].x), max(series[0].x)])
    return [Series(words, n, start * (n / n[0]) ** p, "dashed", role="theory") for words, p in powers.items()]


TABLE: tuple[tuple[str, str], ...] = (
    ("size", "norm"),
    ("rank", "rank"),
    ("cosine", "cosine"),
    ("moved", "moved"),
    ("lower", "Lipschitz ≥"),
    ("upper", "≤"),
)
HEAD_TABLE: tuple[tuple[str, str], ...] = (
    ("k90", "90 % held by"),
    ("class", "class"),
    ("first", "on first"),
    ("attraction", "attraction"),
    ("closure", "closure error"),
)


def table(one: Diagnosis) -> tuple[list[str], list[list[float]]]:
    """Headings and rows, a row per layer: numbers of the layer, then medians over its heads."""
    layers = [(one.column(name), words) for name, words in TABLE]
    heads = [(_medians(one.column(name)), words) for name, words in HEAD_TABLE]
    columns = [entry for entry in (*layers, *heads) if np.isfinite(entry[0]).any()]
    if one.sensitivity:
        columns.append((np.array([row["mean"] for row in one.sensitivity], float), "one token"))
    rows = [[float(values[i]) for values, _ in columns] for i in range(one.depth)]
    return [words for _, words in columns], rows
