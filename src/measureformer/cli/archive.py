"""`measureformer archive`: an atlas as one file that can be kept, cited and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def archive(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the atlas.")] = Path("atlas"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("atlas.zip"),
    author: Annotated[
        list[str] | None, typer.Option(help="Who ran it, as 'Family, Given' or a group; may be repeated.")
    ] = None,
) -> None:
    """Pack an atlas for Zenodo or a like place: pages, results, metadata, citation, versions and check sums."""
    from measureformer.cli.archive_file import write_archive

    packed = write_archive(folder, out, authors=author or [])
    typer.echo(f"{packed.path}: {packed.files} files, {packed.size / 1e6:.1f} MB, {packed.claims} claims.")
    if packed.others:
        typer.echo(
            f"{packed.others} of them were measured with other versions than those installed now, which "
            "environment.txt names: `measureformer atlas` runs them again.",
            err=True,
        )
    typer.echo("Its README.txt says how to check it; .zenodo.json holds title, authors and description.")
