"""Figure data to vector graphics.

What colours, dashes and markers mean is said in `roles`. Text from results is never read as mathematics, so that no
string can break the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from measureformer.figures.axes import LARGEST, LEAST, set_scales, shaped
from measureformer.figures.figure import Figure, Series
from measureformer.figures.lettering import write_legend, write_words
from measureformer.figures.roles import INK, MARKERS, Look, Looks
from measureformer.figures.style import style

if TYPE_CHECKING:  # Matplotlib is optional
    from measureformer.figures.canvas import Drawing

WIDTH, _HEIGHT = 5.0, 3.1
_ROW = 0.17
"""Height of a row of text in inches; `_HEIGHT` has room for title, numbers, label and two rows of legend."""
_USUAL_ROWS = 5
_MARKS = 8
"""Markers on a line."""
_MARKERS_SEEN = (*MARKERS["measured"], *MARKERS["measure"], *MARKERS["control"])


def blank(width: float, height: float) -> Drawing:
    """An empty drawing, in inches; to be made and filled inside `style()`."""
    from measureformer.figures.canvas import Drawing

    return Drawing(figsize=(width, height), layout="constrained", facecolor="white")


def fit_height(drawing: Any, rows: int, extra: float = 0.0) -> None:
    """Give words room of their own and not that of the data."""
    drawing.set_figheight(_HEIGHT + _ROW * max(0, rows - _USUAL_ROWS) + extra)


def draw(figure: Figure) -> Drawing:
    """The figure as a `matplotlib.figure.Figure`, ready for `to_svg` and `to_pdf` or for changes by hand."""
    with style():
        drawing = blank(WIDTH, _HEIGHT)
        axes: Any = drawing.add_subplot()
        set_scales(axes, figure)
        if axes.get_xscale() == "linear" and counts(figure):
            axes.xaxis.get_major_locator().set_params(integer=True)
        bars = _Bars([series for series in figure.series if series.style == "bars"], axes.get_yscale() == "log")
        looks = Looks()
        lines = [series for series in figure.series if series.style == "line"]
        handles: list[Any] = []
        labels = [series.label for series in figure.series]
        absent: list[Any] = []
        for series in figure.series:
            look = looks.next(series)
            x = bars.places(series) if series.style == "bars" else _drawable(series.x)
            handles.append(
                bars.draw(axes, series, look) if series.style == "bars" else curve(axes, series, look, len(lines) > 1)
            )
            absent.extend(_mark_absent(axes, series, x, look.color))
        if absent:
            handles.append(_zero_mark(axes, [], INK[1])[0])
            labels.append("zero or less, below the axis")
        rows = write_words(axes, figure)
        if len(labels) > 1:
            rows += write_legend(drawing, handles, labels)
        fit_height(drawing, rows, shaped(axes) if figure.equal else 0.0)
        return drawing


def counts(figure: Figure) -> bool:
    """Whether the horizontal axis counts something, layers for instance: lines over three whole numbers or more."""
    lines = [series.x for series in figure.series if series.style == "line"]
    return bool(lines) and all(len(x) >= 3 and all(float(at).is_integer() for at in x) for x in lines)


def _drawable(values: Sequence[float]) -> list[float]:
    """The same numbers, with zero for those that are too small and not-a-number for those that are too large."""
    return [math.nan if not abs(v) <= LARGEST else v if abs(v) >= LEAST else 0.0 for v in values]


def _positive(values: Sequence[float], scale: str) -> list[float]:
    """On a logarithmic axis the numbers that have no place on it become not-a-number, which is not drawn."""
    return [v if v > 0 or scale != "log" else math.nan for v in _drawable(values)]


def _decade_below(values: Sequence[float]) -> float:
    """The power of ten that leaves the least positive number visible above it; zero if there is none."""
    positive = [value for value in _drawable(values) if value > 0]
    return 10.0 ** (math.floor(math.log10(min(positive))) - 1) if positive else 0.0


def _band(axes: Any, series: Series, color: str) -> Any:
    edges = (*series.y, *series.y2)
    # an edge at zero reaches down to where the axis ends
    floor = _decade_below(edges) if axes.get_yscale() == "log" else -math.inf
    x = _positive(series.x, axes.get_xscale())
    low, high = ([max(v, floor) for v in _drawable(edge)] for edge in (series.y, series.y2))
    return axes.fill_between(x, low, high, color=color, alpha=0.22, linewidth=0, zorder=1.5)


def curve(axes: Any, series: Series, look: Look, marked: bool) -> Any:
    """A band, points or a line; lines carry a few markers where several of them must be told apart without colours."""
    if series.style == "band":
        return _band(axes, series, look.color)
    x, y = _positive(series.x, axes.get_xscale()), _positive(series.y, axes.get_yscale())
    if series.style == "points":
        # thousands of markers as vectors make a file that no viewer opens gladly
        many = len(x) > 3000
        size = 1.6 if many else 4.5 if len(x) <= 100 else 3.0
        marker = "o" if look.role == "theory" else look.marker
        style = {"linestyle": "none", "marker": marker, "markersize": size, "markeredgewidth": 0}
        return axes.plot(x, y, color=look.color, zorder=3, rasterized=many, **style)[0]
    style = {"linestyle": look.dash, "zorder": 2.5 if look.role == "theory" else 2}
    if series.style == "line" and (marked or look.role == "control") and x:
        # markers of different curves at different places, so that curves that coincide show both
        step = max(1, len(x) // _MARKS)
        first = (_MARKERS_SEEN.index(look.marker) * step // 4) % step if look.marker in _MARKERS_SEEN else 0
        style |= {"marker": look.marker, "markevery": (first, step), "markersize": 4.0, "markeredgewidth": 0}
    return axes.plot(x, y, color=look.color, **style)[0]


@dataclass(frozen=True)
class _Bars:
    """The bar series of a figure, which stand beside each other around each position."""

    series: Sequence[Series]
    log: bool

    def width(self) -> float:
        places = sorted({x for series in self.series for x in _drawable(series.x) if x == x})
        return 0.72 * min((b - a for a, b in pairwise(places)), default=1.0) / len(self.series)

    def places(self, series: Series) -> list[float]:
        index = next(i for i, other in enumerate(self.series) if other is series)
        return [x + (index - (len(self.series) - 1) / 2) * self.width() for x in _drawable(series.x)]

    def foot(self) -> float:
        """On a logarithmic axis no foot is natural; this one leaves all bars visible."""
        return _decade_below([y for series in self.series for y in series.y]) if self.log else 0.0

    def draw(self, axes: Any, series: Series, look: Look) -> Any:
        foot = self.foot()
        tops = _positive(series.y, axes.get_yscale())
        # hatches are drawn in the colour of edges
        hatch = look.hatch if len(self.series) > 1 else ""
        style = {"width": 0.92 * self.width(), "facecolor": look.color, "linewidth": 0, "zorder": 2}
        style |= {"hatch": hatch, "edgecolor": "white"} if hatch else {}
        return axes.bar(self.places(series), [top - foot for top in tops], bottom=foot, **style)


def _mark_absent(axes: Any, series: Series, x: Sequence[float], color: str) -> list[Any]:
    """On a logarithmic axis zero has no place: mark it at the edge instead of leaving it out."""
    at = [place for place, y in zip(x, _drawable(series.y), strict=True) if y <= 0]
    if not at or axes.get_yscale() != "log" or series.style == "band":
        return []
    return _zero_mark(axes, at, color)


def _zero_mark(axes: Any, at: Sequence[float], color: str) -> list[Any]:
    style = {"linestyle": "none", "marker": "v", "markerfacecolor": "white", "clip_on": False, "zorder": 5}
    marks = axes.plot(at, [0.0] * len(at), color=color, transform=axes.get_xaxis_transform(), **style)
    marks[0].set_in_layout(False)
    return marks


def settle(drawing: Drawing) -> Drawing:
    """The same drawing with its layout computed once, for all the formats that it is then saved in."""
    drawing.draw_without_rendering()
    drawing.set_layout_engine("none")
    return drawing


def to_svg(drawing: Drawing) -> bytes:
    """The drawing as SVG, with text as outlines; the same drawing gives the same bytes."""
    return drawing.to_bytes("svg")


def to_pdf(drawing: Drawing) -> bytes:
    """The drawing as PDF with embedded fonts; the same drawing gives the same bytes."""
    return drawing.to_bytes("pdf")
