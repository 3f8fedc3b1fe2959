"""HTML beside the widgets of apps: figures, matrices as images, small tables."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from measureformer.errors import ShapeError, need
from measureformer.explore.plot import legend, svg
from measureformer.figures.figure import Figure
from measureformer.figures.roles import CONTROL, INK, PALETTE
from measureformer.pages.markup import Markup, tag
from measureformer.pages.words import number


def picture(figure: Figure) -> Markup:
    """The figure with its legend and caption, and a description for screen readers.

    >>> from measureformer.figures.figure import Series
    >>> picture(Figure("Error", "n", "error", (Series("measured", [1, 2], [2, 1], role="measured"),)))[:26]
    '<figure class="mf-figure" '
    """
    caption = tag("figcaption", figure.caption, style="font-size: .9rem; color: #5D5D58")
    return tag("figure", svg(figure), legend(figure), caption, class_="mf-figure", style="margin: 0")


def heat(matrix: Any, words: str, *, low: float = 0.0, high: float = 1.0, width: str = "15rem") -> Markup:
    """A matrix as an image with one pixel per entry, from white at `low` to the first colour of the palette at `high`.

    >>> heat([[0.0, 1.0]], "two entries")[:30]
    '<img src="data:image/png;base6'
    """
    need("PIL", "explore")
    from PIL import Image

    entries = np.asarray(matrix, float)
    if entries.ndim != 2 or not entries.size:
        raise ShapeError(got=f"a matrix of shape {entries.shape}", need="(rows, columns)", do="Pass one matrix.")
    share = np.clip((np.nan_to_num(entries, nan=low) - low) / (high - low if high > low else 1.0), 0, 1)[..., None]
    color = np.array([int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)])
    stream = BytesIO()
    Image.fromarray((255 + share * (color - 255)).round().astype(np.uint8)).save(stream, "PNG")
    style = f"width: {width}; image-rendering: pixelated; border: 1px solid #333333"
    return tag(
        "img", src=f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}", alt=words, style=style
    )


def table(rows: Sequence[tuple[str, Any]]) -> Markup:
    """Names and values in rows; numbers are written as in the atlas.

    >>> table([("energy", 0.25)])
    '<table class="mf-table" ...><tr><th ...>energy</th><td ...>0.25</td></tr></table>'
    """
    left = "text-align: left; font-weight: 400; padding: .1rem 1.2rem .1rem 0; color: #5D5D58"
    right = "text-align: left; padding: .1rem 0; font-variant-numeric: tabular-nums"
    lines = [
        tag("tr", tag("th", name, scope="row", style=left), tag("td", _written(value), style=right))
        for name, value in rows
    ]
    return tag("table", *lines, class_="mf-table", style="width: auto; margin: 0 0 .6rem")


def key(entries: Sequence[tuple[int | str, str]]) -> Markup:
    """A legend of a widget: pairs of a colour of the palette, or "ink", and words.

    >>> "first" in key([(0, "first"), ("ink", "theory")])
    True
    """
    items: list[Markup] = []
    for color, words in entries:
        shade = INK[0] if isinstance(color, str) else PALETTE[color]
        spot = f"display: inline-block; width: .8em; height: .8em; margin-right: .35em; background: {shade}"
        items.append(tag("span", tag("span", style=spot), words, style="margin-right: 1.2em; white-space: nowrap"))
    return tag("p", *items, style="margin: .3rem 0; line-height: 1.5")


def refusal(error: Exception) -> Markup:
    """A refusal as a sentence on the page, in place of the result."""
    style = f"border-left: 3px solid {CONTROL[0]}; padding: .2rem .8rem; margin: .5rem 0"
    return tag("p", str(error), style=style, role="alert", class_="mf-refusal")


def shown(*parts: Markup) -> str:
    """Parts one below the other, as a plain string for marimo.

    >>> shown(table([]), key([]))[:12]
    '<div><table '
    """
    return str(tag("div", *parts))


def halves(left: Any, right: Any) -> Any:
    """Two columns: a widget, and its results."""
    import marimo

    return marimo.hstack([left, right], widths=[1, 1], gap=1.5, align="start")


def _written(value: Any) -> str:
    if isinstance(value, (list, tuple, np.ndarray)):
        return ", ".join(map(_written, value))
    return number(float(value)) if isinstance(value, (int, float, np.number)) else str(value)
