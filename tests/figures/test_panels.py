"""Small multiples: a pair of axes for each line, the same scales, and what is shared in all of them."""

from __future__ import annotations

import pytest

import measureformer as mf
from measureformer.figures.draw import to_svg
from measureformer.figures.panels import draw_panels


def figure(lines: int) -> mf.Figure:
    own = [mf.Series(f"head ${i}$", (1.0, 2.0), (0.1 * (i + 1), 1.0), role="measured") for i in range(lines)]
    median = mf.Series("median", (1.0, 2.0), (0.5, 0.6), "dashed", role="theory")
    return mf.Figure("Heads", "layer", "mass", (*own, median), yscale="log")


@pytest.mark.parametrize(("lines", "columns", "rows"), [(1, 1, 1), (3, 3, 1), (5, 3, 2), (9, 3, 3), (12, 4, 3)])
def test_each_line_has_axes_and_what_is_shared_is_in_all(lines: int, columns: int, rows: int) -> None:
    drawing = draw_panels(figure(lines))
    axes = [one for one in drawing.axes if one.axison]
    assert len(axes) == lines
    assert (axes[0].get_gridspec().ncols, axes[0].get_gridspec().nrows) == (columns, rows)
    # kills: the shared line in the first axes alone; a line in the axes of another
    assert all(len(one.lines) == 2 for one in axes)
    assert [one.lines[0].get_ydata()[0] for one in axes] == pytest.approx([0.1 * (i + 1) for i in range(lines)])
    assert {one.get_ylim() for one in axes} == {axes[0].get_ylim()}
    assert all(one.get_yscale() == "log" for one in axes)
    # every column has numbers below it, also where it ends before the last row
    assert sum(one.get_xlabel() == "layer" for one in axes) == min(columns, lines)
    assert to_svg(drawing).startswith(b"<?xml")


def test_few_heads_leave_room_for_the_title() -> None:
    # kills: a page as narrow as its axes, which cuts title and legend
    few = figure(4)
    few = mf.Figure("Which heads are memories, and of which class", few.xlabel, few.ylabel, few.series)
    drawing = draw_panels(few)
    drawing.draw_without_rendering()
    for words in (drawing._suptitle, *drawing.legends):
        assert words.get_window_extent().x0 >= 0
        assert words.get_window_extent().x1 <= drawing.bbox.x1


def test_layers_have_whole_numbers() -> None:
    own = mf.Series("head", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (1.0,) * 6, role="measured")
    axes = draw_panels(mf.Figure("Heads", "layer", "mass", (own, own))).axes[0]
    assert all(float(place).is_integer() for place in axes.get_xticks())


def test_the_same_numbers_give_the_same_bytes_and_labels_are_no_mathematics() -> None:
    first, second = (to_svg(draw_panels(figure(4))) for _ in range(2))
    assert first == second
    assert draw_panels(figure(4)).axes[0].get_title(loc="left") == "head $0$"
