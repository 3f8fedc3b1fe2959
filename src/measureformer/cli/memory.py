"""`measureformer memory`: pictures in, recalled pictures and a sheet out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from measureformer.cli.options import Seed
from measureformer.cli.output import cleaned


def memory(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PICTURES...", help="Files, or folders of them, to be stored.")
    ],
    query: Annotated[
        list[Path] | None, typer.Option(help="A picture to start from; otherwise the stored ones.")
    ] = None,
    mask: Annotated[
        float | None, typer.Option(help="Share of each picture hidden, from the bottom; 0.5 by default.")
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Share of the pixels that are inverted.")] = None,
    generation: Annotated[str, typer.Option(help="modern, dense, classical, or all three.")] = "modern",
    beta: Annotated[
        float | None, typer.Option(help="Inverse temperature of a modern memory; automatic by default.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Resize all pictures to WIDTHxHEIGHT, such as 32x32.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of what is recalled.")] = Path("recalled"),
    seed: Seed = 0,
) -> None:
    """Store your own pictures, and recall them from masked or noisy versions. Writes what came back, and a sheet."""
    from measureformer.cli.memory_recall import Damage, run

    damage = Damage(mask, noise, seed)
    for line in run(paths, query or [], damage, generation=generation, beta=beta, size=size, out=out):
        typer.echo(cleaned(line))
