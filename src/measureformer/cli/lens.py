"""`measureformer lens`: measure a pretrained transformer on a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from measureformer.cli.output import aligned, bare_table, on_terminal

if TYPE_CHECKING:
    from measureformer.lens.diagnose import Diagnosis


def lens(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A folder, .safetensors or .gguf file; defaults to the bundled model."),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="A text file; by default a text about Python.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens of the text that are used.", min=2)] = 256,
    against: Annotated[Path | None, typer.Option(help="Another model, or another text file, to compare with.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; by default one below lens/ for each model and text.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the Lipschitz constants.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Measure a pretrained transformer on a text: how Lipschitz, how clustered, how sparse, layer by layer."""
    from measureformer.cli.lens_report import Request, run_lens

    found, page = run_lens(Request(path, text, tokens, against, out, quick))
    if as_json:
        typer.echo(json.dumps([json.loads(one.to_json()) for one in found], indent=1, ensure_ascii=False))
        return
    for one in found:
        _show(one)
    typer.echo(f"The report is {page}: open it in a browser. The numbers are in {page.parent / 'lens.json'}.")


def _show(found: Diagnosis) -> None:
    """A row for each layer: a table on a terminal, columns elsewhere; then what is known of the whole."""
    from measureformer.lens.figures import table
    from measureformer.pages.words import number, one_line

    headings, rows = table(found)
    title = one_line(f"{found.family} {found.model}, {found.tokens} tokens, {number(found.seconds)} s")
    cells = [[str(i), *("–" if value != value else number(value) for value in row)] for i, row in enumerate(rows, 1)]
    if not on_terminal():
        typer.echo(title)
        for line in aligned([["layer", *headings], *cells], right=True):
            typer.echo(line)
    else:
        from rich.console import Console
        from rich.table import Column

        shown = bare_table(*(Column(word, justify="right") for word in ("layer", *headings)), title=title)
        for row in cells:
            shown.add_row(*row)
        Console().print(shown)
    for sentence in found.sentences():
        typer.echo(sentence)
