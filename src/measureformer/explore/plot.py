"""Figures while somebody drags: the data and the look of the atlas, written as SVG in a millisecond.

Matplotlib sets every letter and takes a fifth of a second for it, which is too long between two moves of a hand. Here
the browser sets the letters. Curves, dashed curves and points are drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from measureformer.errors import OptionError
from measureformer.figures.figure import Figure, Role, Scale
from measureformer.figures.roles import COLOURS
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import number, one_line

WIDTH, HEIGHT = 480.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 30.0, 42.0
ROW = 18.0
LIVE = {"line", "dashed", "points"}


def svg(figure: Figure) -> Markup:
    """The figure as an SVG element. Bars and bands are refused: apps have none.

    >>> from measureformer.result import Series
    >>> svg(Figure("Error", "n", "error", (Series("measured", (1.0, 2.0), (2.0, 1.0), role="measured"),)))[:24]
    '<svg class="mf-plot" vie'
    """
    curves = figure.series
    if other := [curve.style for curve in curves if curve.style not in LIVE]:
        raise OptionError(
            got=f"a series of {other[0]}", need="lines, dashed lines or points", do="Use report.figure.draw."
        )
    x = _Axis([v for curve in curves for v in curve.x], figure.xscale, LEFT, WIDTH - RIGHT)
    y = _Axis([v for curve in curves for v in curve.y], figure.yscale, HEIGHT - BOTTOM, TOP)
    if figure.equal:
        unit = min(x.unit(), y.unit())
        x.shrink(unit)
        y.shrink(unit)
    parts = [_ground(x, y), _words(figure)]
    seen: Counter[Role] = Counter()
    legend: list[Markup] = []
    for curve in curves:
        # labels do not decide: in an app the colours are those of the points beside the figure
        role = curve.role
        count, dashed = seen[role], curve.style == "dashed"
        seen[role] += 1
        color = COLOURS[role][count % len(COLOURS[role])]
        places = [(x(a), y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        parts.append(_marks(places, color, count) if curve.style == "points" else _line(places, color, dashed))
        legend.append(_entry(curve.label, color, curve.style, count))
    rows = _rows(legend, [curve.label for curve in curves]) if len(curves) > 1 else []
    height = HEIGHT + ROW * len(rows) + 4 * bool(rows)
    for i, row in enumerate(rows):
        shifted = (tag("g", mark, transform=f"translate({at:.0f},{HEIGHT + 10 + ROW * i:.0f})") for at, mark in row)
        parts.extend(shifted)
    words = f"{figure.title}. {figure.ylabel} against {figure.xlabel}: {'; '.join(c.label for c in curves)}."
    return tag(
        "svg",
        *parts,
        class_="mf-plot",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=one_line(words),
        style="width: 100%; max-width: 34rem; height: auto; background: #FFFFFF; "
        "font: 12px 'STIX Two Text', STIXGeneral, 'DejaVu Serif', Georgia, serif",
    )


class _Axis:
    """From numbers to pixels, with round numbers to write below."""

    def __init__(self, values: Sequence[float], scale: Scale, start: float, end: float) -> None:
        good = [v for v in values if math.isfinite(v) and (scale != "log" or v > 0)]
        # without a positive number a logarithmic axis has no place
        self.log = scale == "log" and bool(good)
        self.start, self.end = start, end
        moved = [math.log10(v) for v in good] if self.log else good
        low, high = (min(moved), max(moved)) if moved else (0.0, 1.0)
        if high - low < 1e-12 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        room = 0.04 * (high - low)
        self.low, self.high = low - room, high + room

    def __call__(self, value: float) -> float | None:
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        at = math.log10(value) if self.log else value
        return self.start + (at - self.low) / (self.high - self.low) * (self.end - self.start)

    def unit(self) -> float:
        """Pixels from 0 to 1."""
        return abs(self.end - self.start) / (self.high - self.low)

    def shrink(self, unit: float) -> None:
        """Make a unit that short, with room on both sides."""
        middle, half = (self.low + self.high) / 2, abs(self.end - self.start) / unit / 2
        self.low, self.high = middle - half, middle + half

    def ticks(self) -> list[float]:
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / 6))
            digits = (1, 2, 5) if self.high - self.low < 2 else (1,)
            powers = range(math.floor(self.low), math.floor(self.high) + 1, step)
            return [m * 10.0**k for k in powers for m in digits if self.low <= k + math.log10(m) <= self.high]
        low, high = self.low, self.high
        rough = (high - low) / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
        return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _ground(x: _Axis, y: _Axis) -> Markup:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts: list[Markup] = []
    for value in x.ticks():
        at = x(value)
        parts.append(tag("path", d=f"M{at:.1f},{bottom}V{TOP}", stroke="#E3E3E3", fill="none"))
        parts.append(tag("text", number(value, 4), x=f"{at:.1f}", y=f"{bottom + 15}", text_anchor="middle"))
    for value in y.ticks():
        at = y(value) or 0.0
        parts.append(tag("path", d=f"M{LEFT},{at:.1f}H{right}", stroke="#E3E3E3", fill="none"))
        parts.append(tag("text", number(value, 4), x=f"{LEFT - 6}", y=f"{at + 4:.1f}", text_anchor="end"))
    parts.append(tag("path", d=f"M{LEFT},{TOP}V{bottom}H{right}", stroke="#333333", fill="none"))
    return join(*parts)


def _words(figure: Figure) -> Markup:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f"rotate(-90 13 {middle:.0f})"
    return join(
        tag("text", one_line(figure.title), x=f"{LEFT}", y="17", font_size="13.5"),
        tag(
            "text", one_line(figure.xlabel), x=f"{(LEFT + WIDTH - RIGHT) / 2}", y=f"{HEIGHT - 9}", text_anchor="middle"
        ),
        tag("text", one_line(figure.ylabel), x="13", y=f"{middle:.0f}", text_anchor="middle", transform=turned),
    )


def _line(places: Sequence[tuple[float | None, float | None]], color: str, dashed: bool) -> Markup:
    path, down = [], False
    for a, b in places:
        # a curve has a gap where there is no number
        if a is None or b is None:
            down = False
            continue
        path.append(f"{'L' if down else 'M'}{a:.1f},{b:.1f}")
        down = True
    dash = "6 3.5" if dashed else None
    return tag("path", d="".join(path), stroke=color, stroke_width="1.8", fill="none", stroke_dasharray=dash)


def _marks(places: Sequence[tuple[float | None, float | None]], color: str, count: int) -> Markup:
    good = [(a, b) for a, b in places if a is not None and b is not None]
    if count % 2:
        squares = "".join(f"M{a - 3.6:.1f},{b - 3.6:.1f}h7.2v7.2h-7.2Z" for a, b in good)
        return tag("path", d=squares, fill=color)
    return join(*(tag("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r="3.8", fill=color) for a, b in good))


def _entry(label: str, color: str, style: str, count: int) -> Markup:
    mark = (
        _marks([(13.0, -4.0)], color, count)
        if style == "points"
        else _line([(2.0, -4.0), (24.0, -4.0)], color, style == "dashed")
    )
    return join(mark, tag("text", one_line(label), x="30", y="0"))


def _rows(entries: Sequence[Markup], labels: Sequence[str]) -> list[list[tuple[float, Markup]]]:
    """Entries of the legend in as few rows as their widths allow."""
    rows: list[list[tuple[float, Markup]]] = [[]]
    at = LEFT
    for entry, label in zip(entries, labels, strict=True):
        width = 48 + 6.2 * len(one_line(label))
        if rows[-1] and at + width > WIDTH:
            rows.append([])
            at = LEFT
        rows[-1].append((at, entry))
        at += width
    return rows
