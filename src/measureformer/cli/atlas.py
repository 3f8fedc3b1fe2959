"""`measureformer atlas`: check all claims and write pages about them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from measureformer.cli.completion import claim_names
from measureformer.cli.options import VIOLATED, Quick, Seed, preset_of
from measureformer.cli.output import cleaned, colored, on_terminal
from measureformer.errors import OptionError

if TYPE_CHECKING:
    from measureformer.atlas.atlas import Survey
    from measureformer.atlas.index import Listed
    from measureformer.atlas.result import Result
    from measureformer.atlas.run import AtlasRun, Event, Failure, NotRun

INTERRUPTED = 130
FULL_SEEDS = 5


def atlas(
    only: Annotated[
        list[str] | None,
        typer.Option(help="A claim, a glob such as 'castin-*', or a chapter.", autocompletion=claim_names),
    ] = None,
    quick: Quick = False,
    jobs: Annotated[int, typer.Option(help="Claims that run at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the atlas.")] = Path("atlas"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what could be reused.")] = False,
    seed: Seed = 0,
    seeds: Annotated[
        int | None,
        typer.Option(help="Fresh seeds for claims that take less than 20 s; 5 with --full, else 0.", min=0),
    ] = None,
    backend: Annotated[str, typer.Option(help="processes of this machine, or dask for a cluster.")] = "processes",
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the Dask scheduler, e.g. tcp://HOST:8786.")
    ] = None,
) -> None:
    """Check all claims and write pages about them. Finished results are kept: rerunning the command resumes it."""
    from measureformer.atlas.registry import select
    from measureformer.atlas.run import Settings, run_atlas, stored
    from measureformer.atlas.survey import survey

    if backend not in ("processes", "dask") or (backend == "dask") != bool(scheduler):
        raise OptionError(
            got=f"the backend {backend!r} with{f' the scheduler {scheduler!r}' if scheduler else 'out a scheduler'}",
            need="processes, or dask together with a scheduler",
            do="measureformer atlas --backend dask --scheduler tcp://HOST:8786",
        )
    everything = select([])
    entries = select(only or [])
    fresh_seeds = (0 if quick else FULL_SEEDS) if seeds is None else seeds
    settings = Settings(out, preset_of(quick), seed, jobs, fresh, scheduler, fresh_seeds)
    # what was not asked for stays on the page as long as it is good
    chosen = {entry.name for entry in entries}
    others = [stored(entry, settings) for entry in everything if entry.name not in chosen]
    page = _Page(out, entries, [result for result in others if result], survey(everything))
    with _progress(len(entries)) as show:

        def on_event(event: Event) -> None:
            show(event)
            page.add(event)

        done = run_atlas(entries, settings, on_event, page.start)
    _conclude(done, page.write(done, jobs=jobs))


class _Page:
    """The page of a run, written before the first claim is finished and again as results arrive.

    Arguments:
        out: folder of the atlas.
        entries: the claims that this run checks.
        others: good results of other claims, which stay on the page.
        about: chapters and notes.
    """

    PATIENCE = 5.0
    """Least seconds between two versions."""
    SHARE = 10
    """Writing takes at most one part in so many of the time."""

    def __init__(self, out: Path, entries: Sequence[Listed], others: list[Result], about: Survey) -> None:
        self.out, self.others, self.about = out, others, about
        self.names = [entry.name for entry in entries]
        self.done: dict[str, Result | Failure | NotRun] = {}
        self.next = 0.0

    def start(self) -> None:
        """The first version, and where to find it."""
        self._write_unfinished()
        typer.echo(f"Open {self.out / 'index.html'} in a browser; results are added as they arrive.")

    def add(self, event: Event) -> None:
        """Take what is finished; write the page if the last version is old."""
        self.done[event.outcome.claim] = event.outcome
        if time.monotonic() >= self.next and len(self.done) < len(self.names):
            self._write_unfinished()

    def write(self, run: AtlasRun, *, jobs: int = 1, **why: str) -> Path:
        """Write a version."""
        from measureformer.atlas.report import write_report

        results = [*run.results, *self.others]
        return write_report(results, self.out, missing=run.missing(**why), survey=self.about, jobs=jobs)

    def _write_unfinished(self) -> None:
        from measureformer.atlas.run import AtlasRun

        started = time.monotonic()
        self.write(AtlasRun.of(self.names, self.done), left="not reached yet; reload the page to see newer results.")
        ended = time.monotonic()
        self.next = ended + max(self.PATIENCE, self.SHARE * (ended - started))


@contextmanager
def _progress(total: int) -> Generator[Callable[[Event], None], None, None]:
    """The callback for finished claims: a bar with the time left on a terminal, a line for each claim elsewhere."""
    if not on_terminal():
        yield lambda event: typer.echo(_line(event))
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(), transient=True) as bar:
        task = bar.add_task("claims", total=total, left="time left unknown")

        def show(event: Event) -> None:
            bar.console.print(Text.from_ansi(_line(event)))
            bar.update(task, completed=event.done, left=_left(event))

        yield show


def _left(event: Event) -> str:
    """The time left in words, once there is an estimate."""
    if event.left is None or event.done == event.total:
        return ""
    return f"about {event.left / 60:.0f} min left" if event.left > 90 else f"about {event.left:.0f} s left"


def _line(event: Event) -> str:
    from measureformer.atlas.result import Result
    from measureformer.atlas.run import NotRun
    from measureformer.atlas.words import status
    from measureformer.pages.words import number

    # on a terminal the bar says it
    left = "" if on_terminal() else _left(event)
    count = f"[{event.done}/{event.total}]"
    if isinstance(event.outcome, Result):
        seconds = "reused" if event.reused else f"{number(event.outcome.seconds)} s"
        words = f"{seconds}, {left}" if left else seconds
        return f"{count} {colored(status(event.outcome), 20)}  {event.outcome.claim}  ({words})"
    if isinstance(event.outcome, NotRun):
        return f"{count} {colored('not run', 20)}  {event.outcome.claim}  needs {cleaned(event.outcome.message)}"
    return f"{count} {colored('raised', 20)}  {cleaned(event.outcome.message)}"


def _conclude(done: AtlasRun, page: Path) -> None:
    """Say how it went, where the page is, and what to do next."""
    from measureformer.atlas.words import status

    troubled = [result.claim for result in done.results if not result.passes]
    for failure in done.failures:
        typer.echo(failure.traceback, err=True, nl=False)
    passed = len(done.results) - len(troubled)
    typer.echo(f"{passed} of {passed + len(troubled) + len(done.failures) + len(done.left)} claims pass.")
    for result in done.results:
        if not result.passes:
            typer.echo(f"  {colored(status(result), 20)}  {result.claim}")
    for needed, count in Counter(claim.message for claim in done.not_run).items():
        typer.echo(f"  {colored('not run', 20)}  {count} {'needs' if count == 1 else 'need'} {cleaned(needed)}")
    typer.echo(f"The page is {page}: open it in a browser.")
    if done.interrupted:
        typer.echo(f"Interrupted; left to run: {', '.join(done.left)}. Rerunning the command resumes it.", err=True)
        raise typer.Exit(INTERRUPTED)
    if troubled or done.failures:
        first = (troubled + [failure.claim for failure in done.failures])[0]
        typer.echo(f"Next: measureformer check {first}")
        raise typer.Exit(VIOLATED)
    typer.echo("Next: measureformer check NAME --seeds 20 repeats one of them with other randomness.")
