"""Running many claims: results that survive interruption, are reused when nothing changed, and may run in parallel.

Each result is written by the process that measured it, whole and at once, so that Ctrl-C, a crash or a full disk loses
at most the claims that were still running. Workers of a cluster may have another disk: their results are sent here and
written here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measureformer.atlas.atlas import Missing
from measureformer.atlas.claim import Preset
from measureformer.atlas.errors import ClaimDefinitionError, ClaimNotRunError, ClaimRunError
from measureformer.atlas.index import Listed
from measureformer.atlas.names import claim_file
from measureformer.atlas.registry import fingerprint_of, load, require, run, tried
from measureformer.atlas.result import Result
from measureformer.errors import ResultFormatError
from measureformer.parallel.pool import Lost, Pool
from measureformer.parallel.progress import hushed
from measureformer.storage.files import require_file, write_atomically
from measureformer.storage.lock import only_writer

RESULTS = "results"
DO = "Choose another folder with --out, or make room."
BRIEF = 20.0
"""Fresh seeds are run of claims that take fewer seconds than this on one."""


@dataclass(frozen=True)
class Settings:
    """How to run an atlas.

    Arguments:
        out: folder of the atlas; results go to `out/results`.
        preset: "quick" sizes take seconds, "full" ones are those of the statements.
        seed: seed of all claims.
        jobs: claims that run at the same time on this machine.
        fresh: run claims again whose stored results could be reused.
        scheduler: address of a Dask scheduler; claims then run on its workers.
        seeds: fresh seeds on which claims that take less than 20 seconds are run again, for the share that passes.
    """

    out: Path
    preset: Preset = "quick"
    seed: int = 0
    jobs: int = 1
    fresh: bool = False
    scheduler: str | None = None
    seeds: int = 0


@dataclass(frozen=True)
class Failure:
    """A claim whose measurement raised: nothing was measured."""

    claim: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class NotRun:
    """A claim that could not be run, because what it is about is not installed; `message` says what to install."""

    claim: str
    message: str


@dataclass(frozen=True)
class Event:
    """One claim is finished, `done` of `total` so far; `left` estimates the remaining seconds."""

    outcome: Result | Failure | NotRun
    done: int
    total: int
    reused: bool = False
    left: float | None = None


@dataclass(frozen=True)
class AtlasRun:
    """What a run of the atlas produced, in the order of the claims, and the names of those it did not get to."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    left: tuple[str, ...]
    not_run: tuple[NotRun, ...] = ()

    @staticmethod
    def of(names: Sequence[str], done: Mapping[str, Result | Failure | NotRun]) -> AtlasRun:
        """A run of these claims, of which some are done."""
        outcomes = [done[name] for name in names if name in done]
        return AtlasRun(
            results=tuple(outcome for outcome in outcomes if isinstance(outcome, Result)),
            failures=tuple(outcome for outcome in outcomes if isinstance(outcome, Failure)),
            left=tuple(name for name in names if name not in done),
            not_run=tuple(outcome for outcome in outcomes if isinstance(outcome, NotRun)),
        )

    @property
    def interrupted(self) -> bool:
        return bool(self.left)

    @property
    def passes(self) -> bool:
        return not self.failures and not self.left and all(result.passes for result in self.results)

    def missing(self, left: str = "the run was interrupted; the same command resumes it.") -> list[Missing]:
        """The claims without a result, for the report.

        Arguments:
            left: why those that are left are not finished.
        """
        return [
            *(Missing(failure.claim, "raised", failure.message) for failure in self.failures),
            *(Missing(name, "not finished", left) for name in self.left),
            *(Missing(claim.claim, "not run", f"needs {claim.message}") for claim in self.not_run),
        ]


def run_atlas(
    entries: Sequence[Listed],
    settings: Settings,
    on_event: Callable[[Event], None],
    on_start: Callable[[], None] = lambda: None,
) -> AtlasRun:
    """Run every claim whose stored result cannot be reused.

    If a claim raises, the others still run. Ctrl-C ends the run and keeps what is finished, on disk and in the returned
    value.

    Arguments:
        entries: the claims.
        settings: how and where to run them.
        on_event: called after each claim.
        on_start: called before the first, once nobody else writes to the folder.
    """
    require(settings.seed, settings.preset)
    pool = Pool(settings.jobs, settings.scheduler)
    done: dict[str, Result | Failure | NotRun] = {}
    clock = _Clock({})

    def finish(outcome: Result | Failure | NotRun, *, reused: bool = False) -> None:
        done[outcome.claim] = outcome
        on_event(Event(outcome, len(done), len(entries), reused, None if reused else clock.left(outcome.claim)))

    with only_writer(settings.out, do=DO), suppress(KeyboardInterrupt):
        on_start()
        waiting: list[Listed] = []
        for entry in entries:
            result = None if settings.fresh else stored(entry, settings)
            if result is None or _lacking(result, settings):
                waiting.append(entry)
            else:
                finish(result, reused=True)
        clock = _Clock({entry.name: _seconds_before(entry, settings) for entry in waiting})
        # the longest first, so that none of them is left alone at the end
        waiting.sort(key=lambda entry: -(clock.expected[entry.name] or 0.0))
        with closing(_outcomes(waiting, settings, pool)) as outcomes:
            for outcome in outcomes:
                finish(outcome)
    if not settings.fresh:
        # a worker may have written a result that the interrupted parent did not hear of
        late = {entry.name: stored(entry, settings) for entry in entries if entry.name not in done}
        done |= {name: result for name, result in late.items() if result and not _lacking(result, settings)}
    return AtlasRun.of([entry.name for entry in entries], done)


