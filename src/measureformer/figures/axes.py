"""Axes: logarithmic ones with readable labels, and axes with the same unit in both directions."""

from __future__ import annotations

import math
from typing import Any

from measureformer.errors import need
from measureformer.figures.figure import Figure

LEAST, LARGEST = 1e-100, 1e100
"""Sizes of numbers that are drawn; beyond them the arithmetic of axis limits overflows."""
_ACROSS, _DOWN, _LOWER, _TALLER = 4.3, 2.1, -0.9, 1.2
"""About the width and the height of the axes, and what may be added to the height for a picture of the plane."""
_SLENDER = 4.0
_FEW = 2.3
"""Decades up to which 2 and 5 are labelled between the powers of ten."""
_PLAIN = 1e-3, 1e4
"""Logarithmic axes within this range have plain numbers, others powers of ten."""


def set_scales(axes: Any, figure: Figure) -> None:
    """Make axes logarithmic where that is wanted and the positive numbers span a decade; they stay linear otherwise.

    Where both are wanted, half as much is enough, so that a power law stays a straight line.
    """
    # named positions are 0, 1, 2, …, which no logarithmic axis has
    wanted = {"x": "linear" if figure.xticks else figure.xscale, "y": figure.yscale}
    least = 5.0 if set(wanted.values()) == {"log"} else 10.0
    across = [x for series in figure.series for x in series.x]
    up = [y for series in figure.series for y in (*series.y, *series.y2)]
    for axis, values in (("x", across), ("y", up)):
        positive = [value for value in values if LEAST <= value <= LARGEST]
        if wanted[axis] == "log" and positive and max(positive) >= least * min(positive):
            _make_logarithmic(axes, axis, min(positive), max(positive))


def _make_logarithmic(axes: Any, axis: str, low: float, high: float) -> None:
    getattr(axes, f"set_{axis}scale")("log", nonpositive="mask")
    ticker = need("matplotlib.ticker", "atlas")
    line = getattr(axes, f"{axis}axis")
    line.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if math.log10(high / low) < _FEW else (1.0,)))
    line.set_major_formatter(ticker.FuncFormatter(_plain if _PLAIN[0] <= low and high <= _PLAIN[1] else _scientific))
    line.set_minor_formatter(ticker.NullFormatter())


def _plain(value: float, _: object = None) -> str:
    return f"{value:.12g}"


def _scientific(value: float, _: object = None) -> str:
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    factor = "" if mantissa == "1" else rf"{mantissa}\times "
    return rf"$\mathdefault{{{factor}10^{{{int(exponent)}}}}}$"


def shaped(axes: Any) -> float:
    """Give both axes the same unit; return the inches that the height of the data needs in addition."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    ratio = (high - low) / (right - left)
    # of a cloud that is nearly a line nothing could be seen in axes of its shape: they get room instead
    axes.set_aspect("equal", adjustable="box" if 1 / _SLENDER < ratio < _SLENDER else "datalim")
    return min(_TALLER, max(_LOWER, _ACROSS * ratio - _DOWN))
