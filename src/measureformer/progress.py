"""A bar for work that takes long: on a terminal, on standard error, and only once it has taken a while."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

QUIET = 2.0
"""Seconds after which the bar appears."""


@contextmanager
def bar(title: str, total: float, *, shown: bool = True) -> Generator[Callable[[float, str], None]]:
    """Hands out `show(done, note)`, to be called whenever there is news; `done` counts up to `total`."""
    if not (shown and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
        yield lambda done, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    rich, began = Progress(*columns, console=Console(stderr=True), transient=True), time.monotonic()
    task = rich.add_task("", total=total)

    def show(done: float, note: str) -> None:
        if time.monotonic() - began >= QUIET:
            rich.start()
            rich.update(task, completed=done, description=note)

    try:
        yield show
    finally:
        rich.stop()
