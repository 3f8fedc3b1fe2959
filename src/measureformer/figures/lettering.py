"""Words in drawings: wrapped, never read as mathematics, with indices and exponents typeset."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

from measureformer.errors import need
from measureformer.figures.figure import Figure
from measureformer.pages.words import one_line

_LEADING = 1.2
_BODY = r"(?:\{([^{}_^]+)\}|\(([^()_^]+)\)|([−+-]?[^\W_]+(?:\.\d+)?|½|\*))"
# an exponent after anything, an index after one letter: `k_max` has one, the name `head_lower` has none
_SCRIPT = re.compile(rf"(?<=[^\s_^])(\^){_BODY}|(?<=\b[^\W\d_])(_){_BODY}")
_TYPESET = re.compile(r"[\w.,+−*/=<>≤≥ ()½-]+")


def write_words(axes: Any, figure: Figure) -> int:
    """Title, labels and names of positions; returns the rows of text above and below the axes."""
    title, xlabel = wrapped(figure.title, 64), wrapped(figure.xlabel, 64)
    letter(axes.set_title(""), title)
    letter(axes.set_xlabel(""), xlabel)
    letter(axes.set_ylabel(""), wrapped(figure.ylabel, 38))
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


def letter(text: Any, words: str) -> None:
    """Give a Matplotlib text its words, with indices and exponents typeset."""
    shown = raised(words)
    text.set_parse_math(shown != words)
    text.set_text(shown)
    text.set_linespacing(_LEADING)


def raised(words: str) -> str:
    r"""Words with indices and exponents as mathematics of Matplotlib, if nothing else in them can be read as such.

    >>> print(raised("n^0.28, L^{-4} and head_lower"))
    n$^{\mathrm{0.28}}$, L$^{\mathrm{-4}}$ and head_lower
    """

    def script(hit: re.Match[str]) -> str:
        body = next(group for group in hit.groups() if group not in (None, "^", "_"))
        return rf"$^{{\mathrm{{{body}}}}}$".replace("^", hit[0][0]) if _TYPESET.fullmatch(body) else hit[0]

    # mathematics is set in one font only, and a dollar would begin or end it
    return words if "$" in words or not _letters().issuperset(words) else _SCRIPT.sub(script, words)


@cache
def _letters() -> frozenset[str]:
    fonts = need("matplotlib.font_manager", "atlas")
    return frozenset(map(chr, fonts.get_font(fonts.findfont("STIXGeneral")).get_charmap())) | {"\n"}


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
        letter(text, name)
    for handle in legend.legend_handles:
        # markers of large clouds are dots, which nobody could tell apart
        if handle is not None and hasattr(handle, "set_markersize"):
            handle.set_markersize(max(handle.get_markersize(), 4.5))
    return math.ceil(len(names) / columns) * (1 + max(name.count("\n") for name in names))
