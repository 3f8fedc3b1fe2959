"""Maps of heads: a cell for each layer and head, its colour the value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from measureformer.figures.draw import blank
from measureformer.figures.lettering import letter
from measureformer.figures.style import style

if TYPE_CHECKING:
    from measureformer.figures.canvas import Drawing

_CELL, _WORDS = 0.26, (1.5, 0.85)
"""Side of a cell, and what is added for words, in inches."""
_LEAST, _MOST = 1.3, 4.5
_COLUMNS = 4


def draw_heads(maps: Mapping[str, np.ndarray]) -> Drawing:
    """One or several maps (layers, heads), each with a scale of its own; grey is what was not measured."""
    layers, heads = next(iter(maps.values())).shape
    columns = min(_COLUMNS, len(maps))
    rows = math.ceil(len(maps) / columns)
    cell = _CELL if len(maps) == 1 else 0.6 * _CELL
    across, down = (min(max(n * cell, _LEAST), _MOST) for n in (heads, layers))
    with style():
        drawing = blank(columns * (across + _WORDS[0]), rows * (down + _WORDS[1]))
        places = drawing.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).reshape(-1)
        for axes, (name, values) in zip(places, maps.items(), strict=False):
            _map(drawing, axes, values, name)
        for axes in places[len(maps) :]:
            axes.set_axis_off()
        for i, axes in enumerate(places[: len(maps)]):
            # not every column ends in the last row
            axes.set_xlabel("head" if i + columns >= len(maps) else "")
            axes.tick_params(labelbottom=i + columns >= len(maps))
            axes.set_ylabel("layer" if i % columns == 0 else "")
        return drawing


def _map(drawing: Any, axes: Any, values: np.ndarray, name: str) -> None:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    # zero is white where signs differ
    signed = low < 0 < high
    limit = max(-low, high)
    scale = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit} if signed else {"cmap": "viridis"}
    axes.set_facecolor("#BBBBBB")
    axes.grid(visible=False)
    image = axes.imshow(values, interpolation="nearest", aspect="auto", **scale)
    axes.spines[:].set_visible(False)
    for line in (axes.xaxis, axes.yaxis):
        line.get_major_locator().set_params(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.tick_params(length=0)
    bar = drawing.colorbar(image, ax=axes, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    if name:
        letter(axes.set_title(""), name)
