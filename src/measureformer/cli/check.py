"""`measureformer check`: run claims and their controls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from measureformer.atlas.errors import ClaimNotRunError, ClaimRunError
from measureformer.cli.completion import claim_names
from measureformer.cli.options import VIOLATED, Quick, Seed, preset_of
from measureformer.cli.output import cleaned, colored, complain

if TYPE_CHECKING:
    from measureformer.atlas.result import Check, Result
    from measureformer.parallel.pool import Pool

OFTEN = 0.95
"""Share of fresh seeds on which a claim should pass."""


def check(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of claims.", autocompletion=claim_names)],
    seed: Seed = 0,
    quick: Quick = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as a JSON list.")] = False,
    seeds: Annotated[int, typer.Option(help="Fresh seeds to run as well, for the share that passes.", min=0)] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes for fresh seeds; by default as many as cores.")] = None,
) -> None:
    """Run claims and their controls, and print what was measured.

    Exit code 1 if one does not pass, or passes on less than 95 % of the fresh seeds.
    """
    from measureformer.atlas.registry import find, run, tried

    entries = [find(name) for name in dict.fromkeys(names)]
    results: list[Result] = []
    for entry in entries:
        try:
            result = run(entry, seed=seed, preset=preset_of(quick))
            if seeds:
                result = tried(entry.listed, result, seeds, _pool(jobs))
        except ClaimNotRunError as missing:
            typer.echo(f"{colored('not run')}  {entry.name}  needs {cleaned(missing.need)}", err=as_json)
            continue
        except ClaimRunError as error:
            _complain_with_cause(error)
            continue
        results.append(result)
        if not as_json:
            _tell(result)
    if as_json:
        typer.echo(json.dumps([result.entries() for result in results], indent=1, ensure_ascii=False))
    passed = sum(result.passes and (result.rate is None or result.rate[0] >= OFTEN) for result in results)
    raise typer.Exit(0 if passed == len(entries) else VIOLATED)


def _pool(jobs: int | None) -> Pool:
    import os

    from measureformer.parallel.pool import Pool

    # each process takes about a gigabyte
    return Pool(min(os.cpu_count() or 1, 8) if jobs is None else jobs)


def _complain_with_cause(error: ClaimRunError) -> None:
    """A claim that raises has a mistake in its code, and the traceback shows where."""
    import traceback

    if error.__cause__ is not None:
        typer.echo("".join(traceback.format_exception(error.__cause__)), err=True, nl=False)
    complain(f"measureformer: {error}")


def _tell(result: Result) -> None:
    """What a claim measured, and which controls rejected which check."""
    from measureformer.atlas.words import failures, interval, measured, often, status
    from measureformer.pages.words import number

    typer.echo(f"{colored(status(result))}  {result.claim}  {cleaned(result.title)} ({result.kind})")
    typer.echo(f"  claim {result.run.verdict}, margin {number(result.run.margin)}")
    for one in result.run.checks:
        numbers = f"{measured(one)}, claimed {interval(one)}, margin {number(one.margin)}"
        typer.echo(f"    {cleaned(one.name)}: {numbers}{' (context, no evidence)' if one.context else ''}")
        for line in _controls(result, one):
            typer.echo(f"      {cleaned(line)}")
    for control in result.controls:
        typer.echo(f"  control {cleaned(control.name)}: {cleaned(control.statement)}")
    if result.trials:
        typer.echo(f"  fresh seeds that pass: {often(result)}")
    for line in failures(result):
        typer.echo(f"    {cleaned(line)}")
    typer.echo(f"  {number(result.seconds)} s; again with: {result.command}")


def _controls(result: Result, check: Check) -> list[str]:
    """A line for each control that must reject the check."""
    from measureformer.atlas.words import measured

    lines: list[str] = []
    for control in result.controls:
        found = next((one for one in control.outcome.checks if one.name == check.name), None)
        if control.name in check.rejected_by and found is not None:
            verdict = "rejected" if found.verdict == "violated" else f"{found.verdict}, should be rejected"
            lines.append(f"control {control.name}: {measured(found)}, {verdict}")
    return lines
