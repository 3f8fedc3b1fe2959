"""Progress of long work on standard error: a bar on a terminal, lines elsewhere, nothing for short work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec

QUIET = 2.0
"""Seconds after which the bar appears."""
EVERY = 5.0
"""Seconds before the first line, and at least between two of them."""
_SHARE = 0.05
"""Minimum gap between lines as a fraction of the elapsed time, so that overnight runs do not flood the log."""

Show = Callable[[float, str], None]

_HUSHED: ContextVar[bool] = ContextVar("hushed", default=False)


@contextmanager
def bar(title: str, total: int | float, *, shown: bool = True) -> Generator[Show]:
    """Yields `show(done, note)`, to be called after each step; `done` counts up to `total`.

    Inside the bar of other work it shows nothing.
    """
    # programs without a console have no such stream
    if not shown or _HUSHED.get() or not sys.stderr or sys.stderr.closed:
        yield lambda done, note: None
        return
    drawable = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None
    told = _drawn if drawable else _written
    with hushed(), told(title, total) as show:
        yield show


@contextmanager
def hushed() -> Generator[None]:
    """No bars in here."""
    token = _HUSHED.set(True)
    try:
        yield
    finally:
        _HUSHED.reset(token)


@contextmanager
def _drawn(title: str, total: int | float) -> Generator[Show]:
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

    def show(done: int | float, note: str) -> None:
        if time.monotonic() - began >= QUIET:
            rich.start()
            rich.update(task, completed=done, description=note)

    try:
        yield show
    finally:
        rich.stop()


@contextmanager
def _written(title: str, total: int | float) -> Generator[Show]:
    """A thread writes the newest note every few seconds, also during a stage that takes a minute."""
    newest, over, stream, began = [(0.0, "")], threading.Event(), sys.stderr, time.monotonic()

    def speak() -> None:
        told: tuple[float, str] | None = None
        while not over.wait(max(EVERY, _SHARE * (time.monotonic() - began))):
            done, note = newest[0]
            if (done, note) == told:
                continue
            told = done, note
            share = f"{100 * done / total:.0f} %, " if done and total else ""
            words = f": {note}" if note else ""
            # nobody may be left to listen
            with suppress(OSError, ValueError):
                print(f"{title}, {share}{time.monotonic() - began:.0f} s{words}", file=stream, flush=True)

    def show(done: int | float, note: str) -> None:
        newest[0] = done, note

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield show
    finally:
        over.set()
        speaker.join()
