"""Small multiples: many lines of one figure, each in small axes of its own, all with the same scales."""

from __future__ import annotations

import math
from typing import Any

from measureformer.figures.axes import set_scales
from measureformer.figures.draw import blank, counts, curve
from measureformer.figures.figure import Figure
from measureformer.figures.lettering import letter, wrapped, write_legend
from measureformer.figures.roles import Looks
from measureformer.figures.style import style

_PANEL, _WORDS, _NARROWEST = (1.15, 0.9), (0.4, 0.8), 4.8
"""Width and height of small axes, what is added to all of them for words, and the width that a title and a legend need
at least, in inches."""


def draw_panels(figure: Figure) -> Any:
    """The figure with each of its lines in small axes of its own, named above them; other series are in all of them.

    For heads, layers or seeds by the dozen, which nobody could tell apart in one pair of axes.
    """
    single = [series for series in figure.series if series.style == "line"]
    shared = [series for series in figure.series if series.style != "line"]
    columns = _columns(len(single))
    rows = math.ceil(len(single) / columns)
    with style():
        width, height = (n * side + more for n, side, more in zip((columns, rows), _PANEL, _WORDS, strict=True))
        size = max(width, _NARROWEST), height
        drawing = blank(*size)
        grid = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).reshape(-1)
        set_scales(grid[0], figure)
        if grid[0].get_xscale() == "linear" and counts(figure):
            grid[0].xaxis.get_major_locator().set_params(integer=True)
        handles: list[Any] = []
        for axes, own in zip(grid, single, strict=False):
            looks = Looks()
            curve(axes, own, looks.next(own), marked=False)
            handles = [curve(axes, series, looks.next(series), marked=False) for series in shared]
            letter(axes.set_title("", fontsize=8, pad=2), wrapped(own.label, 22, 1))
            axes.tick_params(labelsize=7)
        for axes in grid[len(single) :]:
            axes.set_axis_off()
        for axes in grid[max(len(single) - columns, 0) : len(single)]:
            # a common label would lie below the legend; and not every column ends in the last row
            letter(axes.set_xlabel("", fontsize=8), wrapped(figure.xlabel, 22, 1))
            axes.tick_params(labelbottom=True)
        letter(drawing.suptitle("", x=0.02, ha="left", fontsize=10.5), wrapped(figure.title, 64))
        letter(drawing.supylabel("", fontsize=9), wrapped(figure.ylabel, 38))
        if shared:
            drawing.set_figheight(size[1] + 0.17 * write_legend(drawing, handles, [series.label for series in shared]))
        return drawing


def _columns(count: int) -> int:
    """Of a grid that is a little wider than high, with as few empty places as possible."""
    side = math.sqrt(1.3 * count)
    near = range(math.ceil(math.sqrt(count)), math.ceil(1.5 * side) + 1)
    return min(near, key=lambda columns: (-count % columns, abs(columns - side)))
