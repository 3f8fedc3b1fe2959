"""A diagnosis, or two, as figures: depth on the horizontal axis, heads as small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from measureformer.figures.figure import Figure, Scale, Series
from measureformer.lens.diagnose import Diagnosis


@dataclass(frozen=True)
class Lines:
    """Numbers of layers against depth; `control` draws the first one for shuffled weights too."""

    title: str
    ylabel: str
    columns: dict[str, str]
    caption: str
    yscale: Scale = "linear"
    control: bool = False


@dataclass(frozen=True)
class Heads:
    """A number of the heads against depth, a line for each, and the median."""

    title: str
    ylabel: str
    column: str
    caption: str
    yscale: Scale = "linear"
    control: bool = False


DRAWN: dict[str, Lines | Heads] = {
    "lipschitz": Lines(
        "How Lipschitz is attention on this text?",
        "local constant",
        {"lower": "attained", "upper": "certified bound"},
        "The constant of the attention of a layer, without the residual stream, in L² of the tokens.",
        "log",
    ),
    "heads": Heads(
        "How Lipschitz is each head?", "local constant, attained", "head_lower", "In L² of the tokens.", "log"
    ),
    "size": Lines(
        "How large are the tokens?",
        "norm",
        {"size": "root mean square", "radius": "largest"},
        "Norms after each layer. A few tokens are often much larger than the others.",
        "log",
    ),
    "rank": Lines(
        "Does the cloud lose rank?",
        "effective rank",
        {"rank": "effective rank"},
        "e^entropy of the eigenvalues of the covariance: the number of directions that are in use.",
        "log",
        control=True,
    ),
    "cosine": Lines(
        "Do tokens cluster?",
        "mean cosine",
        {"cosine": "mean cosine of two tokens"},
        "1: all tokens point the same way. 0: no common direction.",
        control=True,
    ),
    "moved": Lines(
        "How far does a layer move the cloud?",
        "distance",
        {"moved": "token by token", "transport": "W₂, tokens exchangeable"},
        "W₂ is smaller where tokens take the places of others.",
        "log",
    ),
    "memories": Heads(
        "Which heads are memories, and of which class?",
        "mass that holds 90 % of attention",
        "needed",
        "Class I above 1/2: averages. II above 1/8, III above 1/32. IV below: single tokens are retrieved.",
        "log",
        control=True,
    ),
    "first": Heads(
        "Which heads rest on the first token?",
        "attention on the first token",
        "first",
        "Averaged over the tokens.",
    ),
    "attraction": Heads(
        "Which heads attract, which repel?",
        "trace of VO / nuclear norm",
        "attraction",
        "1: what a token adds points along it (attractive). −1: against it (repulsive).",
    ),
    "closure": Heads(
        "How far is each head from its Gaussian closure?",
        "relative error",
        "closure",
        "0: attention sees the mean and the covariance only. 1: the closure is as wrong as the mean value.",
        "log",
    ),
    "separation": Heads(
        "How well do heads separate what they select?",
        "margin / largest margin",
        "separation",
        "Lead of the selected tokens over the others, as a share of what a support vector machine reaches.",
        "log",
    ),
}


PANELS = frozenset(name for name, of in DRAWN.items() if isinstance(of, Heads))
"""Figures that are small multiples, an axis for each head."""


def figures(*found: Diagnosis) -> dict[str, Figure]:
    """Name -> figure, for one diagnosis or for several beside each other."""
    made = {name: _lines(found, of) if isinstance(of, Lines) else _heads(found, of) for name, of in DRAWN.items()}
    made |= {
        "sensitivity": _sensitivity(found),
        "iterated": _iterated(found),
        "growth": _growth(found),
        "sampling": _sampling(found),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def _named(one: Diagnosis, words: str, found: Sequence[Diagnosis]) -> str:
    return words if len(found) == 1 else f"{one.model}, {one.tokens} tokens: {words}"


def _lines(found: Sequence[Diagnosis], of: Lines) -> Figure | None:
    series: list[Series] = []
    for one in found:
        x = np.arange(one.depth) + 1.0
        for name, words in of.columns.items():
            series.append(Series(_named(one, words, found), *_finite(x, one.column(name)), "line", role="measured"))
        if of.control and one.control:
            name = next(iter(of.columns))
            mixed = _finite(x, one.column(name, control=True))
            series.append(Series(_named(one, "weights shuffled", found), *mixed, "dashed", role="theory"))
    return _figure(of.title, "layer", of.ylabel, series, yscale=of.yscale, caption=of.caption)


def _heads(found: Sequence[Diagnosis], of: Heads) -> Figure | None:
    series: list[Series] = []
    for one in found:
        values, depth = one.column(of.column), np.arange(one.depth) + 1.0
        if values.ndim != 2 or not values.size:
            continue
        series += [
            Series(_named(one, f"head {i}", found), *_finite(depth, row), "line", role="measured")
            for i, row in enumerate(values.T, 1)
        ]
        series.append(
            Series(
                _named(one, "median of all heads", found), *_finite(depth, _medians(values)), "dashed", role="theory"
            )
        )
        if of.control and one.control:
            mixed = _finite(depth, _medians(one.column(of.column, control=True)))
            series.append(Series(_named(one, "median, weights shuffled", found), *mixed, "dashed", role="theory"))
    caption = f"{of.caption} A head has nothing to do with the heads of the same number in other layers."
    return _figure(of.title, "layer", of.ylabel, series, yscale=of.yscale, caption=caption)


def _medians(values: np.ndarray) -> np.ndarray:
    """Of each row, over what was measured."""
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else math.nan for row in values])


def _sensitivity(found: Sequence[Diagnosis]) -> Figure | None:
    series: list[Series] = []
    for one in found:
        if one.sensitivity:
            x = tuple(i + 1.0 for i in range(one.depth))
            mean, least, most = (tuple(row[key] or 0.0 for row in one.sensitivity) for key in ("mean", "least", "most"))
            series += [
                Series(_named(one, "mean", found), x, mean, "line", role="measured"),
                Series(_named(one, "least and most", found), x, least, "band", most, role="measured"),
            ]
    caption = "Distance between the clouds of two texts that differ in one token, relative to that at the entry."
    return _figure(
        "What does one token change?", "layer", "growth of the distance", series, yscale="log", caption=caption
    )


def _growth(found: Sequence[Diagnosis]) -> Figure | None:
    series: list[Series] = []
    for one in found:
        for layer, fit in one.exponents().items():
            assert one.sweep is not None  # no exponents otherwise
            n = tuple(float(length) for length in one.sweep["lengths"])
            constants = one.sweep["constants"]
            values = tuple(constants.get(layer, constants.get(str(layer))))
            low, high = fit.low, fit.high
            label = f"layer {layer + 1}: n^{fit.exponent:.2f} [{low:.2f}, {high:.2f}]"
            series.append(Series(_named(one, label, found), n, values, "points", role="measured"))
    if series:
        n = (min(series[0].x), max(series[0].x))
        start = min(min(entry.y) for entry in series)
        for power, words in ((0.25, "n^(1/4)"), (0.5, "√n, the worst case")):
            ends = tuple(start * (m / n[0]) ** power for m in n)
            series.append(Series(words, n, ends, "dashed", role="theory"))
    caption = "Pieces of the text of different lengths; the exponents are fitted, with 95 % intervals."
    return _figure(
        "How does attention change as the context grows?",
        "tokens in the context n",
        "local constant",
        series,
        xscale="log",
        yscale="log",
        caption=caption,
    )


def _iterated(found: Sequence[Diagnosis]) -> Figure | None:
    series: list[Series] = []
    for one in found:
        if one.iterated:
            x = tuple(float(i) for i in range(len(one.iterated)))
            depth, ends = (float(one.depth),) * 2, (min(0.0, *one.iterated), 1.0)
            series += [
                Series(
                    _named(one, "mean cosine of two tokens", found), x, tuple(one.iterated), "line", role="measured"
                ),
                Series(_named(one, "depth in training", found), depth, ends, "dashed", role="theory"),
            ]
    caption = "All layers of this model are one; applied again and again it moves tokens as an autonomous flow does."
    return _figure("And beyond the depth of the model?", "layers", "mean cosine", series, caption=caption)


def _sampling(found: Sequence[Diagnosis]) -> Figure | None:
    series: list[Series] = []
    for one in found:
        for layer, fit in one.exponents("sampling_exponents").items():
            assert one.sweep is not None  # no exponents otherwise
            n, errors = one.sweep["samples"], one.sweep["sampling"]
            label = f"layer {layer + 1}: n^{fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]"
            values = tuple(errors.get(layer, errors.get(str(layer))))
            series.append(Series(_named(one, label, found), tuple(map(float, n)), values, "line", role="measured"))
    if series:
        n = (min(series[0].x), max(series[0].x))
        start = max(entry.y[0] for entry in series)
        series.append(Series("n^(−1/2)", n, tuple(start * (m / n[0]) ** -0.5 for m in n), "dashed", role="theory"))
    return _figure(
        "How many tokens stand for the whole context?",
        "tokens drawn from the context n",
        "error of attention, relative",
        series,
        xscale="log",
        yscale="log",
        caption="Attention on n tokens drawn at random, against the whole. The mean-field rate is n^(−1/2).",
    )


def _finite(x: np.ndarray, y: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    good = np.isfinite(y)
    return tuple(map(float, x[good])), tuple(map(float, y[good]))


def _figure(
    title: str,
    xlabel: str,
    ylabel: str,
    series: list[Series],
    *,
    caption: str,
    xscale: Scale = "linear",
    yscale: Scale = "linear",
) -> Figure | None:
    drawn = tuple(entry for entry in series if entry.x)
    return Figure(title, xlabel, ylabel, drawn, xscale, yscale, caption=caption) if drawn else None


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
    gains = [row["mean"] if row["mean"] is not None else math.nan for row in one.sensitivity]
    columns = [entry for entry in (*layers, *heads) if np.isfinite(entry[0]).any()]
    if gains:
        columns.append((np.array(gains), "one token"))
    rows = [[float(values[i]) for values, _ in columns] for i in range(one.depth)]
    return [words for _, words in columns], rows
