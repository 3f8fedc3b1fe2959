"""Figure data to vector graphics, in one style made for print: bundled fonts, the same every time.

What colours, dashes and markers mean is said in `language`. Text from results is never read as mathematics, so that no
string can break the drawing; the labels of numerical axes are Matplotlib's own and are typeset.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any

from measureformer.errors import need
from measureformer.figures.figure import Figure, Scale, Series
from measureformer.figures.roles import INK, MARKERS, Look, Looks
from measureformer.pages.words import one_line

_WIDTH, _HEIGHT = 5.0, 3.1
_ROW = 0.17
"""Height of a row of text in inches; `_HEIGHT` has room for title, numbers, label and two rows of legend."""
_USUAL_ROWS = 5
_LEADING = 1.2
_ACROSS, _DOWN, _TALLER = 4.3, 2.1, 1.2
"""About the width and the height of the axes, and what may be added to the height for a picture of the plane."""
_SLENDER = 4.0
_MARKS = 8
"""Markers on a line."""
_MARKERS_SEEN = (*MARKERS["measured"], *MARKERS["measure"], *MARKERS["control"])
_LEAST, _LARGEST = 1e-100, 1e100
"""Sizes of numbers that are drawn; beyond them the arithmetic of axis limits overflows."""

_STYLE: dict[str, Any] = {
    # all come with Matplotlib: the figure is the same on every machine
    "font.family": ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"],
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#333333",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 4),
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.6,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0.2,
    # at least as high as any label, so that the rows of all columns align
    "legend.handleheight": 1.3,
    "legend.labelspacing": 0.2,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    "path.simplify": True,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "measureformer",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    # that of SVG and PDF: what was measured for the layout serves them
    "figure.dpi": 72,
    "text.usetex": False,
}


@contextmanager
def style() -> Generator[None, None, None]:
    matplotlib = need("matplotlib", "atlas")
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # a character that no font has is drawn as a box, and a number that has no place is not drawn: answer enough
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="matplotlib")
        yield


def draw(figure: Figure) -> Any:
    """The figure as a `matplotlib.figure.Figure`, ready for `to_svg` and `to_pdf` or for changes by hand."""
    with style():
        canvas = need("matplotlib.figure", "atlas")
        drawing = canvas.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained", facecolor="white")
        axes = drawing.add_subplot()
        # named positions are 0, 1, 2, …, which no logarithmic axis has
        xscale = "linear" if figure.xticks else figure.xscale
        set_scale(axes, "x", xscale, [x for series in figure.series for x in series.x])
        if xscale == "linear" and counts(figure):
            axes.xaxis.get_major_locator().set_params(integer=True)
        set_scale(axes, "y", figure.yscale, [y for series in figure.series for y in (*series.y, *series.y2)])
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
        rows = _write_words(axes, figure)
        if len(labels) > 1:
            rows += write_legend(drawing, handles, labels)
        # words take room of their own and not that of the data
        height = _HEIGHT + _ROW * max(0, rows - _USUAL_ROWS)
        drawing.set_figheight(height + _shaped(axes) if figure.equal else height)
        return drawing


def _shaped(axes: Any) -> float:
    """Gives both axes the same unit; returns the inches that data which are higher than wide need in addition."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    ratio = (high - low) / (right - left)
    # of a cloud that is nearly a line nothing could be seen in axes of its shape: they get room instead
    axes.set_aspect("equal", adjustable="box" if 1 / _SLENDER < ratio < _SLENDER else "datalim")
    return min(_TALLER, max(0.0, _ACROSS * ratio - _DOWN))


def counts(figure: Figure) -> bool:
    """Whether the horizontal axis counts something, layers for instance: lines over three whole numbers or more."""
    lines = [series.x for series in figure.series if series.style == "line"]
    return bool(lines) and all(len(x) >= 3 and all(float(at).is_integer() for at in x) for x in lines)


