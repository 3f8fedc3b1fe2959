"""`measureformer launch`: a script in several workers that share one mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def launch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS...", help="Its arguments.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-n", help="Number of processes.")] = 2,
) -> None:
    """Run a script in several workers that share one mesh; all end when one is lost. See `mf.join_workers`."""
    from measureformer.parallel.launch import launch

    launch(script, arguments or [], workers=workers)
