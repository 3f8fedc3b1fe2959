"""A diagnosis, or two, as figures: depth on the horizontal axis, heads as points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from measureformer.lens._diagnose import Diagnosis
from measureformer.result import Figure, Scale, Series


def figures(*found: Diagnosis) -> dict[str, Figure]:
    """Name -> figure, for one diagnosis or for several beside each other."""
    made = {
        "lipschitz": _lines(
            found,
            "How Lipschitz is attention on this text?",
            "local constant",
            {"lower": "attained", "upper": "certified bound"},
            yscale="log",
            caption="The constant of the attention of a layer, without the residual stream, in L² of the tokens.",
        ),
        "heads": _heads(
            found,
            "How Lipschitz is each head?",
            "local constant, attained",
            "head_lower",
            yscale="log",
            caption="One point for each head.",
        ),
        "size": _lines(
            found,
            "How large are the tokens?",
            "norm",
            {"size": "root mean square", "radius": "largest"},
            yscale="log",
            caption="Norms after each layer. A few tokens are often much larger than the others.",
        ),
        "rank": _lines(
            found,
            "Does the cloud lose rank?",
            "effective rank",
            {"rank": "effective rank"},
            yscale="log",
            caption="e^entropy of the eigenvalues of the covariance: the number of directions that are in use.",
        ),
        "cosine": _lines(
            found,
            "Do tokens cluster?",
            "mean cosine",
            {"cosine": "mean cosine of two tokens"},
            caption="1: all tokens point the same way. 0: no common direction.",
        ),
        "moved": _lines(
            found,
            "How far does a layer move the cloud?",
            "distance",
            {"moved": "token by token", "transport": "W₂, tokens exchangeable"},
            yscale="log",
            caption="W₂ is smaller where tokens take the places of others.",
        ),
        "sparsity": _heads(
            found,
            "Which heads are sparse?",
            "tokens that hold 90 % of the attention",
            "k90",
            yscale="log",
            caption="One point for each head, averaged over the tokens.",
        ),
        "first": _heads(
            found,
            "Which heads rest on the first token?",
            "attention on the first token",
            "first",
            caption="One point for each head, averaged over the tokens.",
        ),
        "attraction": _heads(
            found,
            "Which heads attract, which repel?",
            "trace of VO / nuclear norm",
            "attraction",
            caption="1: what a token adds points along it (attractive). −1: against it (repulsive). Heads as points.",
        ),
        "closure": _heads(
            found,
            "How far is each head from its Gaussian closure?",
            "relative error",
            "closure",
            yscale="log",
            caption="0: attention sees the mean and the covariance only. 1: the closure is as wrong as the mean value.",
        ),
        "sensitivity": _sensitivity(found),
        "growth": _growth(found),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def _named(one: Diagnosis, words: str, found: Sequence[Diagnosis]) -> str:
    return words if len(found) == 1 else f"{one.model}, {one.tokens} tokens: {words}"


def _lines(
    found: Sequence[Diagnosis],
    title: str,
    ylabel: str,
    columns: dict[str, str],
    *,
    caption: str,
    yscale: Scale = "linear",
) -> Figure | None:
    series = [
        Series(_named(one, words, found), *_finite(np.arange(one.depth) + 1.0, one.column(name)), "line")
        for one in found
        for name, words in columns.items()
    ]
    return _figure(title, "layer", ylabel, series, yscale=yscale, caption=caption)


def _heads(
    found: Sequence[Diagnosis], title: str, ylabel: str, name: str, *, caption: str, yscale: Scale = "linear"
) -> Figure | None:
    series: list[Series] = []
    for one in found:
        values = one.column(name)
        if values.ndim != 2 or not values.size:
            continue
        # heads of a layer stand side by side
        offsets = (np.arange(values.shape[1]) + 0.5) / values.shape[1] - 0.5
        x = (np.arange(one.depth)[:, None] + 1 + 0.7 * offsets).reshape(-1)
        series.append(Series(_named(one, "heads", found), *_finite(x, values.reshape(-1)), "points"))
        middle = np.array([np.median(row) for row in values])
        series.append(Series(_named(one, "median", found), *_finite(np.arange(one.depth) + 1.0, middle), "line"))
    return _figure(title, "layer", ylabel, series, yscale=yscale, caption=caption)


def _sensitivity(found: Sequence[Diagnosis]) -> Figure | None:
    series: list[Series] = []
    for one in found:
        if one.sensitivity:
            x = tuple(i + 1.0 for i in range(one.depth))
            mean, least, most = (tuple(row[key] or 0.0 for row in one.sensitivity) for key in ("mean", "least", "most"))
            series += [
                Series(_named(one, "mean", found), x, mean, "line"),
                Series(_named(one, "least and most", found), x, least, "band", most),
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
            series.append(Series(_named(one, label, found), n, values, "points"))
    if series:
        n = (min(series[0].x), max(series[0].x))
        start = min(min(entry.y) for entry in series)
        for power, words in ((0.25, "n^(1/4)"), (0.5, "√n, the worst case")):
            ends = tuple(start * (m / n[0]) ** power for m in n)
            series.append(Series(words, n, ends, "dashed"))
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
    ("first", "on first"),
    ("attraction", "attraction"),
    ("closure", "closure error"),
)


def table(one: Diagnosis) -> tuple[list[str], list[list[float]]]:
    """Headings and rows, a row per layer: numbers of the layer, then medians over its heads."""
    layers = [(one.column(name), words) for name, words in TABLE]
    heads = [(np.median(one.column(name), axis=1), words) for name, words in HEAD_TABLE]
    gains = [row["mean"] if row["mean"] is not None else math.nan for row in one.sensitivity]
    columns = [entry for entry in (*layers, *heads) if np.isfinite(entry[0]).any()]
    if gains:
        columns.append((np.array(gains), "one token"))
    rows = [[float(values[i]) for values, _ in columns] for i in range(one.depth)]
    return [words for _, words in columns], rows