def set_scale(axes: Any, axis: str, scale: Scale, values: Sequence[float]) -> None:
    """A logarithmic axis needs a positive number; without one the axis stays linear."""
    if scale == "log" and any(_LEAST <= value <= _LARGEST for value in values):
        getattr(axes, f"set_{axis}scale")("log", nonpositive="mask")


def _drawable(values: Sequence[float]) -> list[float]:
    """The same numbers, with zero for those that are too small and not-a-number for those that are too large."""
    return [math.nan if not abs(v) <= _LARGEST else v if abs(v) >= _LEAST else 0.0 for v in values]


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


def _write_words(axes: Any, figure: Figure) -> int:
    """Title, labels and names of positions; returns the rows of text above and below the axes."""
    title, xlabel = wrapped(figure.title, 64), wrapped(figure.xlabel, 64)
    style = {"parse_math": False, "linespacing": _LEADING}
    axes.set_title(title, **style)
    axes.set_xlabel(xlabel, **style)
    axes.set_ylabel(wrapped(figure.ylabel, 38), **style)
    names = _name_positions(axes, figure.xticks) if figure.xticks else 1
    return names + sum(text.count("\n") + 1 for text in (title, xlabel))


def _name_positions(axes: Any, names: Sequence[str]) -> int:
    """Names below the positions 0, 1, …, line by line: Matplotlib would not put several lines on common baselines."""
    rows = [wrapped(name, max(6, 66 // len(names)), lines=3).split("\n") for name in names]
    axes.set_xticks(range(len(rows)), [lines[0] for lines in rows], parse_math=False, va="baseline")
    axes.tick_params(axis="x", length=0, pad=11)
    axes.grid(visible=False, axis="x")
    most = max(map(len, rows))
    axes.xaxis.labelpad += 11 * (most - 1)
    style = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "ha": "center", "fontsize": 9}
    for place, lines in enumerate(rows):
        for i, line in enumerate(lines[1:], start=2):
            axes.annotate(line, (place, 0), xytext=(0, -11 * i), parse_math=False, annotation_clip=False, **style)
    return most


def wrapped(text: str, width: int, lines: int = 2) -> str:
    return "\n".join(textwrap.wrap(one_line(text), width, max_lines=lines, placeholder=" …"))


def write_legend(drawing: Any, handles: list[Any], labels: list[str]) -> int:
    """Below the axes, where it cannot cover data; returns its rows of text."""
    names = [wrapped(label, 60) for label in labels]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = max(1, min(len(names), 84 // (longest + 8)))
    # placeholders first: a label that begins with an underscore would be dropped
    blank = [f"series {i}" for i in range(len(names))]
    legend = drawing.legend(handles, blank, loc="outside lower center", ncols=columns)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
        text.set_linespacing(_LEADING)
    for handle in legend.legend_handles:
        # markers of large clouds are dots, which nobody could tell apart
        if handle is not None and hasattr(handle, "set_markersize"):
            handle.set_markersize(max(handle.get_markersize(), 4.5))
    return math.ceil(len(names) / columns) * (1 + max(name.count("\n") for name in names))


def settle(drawing: Any) -> Any:
    """The same drawing with its layout computed once, for all the formats that it is then saved in."""
    with style():
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")
    return drawing


def to_svg(drawing: Any) -> bytes:
    """The drawing as SVG, with text as outlines; the same drawing gives the same bytes."""
    return _save(drawing, "svg", {"Date": None, "Creator": None})


def to_pdf(drawing: Any) -> bytes:
    """The drawing as PDF with embedded fonts; the same drawing gives the same bytes."""
    return _save(drawing, "pdf", {"CreationDate": None, "Creator": None, "Producer": None})


def _save(drawing: Any, kind: str, details: dict[str, None]) -> bytes:
    stream = BytesIO()
    with style():
        drawing.savefig(stream, format=kind, metadata=details)
    return stream.getvalue()
