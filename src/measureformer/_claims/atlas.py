"""Running many claims: results that survive interruption, are reused when nothing changed, and may run in parallel.

Each result is written by the process that measured it, whole and at once, so that Ctrl-C, a crash or a full disk loses
at most the claims that were still running.
"""

from __future__ import annotations

import importlib
import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from measureformer._claims.base import Preset
from measureformer._claims.registry import Entry, fingerprint_of, load, require, run
from measureformer.errors import ClaimNotRunError, ClaimRunError, OptionError, ResultFormatError
from measureformer.files import claim_file, write_atomically
from measureformer.result import Result

RESULTS = "results"


@dataclass(frozen=True)
class Settings:
    """How an atlas is run. Results go to `out/results`; `fresh` runs what could be reused."""

    out: Path
    preset: Preset = "quick"
    seed: int = 0
    jobs: int = 1
    fresh: bool = False


@dataclass(frozen=True)
class Failure:
    """A claim whose experiment raised: nothing was measured."""

    claim: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class NotRun:
    """A claim that could not be run, because what it is about is not installed."""

    claim: str
    message: str


@dataclass(frozen=True)
class Event:
    """One claim is done, `done` of `total` so far; `reused` if its stored result was still good."""

    outcome: Result | Failure | NotRun
    done: int
    total: int
    reused: bool = False


@dataclass(frozen=True)
class AtlasRun:
    """What a run of the atlas produced, in the order of the claims, and the names of those it did not get to."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    left: tuple[str, ...]
    not_run: tuple[NotRun, ...] = ()

    @property
    def interrupted(self) -> bool:
        return bool(self.left)

    @property
    def passes(self) -> bool:
        return not self.failures and not self.left and all(result.passes for result in self.results)


def run_atlas(entries: Sequence[Entry], settings: Settings, on_event: Callable[[Event], None]) -> AtlasRun:
    """Run every claim whose stored result cannot be reused.

    A claim that raises is reported and the others go on. Ctrl-C ends the run; what is finished is kept on disk and in
    the returned value.
    """
    require(settings.seed, settings.preset)
    if settings.jobs < 1:
        raise OptionError(got=f"{settings.jobs} jobs", need="at least one", do="Leave --jobs out for one.")
    done: dict[str, Result | Failure | NotRun] = {}

    def finish(outcome: Result | Failure | NotRun, *, reused: bool = False) -> None:
        done[outcome.claim] = outcome
        on_event(Event(outcome, len(done), len(entries), reused))

    with suppress(KeyboardInterrupt):
        waiting: list[Entry] = []
        for entry in entries:
            result = None if settings.fresh else stored(entry, settings)
            if result is None:
                waiting.append(entry)
            else:
                finish(result, reused=True)
        with closing(_outcomes(waiting, settings)) as outcomes:
            for outcome in outcomes:
                finish(outcome)
    if not settings.fresh:
        # a worker may have written a result that the interrupted parent did not hear of
        late = {entry.name: stored(entry, settings) for entry in entries if entry.name not in done}
        done |= {name: result for name, result in late.items() if result is not None}
    outcomes = [done[entry.name] for entry in entries if entry.name in done]
    return AtlasRun(
        results=tuple(outcome for outcome in outcomes if isinstance(outcome, Result)),
        failures=tuple(outcome for outcome in outcomes if isinstance(outcome, Failure)),
        left=tuple(entry.name for entry in entries if entry.name not in done),
        not_run=tuple(outcome for outcome in outcomes if isinstance(outcome, NotRun)),
    )


def stored(entry: Entry, settings: Settings) -> Result | None:
    """The result on disk, if it can be read and running the claim again would give the same."""
    try:
        text = claim_file(settings.out / RESULTS, entry.name, "json").read_text(encoding="utf-8")
        result = Result.from_json(text)
    except (OSError, UnicodeDecodeError, ResultFormatError):
        return None
    wanted = fingerprint_of(entry, seed=settings.seed, preset=settings.preset)
    return result if (result.claim, result.fingerprint) == (entry.name, wanted) else None


def _run_and_store(entry: Entry, settings: Settings) -> Result | Failure | NotRun:
    try:
        result = run(entry, seed=settings.seed, preset=settings.preset)
    except ClaimNotRunError as missing:
        return NotRun(entry.name, missing.do)
    except ClaimRunError as error:
        return Failure(entry.name, error.got, "".join(traceback.format_exception(error.__cause__ or error)))
    write_atomically(claim_file(settings.out / RESULTS, entry.name, "json"), result.to_json().encode())
    return result


def _outcomes(entries: Sequence[Entry], settings: Settings) -> Generator[Result | Failure | NotRun, None, None]:
    workers = min(settings.jobs, len(entries))
    if workers > 1:
        yield from _in_parallel(entries, settings, workers)
    else:
        yield from (_run_and_store(entry, settings) for entry in entries)


def _in_worker(module: str, settings: Settings) -> Result | Failure | NotRun:
    # Ctrl-C reaches the whole process group; the parent decides what becomes of a worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _run_and_store(load(module), settings)


def _in_parallel(
    entries: Sequence[Entry], settings: Settings, workers: int
) -> Generator[Result | Failure | NotRun, None, None]:
    """Outcomes in the order in which the worker processes finish; a worker that dies is a failure of what it left."""
    joblib = cast(Any, importlib.import_module("joblib"))
    loky = cast(Any, importlib.import_module("joblib.externals.loky"))
    left = {entry.name for entry in entries}
    # only the module's name travels: an experiment may close over things that cannot be sent
    jobs = [joblib.delayed(_in_worker)(entry.module, settings) for entry in entries]
    parallel = joblib.Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", batch_size=1)
    outcomes = cast(Generator[Result | Failure | NotRun, None, None], parallel(jobs))
    try:
        for outcome in outcomes:
            left.discard(outcome.claim)
            yield outcome
    except loky.process_executor.BrokenProcessPool as error:
        for name in sorted(left):
            yield Failure(name, f"a worker process died before claim {name} was finished: {error}")
    finally:
        with warnings.catch_warnings():
            # busy workers would keep an interrupted run from ending; joblib warns that it cancels them
            warnings.simplefilter("ignore", UserWarning)
            outcomes.close()
        # idle workers would hold their memory for minutes
        loky.get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)
