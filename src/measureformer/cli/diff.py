"""`measureformer diff`: what changed between two atlases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from measureformer.cli.output import aligned, bare_table, on_terminal

if TYPE_CHECKING:
    from measureformer.atlas.report.diff import Change, Difference

WORSE = 1
"""Exit code if a verdict got worse."""


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The file atlas.json of an atlas, or its folder.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same of another one.")],
    moved: Annotated[float, typer.Option(min=0.0, help="Report margins that moved by at least this much.")] = 0.05,
) -> None:
    """Compare two atlases: verdicts, margins, claims, versions. Exit code 1 if a verdict got worse."""
    from measureformer.atlas.atlas import read_atlas
    from measureformer.atlas.report.diff import compare

    found = compare(read_atlas(old), read_atlas(new), moved=moved)
    rows = _rows(found)
    if rows:
        _show(rows)
    typer.echo(_summary(found))
    raise typer.Exit(WORSE if found.worse else 0)


def _rows(found: Difference) -> list[tuple[str, str, str, str]]:
    """(what, claim, old, new), the worst first."""
    order = {"worse": 0, "changed": 1, "better": 2}
    verdicts = sorted(found.verdicts, key=lambda change: order[change.direction])
    return [
        *((change.direction, change.claim, _verdict(change, 0), _verdict(change, 1)) for change in verdicts),
        *(("margin", change.claim, _margin(change.old_margin), _margin(change.new_margin)) for change in found.margins),
        *(("new claim", name, "", "") for name in found.added),
        *(("removed", name, "", "") for name in found.removed),
        *(("setting", name, old, new) for name, old, new in found.settings),
    ]


def _verdict(change: Change, which: int) -> str:
    kind, margin = (change.old, change.old_margin) if which == 0 else (change.new, change.new_margin)
    return f"{kind}, margin {_margin(margin)}" if margin == margin else kind


def _margin(value: float) -> str:
    from measureformer.pages.words import number

    return number(value)


def _show(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """A table on a terminal, columns elsewhere; texts of atlases are cleaned, and never read as markup."""
    if not on_terminal():
        for line in aligned(rows):
            typer.echo(line)
        return
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    from measureformer.pages.words import one_line

    others = (Column(word, overflow="fold") for word in ("claim", "old", "new"))
    table = bare_table(Column("what", no_wrap=True), *others)
    styles = {"worse": "bold red", "better": "green", "changed": "yellow", "removed": "yellow"}
    for what, *rest in (map(one_line, row) for row in rows):
        table.add_row(Text(what, style=styles.get(what, "")), *map(Text, rest))
    Console().print(table)


def _summary(found: Difference) -> str:
    count = {
        word: sum(change.direction == word for change in found.verdicts) for word in ("worse", "better", "changed")
    }
    parts = [f"{number} {word}" for word, number in count.items() if number]
    parts += [f"{len(found.margins)} margins moved"] if found.margins else []
    parts += [f"{len(found.added)} new"] if found.added else []
    parts += [f"{len(found.removed)} removed"] if found.removed else []
    return f"{', '.join(parts)}." if parts else "No verdict changed, and no margin moved."
