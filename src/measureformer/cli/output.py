"""How commands print: tables in columns, verdicts in colours on a terminal, complaints on one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def on_terminal() -> bool:
    """Whether people read along on something that knows colours."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A line for each row, in columns that are as wide as what is in them: files and pipes have no width to keep to.

    Cells are cleaned, and two spaces at least lie between them but never in one: programs can split lines there, and
    an empty cell is a dash.

    >>> aligned([("name", "title"), ("castin-2025-clusters", "Tokens  gather")])
    ['name                  title', 'castin-2025-clusters  Tokens gather']
    >>> aligned([("1", ""), ("10", "0.5")], right=True)
    [' 1    –', '10  0.5']
    """
    from rich.cells import cell_len

    from measureformer.pages.words import one_line

    cells = [[one_line(cell) or "–" for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]

    def padded(cell: str, width: int) -> str:
        room = " " * (width - cell_len(cell))
        return room + cell if right else cell + room

    return ["  ".join(map(padded, row, widths)).rstrip() for row in cells]


def bare_table(*headings: Any, title: str | None = None) -> Table:
    """A table for a terminal, without lines; headings are words, or columns of Rich."""
    from rich.table import Table

    return Table(*headings, title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def cleaned(text: str) -> str:
    """The text on one line, without control characters."""
    from measureformer.pages.words import one_line

    return one_line(text)


def complain(text: str) -> None:
    """Print to standard error."""
    typer.echo(cleaned(text), err=True)


_COLORS = {
    "holds": "green",
    "violated": "red",
    "inconclusive": "yellow",
    "control not rejected": "yellow",
    "raised": "red",
    "not run": "yellow",
}


def colored(word: str, width: int = 0) -> str:
    """The word, in its colour if it goes to a terminal that wants colours."""
    plain = word.ljust(width)
    return typer.style(plain, fg=_COLORS[word]) if on_terminal() and not os.environ.get("NO_COLOR") else plain
