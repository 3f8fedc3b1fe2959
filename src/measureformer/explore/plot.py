"""Live figures: SVG of a `Figure` in a millisecond, where Matplotlib takes a fifth of a second.

Looks follow from the roles of the series, as in the atlas; the browser sets the letters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from measureformer.errors import OptionError
from measureformer.figures.figure import Figure, Scale, Series
from measureformer.figures.roles import Looks
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import number, one_line

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 62, 468, 30, 228
CORNERS = {"s": (4, 0.25), "^": (3, 1.0), "D": (4, 0.0), "v": (3, 0.0), "h": (6, 0.0), "p": (5, 1.0)}
"""Corners of a marker, and its turn in units of π; other markers are round."""


def svg(figure: Figure) -> Markup:
    """The figure as an SVG element, without its legend; bars and bands are refused.

    >>> from measureformer.figures.figure import Series
    >>> svg(Figure("Error", "n", "error", (Series("measured", (1.0, 2.0), (2.0, 1.0), role="measured"),)))[:24]
    '<svg class="mf-plot" vie'
    """
    curves, looks = figure.series, Looks()
    if other := [curve.style for curve in curves if curve.style in ("bars", "band")]:
        raise OptionError(got=f"a series of {other[0]}", need="lines or points", do="Use mf.save_figure.")
    x = _Axis([v for curve in curves for v in curve.x], figure.xscale, LEFT, RIGHT)
    y = _Axis([v for curve in curves for v in curve.y], figure.yscale, BOTTOM, TOP)
    if figure.equal:
        unit = max(abs((axis.high - axis.low) / (axis.end - axis.start)) for axis in (x, y))
        x.stretch(unit)
        y.stretch(unit)
    middle = f"{(TOP + BOTTOM) / 2:.0f}"
    words = (
        tag("text", one_line(figure.title), x=f"{LEFT}", y="17", font_size="13.5"),
        tag("text", one_line(figure.xlabel), x=f"{(LEFT + RIGHT) / 2:.0f}", y=f"{HEIGHT - 9}", text_anchor="middle"),
        tag(
            "text",
            one_line(figure.ylabel),
            x="13",
            y=middle,
            text_anchor="middle",
            transform=f"rotate(-90 13 {middle})",
        ),
    )
    drawn: list[Markup] = []
    for series in curves:
        step = 1 if series.style == "points" else max(1, len(series.x) // 8)
        drawn.append(_drawn(series, looks, x(series.x), y(series.y), slice(None, None, step)))
    return _svg(f"0 0 {WIDTH} {HEIGHT}", "mf-plot", figure.in_words(), "100%", _ground(x, y), *words, *drawn)


def legend(figure: Figure) -> Markup:
    """The labels of several series beside samples of their looks, as HTML that wraps; empty for one series."""
    looks, items = Looks(), list[Markup]()
    for series in figure.series if len(figure.series) > 1 else ():
        sample = _drawn(series, looks, np.array([2.0, 13.0, 24.0]), np.full(3, 6.0), slice(1, 2))
        shown = _svg("0 0 26 12", None, series.style, "26px", sample)
        items.append(
            tag("span", shown, f" {one_line(series.label)}", style="display: inline-block; margin-right: 1.2em")
        )
    return tag("div", *items, style="font-size: .9rem")


def _svg(box: str, name: str | None, words: str, width: str, *parts: Markup) -> Markup:
    font = "font: 12px 'STIX Two Text', STIXGeneral, 'DejaVu Serif', Georgia, serif"
    style = f"width: {width}; max-width: 34rem; height: auto; background: #FFFFFF; {font}"
    return tag("svg", *parts, class_=name, viewBox=box, role="img", aria_label=words, style=style)


class _Axis:
    """From numbers to pixels: not-a-number where a number has no place."""

    def __init__(self, values: Sequence[float], scale: Scale, start: float, end: float) -> None:
        given = np.array(values)
        self.log, self.start, self.end = scale == "log" and bool((given > 0).any()), start, end
        moved = self._moved(given)
        moved = moved[np.isfinite(moved)]
        low, high = (float(moved.min()), float(moved.max())) if len(moved) else (0.0, 1.0)
        room = 0.04 * (high - low) if high - low > 1e-12 * max(1.0, abs(high)) else 0.5
        self.low, self.high = low - room, high + room

    def _moved(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(values) if self.log else values

    def __call__(self, values: Sequence[float]) -> np.ndarray:
        share = (self._moved(np.array(values)) - self.low) / (self.high - self.low)
        return np.where(np.isfinite(share), self.start + share * (self.end - self.start), np.nan)

    def stretch(self, unit: float) -> None:
        """Let a pixel stand for `unit`, with room on both sides."""
        middle, half = (self.low + self.high) / 2, abs(self.end - self.start) * unit / 2
        self.low, self.high = middle - half, middle + half

    def ticks(self) -> list[tuple[str, float]]:
        """Round numbers as words, and their pixels."""
        low, high = self.low, self.high
        if self.log:
            powers = range(math.floor(low), math.floor(high) + 1, max(1, math.ceil((high - low) / 6)))
            values = [m * 10.0**k for k in powers for m in ((1, 2, 5) if high - low < 2 else (1,))]
        else:
            power = 10 ** math.floor(math.log10((high - low) / 5))
            step = next(m * power for m in (1, 2, 5, 10) if m * power >= (high - low) / 5)
            values = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        ends = sorted((self.start, self.end))
        places = zip(values, self(values), strict=True)
        return [(number(value, 4), float(at)) for value, at in places if ends[0] <= at <= ends[1]]


def _ground(x: _Axis, y: _Axis) -> Markup:
    parts = [tag("path", d=f"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}", stroke="#333333", fill="none")]
    for words, at in x.ticks():
        parts.append(tag("path", d=f"M{at:.1f},{BOTTOM}V{TOP}", stroke="#E3E3E3"))
        parts.append(tag("text", words, x=f"{at:.1f}", y=f"{BOTTOM + 15}", text_anchor="middle"))
    for words, at in y.ticks():
        parts.append(tag("path", d=f"M{LEFT},{at:.1f}H{RIGHT}", stroke="#E3E3E3"))
        parts.append(tag("text", words, x=f"{LEFT - 6}", y=f"{at + 4:.1f}", text_anchor="end"))
    return join(*parts)


def _drawn(series: Series, looks: Looks, x: np.ndarray, y: np.ndarray, marks: slice) -> Markup:
    """A curve, with gaps at missing values, or a cloud; with markers at `marks`."""
    look, finite, parts = looks.next(series), np.isfinite(x + y), list[Markup]()
    if series.style != "points":
        begins = finite & ~np.append(False, finite[:-1])
        places = zip(x[finite], y[finite], begins[finite], strict=True)
        path = "".join(f"{'M' if begin else 'L'}{a:.1f},{b:.1f}" for a, b, begin in places)
        dash = None if isinstance(look.dash, str) else " ".join(f"{1.8 * part:.1f}" for part in look.dash[1])
        parts.append(tag("path", d=path, stroke=look.color, stroke_width="1.8", fill="none", stroke_dasharray=dash))
    if series.style == "points" or look.marker != "None":
        count, turn = CORNERS.get(look.marker, (16, 0.0))
        angle = math.pi * (2 * np.arange(count) / count + turn)
        corners = 4.2 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        for a, b in np.stack([x, y], axis=1)[marks][finite[marks]]:
            outline = "L".join(f"{a + u:.1f},{b + v:.1f}" for u, v in corners)
            parts.append(tag("path", d=f"M{outline}Z", fill=look.color))
    return join(*parts)
