"""`measureformer version`: what the numbers depend on."""

from __future__ import annotations

import os
import platform

import typer


def version() -> None:
    """Print the versions that results depend on."""
    from measureformer.atlas.registry import versions

    for name, number in versions().items():
        typer.echo(f"{name:14} {number}")
    typer.echo(f"{'machine':14} {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
