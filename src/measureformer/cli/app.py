"""The command line: list claims, check some, write the atlas, recall pictures; the rest is in `commands`.

Only Typer is imported here; JAX, Rich and the report are loaded by the commands that need them, so that help is quick.
On a terminal there are colours and a progress bar, elsewhere plain lines.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from measureformer import __version__
from measureformer.cli import archive, diff, explore, lens, text
from measureformer.cli import incontext as icl
from measureformer.cli.completion import claim_names
from measureformer.cli.output import aligned, bare_table, on_terminal
from measureformer.errors import ClaimNotRunError, ClaimRunError, MeasureformerError, OptionError

if TYPE_CHECKING:
    from measureformer.atlas.claim import Preset
    from measureformer.atlas.registry import Entry
    from measureformer.atlas.result import Result
    from measureformer.atlas.run import AtlasRun, Event

VIOLATED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: a claim did not pass · the command could not be carried out · Ctrl-C."""

PACKAGE_VARIABLE = "MEASUREFORMER_CLAIMS"
"""Names another package of chapters, for people who write claims outside of this one."""

_INTRODUCTION = """\
measureformer {version}: a layer is a function of a measure and a point; applying it is a push-forward.

What to type next:
  measureformer claims          the statements of the theory that can be checked
  measureformer check NAME      check one of them, with its control, in seconds
  measureformer atlas --quick   check all of them and write atlas/index.html
  measureformer diff OLD NEW    what changed between two atlases
  measureformer memory FOLDER   recall your own pictures from halves of them
  measureformer lens [PATH]     measure a pretrained transformer on a text; without a path, the small one in the box
  measureformer icl train       train a model to learn from its prompt, and compare it with classical learners
  measureformer text train      train a small language model on a text, and let it write
  measureformer explore         drag tokens, draw functions and digits, in the browser
  measureformer --help          everything else
"""


class _Commands(TyperGroup):
    """Refusals become one message and exit code 2, Ctrl-C a sentence and exit code 130, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MeasureformerError as refusal:
            _complain(f"measureformer: {refusal}")
            raise typer.Exit(REFUSED) from None
        except KeyboardInterrupt:
            _complain("Interrupted; nothing that was finished is lost.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(icl.app, name="icl")
app.add_typer(text.app, name="text")

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quick = Annotated[bool, typer.Option("--quick/--full", help="Small sizes that take seconds, or the real ones.")]


def main() -> None:
    """Entry point of the command `measureformer`."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal that cannot show a character shows a question mark instead of ending the run
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="measureformer")


@app.callback(invoke_without_command=True)
def introduce(context: typer.Context) -> None:
    """Transformers as maps between measures: check the claims of the theory, each with its control."""
    if context.invoked_subcommand is None:
        typer.echo(_INTRODUCTION.format(version=__version__), nl=False)