def stored(entry: Listed, settings: Settings) -> Result | None:
    """The result on disk, if it can be read and running the claim again would give the same."""
    result = _on_disk(entry, settings)
    if result is None:
        return None
    try:
        wanted = fingerprint_of(load(entry), seed=settings.seed, preset=settings.preset)
    except ClaimDefinitionError:
        # running it says what is wrong
        return None
    return result if (result.claim, result.fingerprint) == (entry.name, wanted) else None


def _on_disk(entry: Listed, settings: Settings) -> Result | None:
    try:
        require_file(file := claim_file(settings.out / RESULTS, entry.name, "json"))
        return Result.from_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ResultFormatError):
        return None


def _seconds_before(entry: Listed, settings: Settings) -> float | None:
    """How long the claim took when it was last run, even if that result is no longer good."""
    result = _on_disk(entry, settings)
    if not result or (result.claim, result.preset) != (entry.name, settings.preset):
        return None
    return result.seconds * (1 + (settings.seeds if result.seconds < BRIEF else 0))


def _lacking(result: Result, settings: Settings) -> bool:
    """Whether fresh seeds are still to be run."""
    return len(result.trials) < settings.seeds and result.seconds < BRIEF


class _Clock:
    """The time left, from the time since the start and the share of the expected work that is done."""

    def __init__(self, expected: Mapping[str, float | None]) -> None:
        self.expected = dict(expected)
        self.waiting = set(expected)
        self.start = time.monotonic()

    def left(self, name: str) -> float:
        """To be called when a claim is finished."""
        self.waiting.discard(name)
        known = [seconds for seconds in self.expected.values() if seconds is not None]
        usual = max(sum(known) / len(known), 1e-3) if known else 1.0
        work = {claim: usual if seconds is None else seconds for claim, seconds in self.expected.items()}
        rest = sum(work[claim] for claim in self.waiting)
        finished = max(sum(work.values()) - rest, 1e-9)
        return (time.monotonic() - self.start) * rest / finished


def _measured(entry: Listed, settings: Settings) -> Result:
    """The result with its trials; each is kept at once, and what is on disk is not run again."""
    result = None if settings.fresh else stored(entry, settings)
    if result is None:
        result = _kept(run(load(entry), seed=settings.seed, preset=settings.preset), settings)
    while _lacking(result, settings):
        result = _kept(tried(entry, result, len(result.trials) + 1), settings)
    return result


def _kept(result: Result, settings: Settings) -> Result:
    # workers of a cluster may have another disk
    return result if settings.scheduler else _store(result, settings)


def _store(result: Result, settings: Settings) -> Result:
    write_atomically(claim_file(settings.out / RESULTS, result.claim, "json"), result.to_json().encode(), do=DO)
    return result


def _task(settings: Settings, listed: Listed) -> Result | Failure | NotRun:
    """What a worker does; it gets the place of the claim, because a claim may hold what cannot be pickled."""
    try:
        # the atlas says how far it is
        with hushed():
            return _measured(listed, settings)
    except ClaimNotRunError as missing:
        return NotRun(listed.name, missing.need)
    except (ClaimDefinitionError, ClaimRunError) as error:
        return Failure(listed.name, error.got, "".join(traceback.format_exception(error.__cause__ or error)))


def _outcomes(
    entries: Sequence[Listed], settings: Settings, pool: Pool
) -> Generator[Result | Failure | NotRun, None, None]:
    """Outcomes in the order in which they are finished; a worker that dies is a failure of what it left."""
    if pool.scheduler is None and min(pool.jobs, len(entries)) == 1:
        yield from (_task(settings, entry) for entry in entries)
        return
    if not entries:
        return
    with closing(pool.each(partial(_task, settings), entries)) as values:
        for i, outcome in values:
            entry = entries[i]
            if isinstance(outcome, Lost):
                yield Failure(
                    entry.name, f"a worker process died before claim {entry.name} was finished: {outcome.why}"
                )
            elif pool.scheduler is not None:
                found = _same_version(outcome, entry, settings)
                yield _store(found, settings) if isinstance(found, Result) else found
            else:
                yield outcome


def _same_version(outcome: Result | Failure | NotRun, entry: Listed, settings: Settings) -> Result | Failure | NotRun:
    """A result of other sources than those here is no result of this atlas."""
    wanted = fingerprint_of(load(entry), seed=settings.seed, preset=settings.preset)
    if isinstance(outcome, Result) and outcome.fingerprint != wanted:
        return Failure(entry.name, f"the worker that ran claim {entry.name} has other versions than this machine")
    return outcome
