"""`measureformer claims`: the statements of the theory that can be checked."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from measureformer.cli.output import aligned, bare_table, cleaned, on_terminal


def claims(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the claims: name, chapter, kind, title, reference."""
    from measureformer.atlas.index import index

    listed = list(index().values())
    if as_json:
        keys = ("name", "chapter", "title", "kind", "statement", "reference")
        found = [{key: asdict(one)[key] for key in keys} for one in listed]
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    if not on_terminal():
        for line in aligned([(one.name, one.chapter, one.kind, one.title, one.reference) for one in listed]):
            typer.echo(line)
        return
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    # names are there to be copied: the other columns give way
    others = (Column(word, overflow="fold") for word in ("kind", "title", "reference"))
    table = bare_table(Column("name", no_wrap=True), *others)
    for i, one in enumerate(listed):
        if i == 0 or one.chapter != listed[i - 1].chapter:
            table.add_row(Text(one.chapter, style="bold"))
        table.add_row(*(Text(cleaned(cell)) for cell in (one.name, one.kind, one.title, one.reference)))
    Console().print(table)