@app.command()
def claims(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the claims: name, chapter, title, reference."""
    entries = _select([])
    if as_json:
        keys = ("name", "chapter", "title", "statement", "reference")
        rows = [(e.name, e.chapter, e.claim.title, e.claim.statement, e.claim.reference) for e in entries]
        typer.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1, ensure_ascii=False))
        return
    rows = [(e.name, e.chapter, e.claim.title, e.claim.reference) for e in entries]
    if not on_terminal():
        for line in aligned(rows):
            typer.echo(line)
        return
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    # names are there to be copied: the other columns give way
    others = (Column(word, overflow="fold") for word in ("title", "reference"))
    table = bare_table(Column("name", no_wrap=True), *others)
    for i, (name, chapter, title, reference) in enumerate(rows):
        if i == 0 or chapter != rows[i - 1][1]:
            table.add_row(Text(chapter, style="bold"))
        table.add_row(*(Text(_one_line(cell)) for cell in (name, title, reference)))
    Console().print(table)


@app.command()
def check(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of claims.", autocompletion=claim_names)],
    seed: Seed = 0,
    quick: Quick = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as a JSON list.")] = False,
) -> None:
    """Run claims and their controls, and say what was measured. Exit code 1 if one does not pass."""
    from measureformer.atlas.registry import find, run

    entries = [find(name, package=_package()) for name in dict.fromkeys(names)]
    results: list[Result] = []
    for entry in entries:
        try:
            result = run(entry, seed=seed, preset=_preset(quick))
        except ClaimNotRunError as missing:
            typer.echo(f"{_colored('not run')}  {entry.name}  {_one_line(missing.do)}", err=as_json)
            continue
        except ClaimRunError as error:
            _complain_with_cause(error)
            continue
        results.append(result)
        if not as_json:
            _tell(result)
    if as_json:
        typer.echo(json.dumps([json.loads(result.to_json()) for result in results], indent=1, ensure_ascii=False))
    passed = sum(result.passes for result in results)
    raise typer.Exit(0 if passed == len(entries) else VIOLATED)


@app.command()
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
    backend: Annotated[str, typer.Option(help="processes of this machine, or dask for a cluster.")] = "processes",
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of the cluster: tcp://HOST:8786.")] = None,
) -> None:
    """Check all claims and write pages about them. What is finished is kept: a second run goes on from there."""
    from measureformer.atlas.report import write_report
    from measureformer.atlas.run import Settings, run_atlas, stored
    from measureformer.atlas.survey import survey

    if backend not in ("processes", "dask") or (backend == "dask") != bool(scheduler):
        raise OptionError(
            got=f"the backend {backend!r} with{f' the scheduler {scheduler!r}' if scheduler else 'out a scheduler'}",
            need="processes, or dask together with a scheduler",
            do="measureformer atlas --backend dask --scheduler tcp://HOST:8786",
        )
    everything = _select([])
    entries = _select(only or [])
    settings = Settings(out, _preset(quick), seed, jobs, fresh, scheduler)
    with _progress(len(entries)) as on_event:
        done = run_atlas(entries, settings, on_event)
    # what was not asked for stays on the page as long as it is good
    chosen = {entry.name for entry in entries}
    others = [stored(entry, settings) for entry in everything if entry.name not in chosen]
    about = survey(everything, package=_package())
    page = write_report([*done.results, *filter(None, others)], out, missing=done.missing(), survey=about, jobs=jobs)
    _conclude(done, page)


# what follows the name of the script belongs to the script
@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS...", help="Its arguments.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-n", help="How many processes.")] = 2,
) -> None:
    """Run a script in several workers that share one mesh; all are ended when one is lost. See `mf.join_workers`."""
    from measureformer.parallel.launch import launch

    launch(script, arguments or [], workers=workers)


@app.command()
def memory(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PICTURES...", help="Files, or folders of them, to be stored.")
    ],
    query: Annotated[
        list[Path] | None, typer.Option(help="A picture to start from; otherwise the stored ones.")
    ] = None,
    mask: Annotated[
        float | None, typer.Option(help="Share at the bottom that is hidden; 0.5 if nothing is said.")
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Share of the pixels that are turned to their negative.")] = None,
    generation: Annotated[str, typer.Option(help="modern, dense, classical, or all three.")] = "modern",
    beta: Annotated[
        float | None, typer.Option(help="Inverse temperature of a modern memory; chosen by itself.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Resize all pictures to WIDTHxHEIGHT, such as 32x32.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of what is recalled.")] = Path("recalled"),
    seed: Seed = 0,
) -> None:
    """Store your own pictures, and recall them from masked or noisy versions. Writes what came back, and a sheet."""
    from measureformer.cli.memory import Damage, run

    damage = Damage(mask, noise, seed)
    for line in run(paths, query or [], damage, generation=generation, beta=beta, size=size, out=out):
        typer.echo(_one_line(line))


for command in (lens.lens, diff.diff, explore.explore, archive.archive):
    app.command()(command)


@app.command()
def version() -> None:
    """Print the versions that results depend on."""
    from measureformer.atlas.registry import versions

    for name, number in versions().items():
        typer.echo(f"{name:14} {number}")
    typer.echo(f"{'machine':14} {platform.system()} {platform.machine()}, {os.cpu_count()} cores")


def _preset(quick: bool) -> Preset:
    return "quick" if quick else "full"


def _package() -> str:
    from measureformer.atlas.registry import PACKAGE

    return os.environ.get(PACKAGE_VARIABLE) or PACKAGE


def _select(patterns: Sequence[str]) -> tuple[Entry, ...]:
    from measureformer.atlas.registry import select

    return select(patterns, package=_package())


def _one_line(text: str) -> str:
    from measureformer.pages.words import one_line

    return one_line(text)


def _complain(text: str) -> None:
    typer.echo(_one_line(text), err=True)


def _complain_with_cause(error: ClaimRunError) -> None:
    """A claim that raises is a mistake in its code: whoever mends it needs the traceback."""
    import traceback

    if error.__cause__ is not None:
        typer.echo("".join(traceback.format_exception(error.__cause__)), err=True, nl=False)
    _complain(f"measureformer: {error}")


_COLORS = {
    "holds": "green",
    "violated": "red",
    "inconclusive": "yellow",
    "control passed": "yellow",
    "raised": "red",
    "not run": "yellow",
}


def _colored(word: str, width: int = 0) -> str:
    """The word, in its colour if it goes to a terminal that wants colours."""
    plain = word.ljust(width)
    return typer.style(plain, fg=_COLORS[word]) if on_terminal() and not os.environ.get("NO_COLOR") else plain


def _tell(result: Result) -> None:
    """What a claim and its control measured, for people."""
    from measureformer.atlas.words import interval, measured, status
    from measureformer.pages.words import number

    typer.echo(f"{_colored(status(result))}  {result.claim}  {_one_line(result.title)}")
    for said, outcome in (("claim", result.run), ("control", result.control)):
        typer.echo(f"  {said} {outcome.verdict}, margin {number(outcome.margin)}")
        for check in outcome.checks:
            numbers = f"{measured(check)}, claimed {interval(check)}, margin {number(check.margin)}"
            typer.echo(f"    {_one_line(check.name)}: {numbers}")
    typer.echo(f"  control: {_one_line(result.control_statement)}")
    typer.echo(f"  {number(result.seconds)} s; again with: {result.command}")


@contextmanager
def _progress(total: int) -> Generator[Callable[[Event], None], None, None]:
    """What to call when a claim is done: a bar with the time left on a terminal, a line each elsewhere."""
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
        return f"{count} {_colored(status(event.outcome), 14)}  {event.outcome.claim}  ({words})"
    if isinstance(event.outcome, NotRun):
        return f"{count} {_colored('not run', 14)}  {event.outcome.claim}  {_one_line(event.outcome.message)}"
    return f"{count} {_colored('raised', 14)}  {_one_line(event.outcome.message)}"


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
            typer.echo(f"  {_colored(status(result), 14)}  {result.claim}")
    if done.not_run:
        typer.echo(f"  {_colored('not run', 14)}  {len(done.not_run)}, for want of weights: make lens-data")
    typer.echo(f"The page is {page}: open it in a browser.")
    if done.interrupted:
        typer.echo(f"Interrupted; left to run: {', '.join(done.left)}. The same command goes on from here.", err=True)
        raise typer.Exit(INTERRUPTED)
    if troubled or done.failures:
        first = (troubled + [failure.claim for failure in done.failures])[0]
        typer.echo(f"Next: measureformer check {first}")
        raise typer.Exit(VIOLATED)
    typer.echo("Next: measureformer check NAME --seed 1 repeats one of them with other randomness.")
