"""Figures: the same bytes every time, and no data or string that breaks them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

import measureformer as mf
from measureformer.errors import DtypeError, OptionError, ResultFormatError
from measureformer.figures.draw import draw, settle, to_pdf, to_svg
from measureformer.figures.figure import Figure, Series
from measureformer.figures.roles import CONTROL, INK, PALETTE
from planting import a_result

HOSTILE = [r"$\frac{", "$x$", "$", r"\alpha", "100 % of_x^2 {", "_hidden", "<script>alert(1)</script>", "a\x00b\x1b"]
HOSTILE += ["\u202eabc", "line\nbreak", "x" * 400, "word " * 80, "", "日本語 ⋄ ♯", "]]>", "&amp;"]


def plain(**changes: Any) -> Figure:
    figure = Figure(
        "Title",
        "x",
        "y",
        (
            Series("one", (0.0, 1.0), (1.0, 2.0), role="measured"),
            Series("two", (0.0, 1.0), (2.0, 1.0), role="measured"),
        ),
    )
    return replace(figure, **changes)


def everything() -> Figure:
    figure = a_result().run.figure
    assert figure is not None
    return figure


def test_same_figure_gives_the_same_bytes() -> None:
    first, second = settle(draw(everything())), settle(draw(everything()))
    assert to_svg(first) == to_svg(second)
    assert to_pdf(first) == to_pdf(second)


def test_files_hold_neither_dates_nor_addresses_to_fetch() -> None:
    svg = to_svg(draw(everything())).decode()
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                assert value.startswith("#")
    assert "date" not in svg.lower()
    assert b"CreationDate" not in to_pdf(draw(everything()))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_string_breaks_a_figure(text: str) -> None:
    series = (
        Series(text, (0.0, 1.0), (1.0, 2.0), role="measured"),
        Series(text, (0.0, 1.0), (2.0, 1.0), "bars", role="measured"),
    )
    drawing = settle(draw(Figure(text, text, text, series, xticks=(text, text), caption=text)))
    svg = to_svg(drawing)
    # well-formed, and no element beyond those of a drawing
    kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert "script" not in kinds


def test_no_string_breaks_a_file_for_print() -> None:
    first, second, third, fourth = (HOSTILE[i : i + 4] for i in range(0, 16, 4))
    series = tuple(Series(text, (0.0, 1.0), (1.0, 2.0), role="measured") for text in (*first, *second))
    figure = Figure(third[0], third[1], third[2], series, xticks=(*fourth, third[3]))
    assert to_pdf(settle(draw(figure))).startswith(b"%PDF")


def texts(drawing: Any) -> list[Any]:
    return [text for text in drawing.findobj(Text) if text.get_text()]


def test_strings_are_shown_as_they_are_and_never_read_as_mathematics() -> None:
    title, xlabel, ylabel, one, two, tick = r"$\frac{1}{2}$", r"$a_1$", "$", r"\sum", "_hidden", "$b$"
    series = (
        Series(one, (0.0, 1.0), (1.0, 2.0), role="measured"),
        Series(two, (0.0, 1.0), (2.0, 1.0), role="measured"),
    )
    drawing = draw(Figure(title, xlabel, ylabel, series, xticks=(tick, "first line of a name\nsecond line")))
    drawing.draw_without_rendering()
    strings = {title, xlabel, ylabel, one, two, tick, "first line of a name second line"}
    mine = [text for text in texts(drawing) if text.get_visible() and text.get_text() in strings]
    assert {text.get_text() for text in mine} == strings
    assert not any(text.get_parse_math() for text in mine)


def logarithmic(low: float, high: float) -> Any:
    line = Series("line", (low, high), (low, high), role="measured")
    drawing = draw(plain(series=(line,), xscale="log", yscale="log"))
    drawing.draw_without_rendering()
    return drawing.axes[0]


def shown(labels: Any, low: float, high: float) -> dict[str, Any]:
    return {tick.get_text(): tick.get_window_extent() for tick, at in labels if tick.get_text() and low <= at <= high}


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.1, 10.0, {"0.1", "0.2", "0.5", "1", "2", "5", "10"}),
        (1e-3, 1e3, {"0.001", "0.01", "0.1", "1", "10", "100", "1000"}),
        (1e-5, 1e-3, {rf"$\mathdefault{{{m}10^{{{e}}}}}$" for m in ("", r"2\times ", r"5\times ") for e in (-5, -4)}),
        (1e-5, 10.0, {r"$\mathdefault{10^{-5}}$", r"$\mathdefault{10^{1}}$"}),
    ],
)
def test_logarithmic_axes_have_plain_labels_where_they_can(low: float, high: float, labels: set[str]) -> None:
    axes = logarithmic(low, high)
    for line in (axes.xaxis, axes.yaxis):
        found = [(tick, tick.get_position()[line is axes.yaxis]) for tick in line.get_ticklabels()]
        assert labels <= shown(found, 0.999 * low, 1.001 * high).keys()
        assert not any(tick.get_text() for tick in line.get_ticklabels(minor=True))


@pytest.mark.parametrize(
    ("low", "ratio"), [(0.7, 10.0), (0.003, 150.0), (1e-8, 150.0), (40.0, 1e4), (1e-8, 1e12), (1.0, 1e60)]
)
def test_labels_of_logarithmic_axes_do_not_touch(low: float, ratio: float) -> None:
    axes = logarithmic(low, low * ratio)
    ends = axes.get_xlim()
    found = [(tick, tick.get_position()[0]) for tick in axes.xaxis.get_ticklabels()]
    boxes = sorted((box.x0, box.x1) for box in shown(found, *ends).values())
    assert len(boxes) >= 2
    assert all(left[1] < right[0] for left, right in pairwise(boxes))


def test_an_axis_below_one_decade_is_linear() -> None:
    # kills: 1.6 × 10¹, 1.8 × 10¹, 2 × 10¹, … over each other
    def scale(high: float, xscale: Any) -> str:
        line = Series("line", (1.0, 100.0), (16.0, high), role="measured")
        return draw(plain(series=(line,), xscale=xscale, yscale="log")).axes[0].get_yscale()

    assert [scale(high, "linear") for high in (28.0, 159.9, 160.0)] == ["linear", "linear", "log"]
    # a power law is straight on two logarithmic axes
    assert [scale(high, "log") for high in (28.0, 79.9, 80.0)] == ["linear", "linear", "log"]


@pytest.mark.parametrize(
    ("words", "typeset"),
    [
        ("L^{-4}", r"L$^{\mathrm{-4}}$"),
        ("n^0.28", r"n$^{\mathrm{0.28}}$"),
        ("e^entropy", r"e$^{\mathrm{entropy}}$"),
        ("d_k^(−1/2)", r"d$_{\mathrm{k}}$$^{\mathrm{−1/2}}$"),
        ("distance in W_2.", r"distance in W$_{\mathrm{2}}$."),
        # names of programs, prices and other mathematics stay as they are
        ("head_lower", "head_lower"),
        ("$n^2$", "$n^2$"),
        ("x^{$}", "x^{$}"),
        ("日本^2", "日本^2"),
        (r"x^{\frac}", r"x^{\frac}"),
    ],
)
def test_indices_and_exponents_in_legends_are_typeset(words: str, typeset: str) -> None:
    series = tuple(Series(label, (0.0, 1.0), (1.0, 2.0), role="measured") for label in (words, "other"))
    drawing = draw(plain(series=series, title=words))
    drawing.draw_without_rendering()
    for text in (drawing.legends[0].get_texts()[0], next(t for t in texts(drawing) if t.get_text() == typeset)):
        assert text.get_text() == typeset
        assert text.get_parse_math() == (typeset != words)


def test_legend_lies_outside_of_the_axes() -> None:
    drawing = draw(everything())
    drawing.draw_without_rendering()
    (legend,) = drawing.legends
    box, axes = legend.get_window_extent(), drawing.axes[0].get_window_extent()
    assert box.y1 < axes.y0
    assert box.y0 >= 0


def test_single_series_needs_no_legend() -> None:
    assert not draw(plain(series=(Series("one", (0.0, 1.0), (1.0, 2.0), role="measured"),))).legends


def test_words_stay_inside_the_page() -> None:
    long = "a rather long name of something " * 5
    series = (
        Series(long, (0.0, 1.0), (1.0, 2.0), role="measured"),
        Series(long, (0.0, 1.0), (2.0, 1.0), role="measured"),
    )
    drawing = draw(Figure(long, long, long, series, xticks=(long, long)))
    drawing.draw_without_rendering()
    page = drawing.bbox
    boxes = [text.get_window_extent() for text in texts(drawing) if text.get_visible()]
    assert len(boxes) > 10
    assert min(box.x0 for box in boxes) >= 0
    assert min(box.y0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= page.x1
    assert max(box.y1 for box in boxes) <= page.y1


def test_colours_tell_series_apart_and_dashes_are_ink() -> None:
    x, y = (0.0, 1.0), (1.0, 2.0)
    series = (
        *(Series(str(i), x, y, role="measured") for i in range(3)),
        Series("law", x, y, "dashed", role="theory"),
        Series("control: no", x, y, role="control"),
    )
    lines = draw(plain(series=series)).axes[0].get_lines()
    assert [line.get_color() for line in lines] == [*PALETTE[:3], INK[0], CONTROL[0]]
    # without colours, too
    assert len({line.get_marker() for line in lines[:3]}) == 3
    assert [line.get_linestyle() for line in lines] == ["-", "-", "-", "--", "--"]
    assert lines[3].get_marker() == "None"


def test_bars_without_colours_are_told_apart_by_hatches() -> None:
    x = (0.0, 1.0)
    figure = plain(
        series=(
            Series("a", x, x, "bars", role="measured"),
            Series("b", x, x, "bars", role="measured"),
            Series("control: c", x, x, "bars", role="control"),
        )
    )
    hatches = [bar.get_hatch() or "" for bar in draw(figure).axes[0].patches]
    assert len(set(hatches)) == 3
    (alone, _) = draw(plain(series=(Series("b", x, x, "bars", role="measured"),))).axes[0].patches
    assert not alone.get_hatch()


def test_band_has_the_colour_of_the_curve_before_it() -> None:
    x, y = (0.0, 1.0), (1.0, 2.0)
    series = (
        Series("a", x, y, role="measured"),
        Series("b", x, y, "points", role="measured"),
        Series("spread of b", x, y, "band", y, role="measured"),
    )
    (band,) = draw(plain(series=series)).axes[0].collections
    red, green, blue = (round(255 * part) for part in band.get_facecolor()[0][:3])
    assert f"#{red:02X}{green:02X}{blue:02X}" == PALETTE[1]


def test_bars_of_two_series_stand_beside_each_other() -> None:
    x = (0.0, 1.0)
    figure = plain(
        series=(
            Series("a", x, (1.0, 2.0), "bars", role="measured"),
            Series("b", x, (2.0, 1.0), "bars", role="measured"),
        )
    )
    bars = sorted(draw(figure).axes[0].patches, key=lambda bar: bar.get_x())
    assert len(bars) == 4
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert all(left[1] < right[0] for left, right in pairwise(ends))
    assert [bar.get_height() for bar in bars] == [1.0, 2.0, 2.0, 1.0]


def test_bars_on_a_logarithmic_axis_end_at_their_values() -> None:
    figure = plain(series=(Series("a", (0.0, 1.0), (1e-16, 0.5), "bars", role="measured"),), yscale="log")
    axes = draw(figure).axes[0]
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == pytest.approx([1e-16, 0.5], rel=1e-12)
    assert axes.get_ylim()[0] == pytest.approx(1e-17, rel=1e-6, abs=0)
    assert axes.get_ylim()[1] > 0.5


def test_bars_do_not_push_a_lower_curve_off_the_axes() -> None:
    x = (0.0, 1.0)
    figure = plain(
        series=(
            Series("a", x, (0.1, 0.5), "bars", role="measured"),
            Series("b", x, (1e-9, 1e-9), "dashed", role="theory"),
        ),
        yscale="log",
    )
    assert draw(figure).axes[0].get_ylim()[0] < 1e-9


def test_band_down_to_zero_on_a_logarithmic_axis_reaches_its_end() -> None:
    x = (0.0, 1.0)
    figure = plain(
        series=(
            Series("spread", x, (0.0, 0.01), "band", (0.1, 0.1), role="measured"),
            Series("line", x, (0.1, 0.1), role="measured"),
        ),
        yscale="log",
    )
    (band,) = draw(figure).axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].min() == pytest.approx(1e-3)


def test_zero_on_a_logarithmic_axis_is_marked_and_not_left_out() -> None:
    figure = plain(series=(Series("a", (0.0, 1.0, 2.0), (1e-16, 0.0, 1e-3), "points", role="measured"),), yscale="log")
    drawing = draw(figure)
    marks = [line for line in drawing.axes[0].get_lines() if line.get_marker() == "v" and len(line.get_xdata())]
    assert [list(mark.get_xdata()) for mark in marks] == [[1.0]]
    assert "zero or less, below the axis" in {text.get_text() for text in texts(drawing)}


@pytest.mark.parametrize("values", [(0.0, 0.0), (-1.0, 0.0), (math.nan, math.inf), (1e308, 2.0)])
def test_logarithmic_axis_without_positive_numbers_is_drawn(values: tuple[float, float]) -> None:
    figure = plain(series=(Series("a", (0.0, 1.0), values, "points", role="measured"),), xscale="log", yscale="log")
    assert to_svg(draw(figure))


SIZES = (0.0, 5e-324, 1e-310, 1e-200, 1e-30, 0.3, 1.0, 1.0 + 2**-52, 1e30, 1e99, 1e101, 1.7e308, math.inf, math.nan)
numbers = st.builds(math.copysign, st.sampled_from(SIZES), st.sampled_from((1.0, 1.0, -1.0)))


@settings(max_examples=10)
@given(
    st.lists(st.tuples(numbers, numbers, numbers), max_size=4),
    st.sampled_from(["line", "dashed", "points", "bars", "band"]),
    st.sampled_from(["linear", "log"]),
    st.sampled_from(["linear", "log"]),
)
def test_no_number_breaks_a_figure(rows: list[tuple[float, ...]], style: Any, xscale: Any, yscale: Any) -> None:
    x, y, y2 = (tuple(row[i] for row in rows) for i in range(3))
    series = (
        Series("data", x, y, style, y2 if style == "band" else (), role="measured"),
        Series("more", (1.0, 2.0), (1.0, 2.0), role="measured"),
    )
    assert to_svg(settle(draw(plain(series=series, xscale=xscale, yscale=yscale))))


def test_figure_without_series_is_drawn() -> None:
    assert to_svg(draw(plain(series=())))


def test_clouds_of_many_points_stay_small() -> None:
    many = tuple(math.sin(i) for i in range(20_000))
    assert len(to_svg(draw(plain(series=(Series("cloud", many, many[::-1], "points", role="measured"),))))) < 1_000_000


class TestOwnFigures:
    FIGURE = Figure(
        "A wave", "t", "height", (Series("sine", np.linspace(0, 1, 9), jnp.linspace(0, 1, 9), role="measured"),)
    )

    def test_arrays_become_plain_numbers(self) -> None:
        series = self.FIGURE.series[0]
        assert series.x == tuple(np.linspace(0, 1, 9).tolist())
        assert all(type(number) is float for number in (*series.x, *series.y))

    def test_one_series_and_a_list_will_do(self) -> None:
        (series,) = self.FIGURE.series
        assert replace(self.FIGURE, series=series) == replace(self.FIGURE, series=[series]) == self.FIGURE  # type: ignore[arg-type]

    @pytest.mark.parametrize(("ending", "first"), [("svg", b"<?xml"), ("PDF", b"%PDF")])
    def test_the_ending_chooses_the_format(self, tmp_path: Path, ending: str, first: bytes) -> None:
        path = mf.save_figure(self.FIGURE, tmp_path / f"wave.{ending}")
        assert path.read_bytes().startswith(first)

    def test_bad_input_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"\.png.*need one that ends in \.svg or \.pdf"):
            mf.save_figure(self.FIGURE, tmp_path / "wave.png")
        with pytest.raises(DtypeError, match=r"need an mf\.Figure"):
            mf.save_figure({"title": "wave"}, tmp_path / "wave.svg")  # type: ignore[arg-type]
        with pytest.raises(ResultFormatError, match="one axis"):
            Series("table", np.zeros((2, 2)), np.zeros(2), role="measured")
        with pytest.raises(ResultFormatError, match=r"got 'scatter' as the style.*points"):
            Series("cloud", [0.0], [1.0], "scatter", role="measured")  # type: ignore[arg-type]
        with pytest.raises(ResultFormatError, match="got 'ln' as the yscale"):
            replace(self.FIGURE, yscale="ln")  # type: ignore[arg-type]
        with pytest.raises(ResultFormatError, match=r"got a float among the series.*mf\.Series"):
            replace(self.FIGURE, series=(0.5,))  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


def pixels(figure: Figure) -> tuple[float, float]:
    """How long a unit is on either axis."""
    drawing = settle(draw(figure))
    ends = drawing.axes[0].transData.transform([(0.0, 0.0), (1.0, 1.0)])
    return tuple(ends[1] - ends[0])


@pytest.mark.parametrize("shape", [(1.0, 1.0), (3.0, 1.0), (1.0, 3.0), (1.0, 0.0), (0.0, 1.0), (1e-3, 50.0)])
def test_a_circle_is_round_with_equal_axes(shape: tuple[float, float]) -> None:
    t = np.linspace(0, 2 * np.pi, 50)
    series = (Series("round", shape[0] * np.cos(t), shape[1] * np.sin(t), role="measured"),)
    across, up = pixels(Figure("Title", "x", "y", series, equal=True))
    assert across == pytest.approx(up, rel=1e-6)  # pixels, from sums of a few numbers
    if shape == (1.0, 1.0):
        assert pixels(Figure("Title", "x", "y", series))[0] > 1.2 * up
        # kills: a square in a wide picture, half as high as it could be
        assert draw(Figure("Title", "x", "y", series, equal=True)).get_figheight() > 3.5


@pytest.mark.parametrize("values", [(), (math.nan,), (1e300, -1e300), (1e99, 0.0), (1e-99, 0.0), (math.inf, 1.0)])
def test_no_number_breaks_equal_axes(values: tuple[float, ...]) -> None:
    series = (
        Series("points", values, values, "points", role="measured"),
        Series("line", values, (1.0,) * len(values), role="measured"),
    )
    assert to_svg(settle(draw(Figure("Title", "x", "y", series, equal=True))))


def test_equal_axes_are_linear() -> None:
    for other in ({"xscale": "log"}, {"yscale": "log"}, {"xticks": ("a",)}):
        with pytest.raises(ResultFormatError, match="two linear axes"):
            plain(equal=True, **other)
