"""`measureformer explore`: apps in the browser, on this machine only."""

from __future__ import annotations

from typing import Annotated

import typer

from measureformer.cli.completion import app_names


def explore(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="An app; without one, a page of all.", autocompletion=app_names),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default only this machine can reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = 2718,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    only_list: Annotated[bool, typer.Option("--list", help="List the apps and exit.")] = False,
) -> None:
    """Open apps in the browser: tokens as particles, Gaussian flows, compiled functions, memories, and more."""
    from measureformer.explore.catalogue import catalogue
    from measureformer.explore.server import HERE, serve

    if only_list:
        for entry in catalogue():
            typer.echo(f"{entry.name:16}{entry.title}. {entry.about}")
        return

    def ready(address: str) -> None:
        typer.echo(f"The explorer is at {address} until you press Ctrl-C.")
        if host not in HERE:
            typer.echo("Everybody who has this address can use the apps and open folders of this machine.", err=True)

    serve(name, host=host, port=port, ready=ready, browser=browser)
