"""`sweep`: a function at many points, here, in processes of this machine, or on a Dask cluster; `Workers` says where.

All through joblib. What the function raises is raised again; a worker that dies is no error of the function: on a
cluster its points go to the other workers, and on one machine they are reported as lost.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent import futures
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from measureformer.errors import DependencyError, OptionError, SchedulerError, WorkerLost
from measureformer.parallel.progress import bar, hushed

S = TypeVar("S")
T = TypeVar("T")

PATIENCE = 5.0
"""Seconds within which a scheduler must answer, and have a worker."""


@dataclass(frozen=True)
class Lost:
    """What stands for the value of a function whose worker died."""

    why: str


@dataclass(frozen=True)
class Workers:
    """Where a sweep runs: `jobs` processes of this machine, or the Dask cluster whose scheduler has this address.

    Every worker of a cluster needs the same measureformer and one thread; anybody who can reach a scheduler can run
    code on its workers and read what they return, so it belongs into a network that you trust.

    >>> import measureformer as mf
    >>> mf.Workers(jobs=2)
    Workers(jobs=2, scheduler=None)
    """

    jobs: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if type(self.jobs) is not int or self.jobs < 1:
            raise OptionError(got=f"{self.jobs!r} jobs", need="at least one", do="Leave jobs out for one.")
        if self.scheduler is not None and (type(self.scheduler) is not str or not self.scheduler.strip()):
            raise OptionError(
                got=f"the scheduler {self.scheduler!r}",
                need="an address such as tcp://10.0.0.1:8786",
                do="`dask scheduler` prints it when it starts.",
            )

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> Generator[tuple[int, T | Lost], None, None]:
        """(i, function(items[i])) for all i, in the order in which they are finished."""
        if self.scheduler is not None:
            return _on_cluster(function, items, self.scheduler)
        workers = min(self.jobs, len(items))
        return _in_processes(function, items, workers) if workers > 1 else _here(function, items)

    def values(self, function: Callable[[S], T], items: Sequence[S]) -> Generator[tuple[int, T], None, None]:
        """The same; a value that is lost is an error."""
        with closing(self.each(function, items)) as found:
            for i, value in found:
                if isinstance(value, Lost):
                    raise WorkerLost(
                        got=f"no value at point {i}: {value.why}",
                        need="workers that live until the function returns",
                        do="Give them more memory, or use fewer of them at a time.",
                    )
                yield i, value


def sweep(function: Callable[[S], T], points: Sequence[S], *, workers: Workers | None = None) -> list[T]:
    """`[function(point) for point in points]`, in parallel, with a bar that shows the time left.

    The function, the points and the values travel between processes: a function of a module, or a lambda, will do; a
    key goes as `jax.random.key_data(key)`. Values come back in the order of the points.

    >>> import measureformer as mf
    >>> mf.sweep(lambda beta: 2 * beta, [0.5, 1.0])
    [1.0, 2.0]
    """
    items = list(points)
    found: dict[int, T] = {}
    with bar("sweep", len(items)) as show, closing((workers or Workers()).values(function, items)) as values:
        for i, value in values:
            found[i] = value
            show(len(found), f"{len(found)} of {len(items)}")
    return [found[i] for i in range(len(items))]


def _here(function: Callable[[S], T], items: Sequence[S]) -> Generator[tuple[int, T | Lost], None, None]:
    yield from ((i, function(item)) for i, item in enumerate(items))


def _numbered(function: Callable[[S], T], i: int, item: S) -> tuple[int, T]:
    # bars of several workers at once would be written into each other
    with hushed():
        return i, function(item)


def _in_worker(function: Callable[[S], T], i: int, item: S) -> tuple[int, T]:
    # Ctrl-C reaches the whole process group; the parent decides what becomes of a worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _numbered(function, i, item)


def _in_processes(
    function: Callable[[S], T], items: Sequence[S], workers: int
) -> Generator[tuple[int, T | Lost], None, None]:
    joblib = cast(Any, importlib.import_module("joblib"))
    loky = cast(Any, importlib.import_module("joblib.externals.loky"))
    # a worker that has grown is replaced by a new one, and nothing is lost; the warning comes from a thread of loky
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    left = set(range(len(items)))
    jobs = [joblib.delayed(_in_worker)(function, i, item) for i, item in enumerate(items)]
    parallel = joblib.Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", batch_size=1)
    values = cast(Generator[tuple[int, T], None, None], parallel(jobs))
    try:
        for i, value in values:
            left.discard(i)
            yield i, value
    except loky.process_executor.BrokenProcessPool as error:
        yield from ((i, Lost(f"a worker process died: {error}")) for i in sorted(left))
    finally:
        with warnings.catch_warnings():
            # busy workers would keep an interrupted run from ending; joblib warns that it cancels them
            warnings.simplefilter("ignore", UserWarning)
            values.close()
        # idle workers would hold their memory for minutes
        loky.get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _on_cluster(
    function: Callable[[S], T], items: Sequence[S], scheduler: str
) -> Generator[tuple[int, T | Lost], None, None]:
    joblib = cast(Any, importlib.import_module("joblib"))
    distributed = _dask()
    _require_sendable(function, items)
    client = _connect(distributed, scheduler)
    try:
        jobs = [joblib.delayed(_numbered)(function, i, item) for i, item in enumerate(items)]
        # all at once: the scheduler moves points between workers, also to those that join later
        parallel = joblib.Parallel(
            n_jobs=-1, backend=_backend(client), return_as="generator_unordered", batch_size=1, pre_dispatch="all"
        )
        values = cast(Generator[tuple[int, T | Lost], None, None], parallel(jobs))
        try:
            yield from values
        except (futures.CancelledError, asyncio.CancelledError):
            raise SchedulerError(
                got=f"the scheduler {scheduler!r}, which is gone",
                need="a scheduler that lives until the end",
                do="Start it again: what was finished is kept where results are saved.",
            ) from None
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                values.close()
    finally:
        client.close(timeout=PATIENCE)


def _require_sendable(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """What cannot be sent would be waited for for ever: joblib's Dask backend sends in the background."""
    cloudpickle = cast(Any, importlib.import_module("cloudpickle"))
    try:
        cloudpickle.dumps((function, list(items)))
    except Exception as error:  # whatever an object raises when it is taken apart
        raise OptionError(
            got=f"a function, or points, that cannot be sent to workers ({type(error).__name__}: {str(error)[:100]})",
            need="numbers, texts, NumPy arrays and functions of them",
            do="Open files and make keys inside the function.",
        ) from None


def _dask() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise DependencyError(
            got=f"no Dask ({error})",
            need="the extra that brings it",
            do="Install it with: pip install 'measureformer[dask]'",
        ) from None


def _connect(distributed: Any, scheduler: str) -> Any:
    """A Dask client of the scheduler, which answers and has workers."""
    advice = (
        "Start one with `dask scheduler` and workers with `dask worker ADDRESS --nthreads 1`, and give its address."
    )
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise SchedulerError(
            got=f"no answer from the scheduler {scheduler!r} ({why})",
            need="a Dask scheduler that can be reached",
            do=advice,
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, TimeoutError):
        client.close(timeout=PATIENCE)
        raise SchedulerError(
            got=f"the scheduler {scheduler!r} without workers", need="at least one worker", do=advice
        ) from None
    return client


def _backend(client: Any) -> Any:
    """joblib's Dask backend with two things mended.

    A point whose workers all died would be waited for for ever; and with a single worker everything would run here.
    """
    base = cast(Any, importlib.import_module("joblib._dask")).DaskDistributedBackend

    class Backend(base):
        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, base.effective_n_jobs(self, n_jobs))

        def submit(self, func: Any, callback: Any = None) -> Any:
            future: Any = base.submit(self, func, callback)
            ((_, (_, i, _), _),) = func.items

            def tell(done: Any) -> None:
                if error := done.exception():
                    callback([(i, Lost(" ".join(str(error).split())[:200]))])

            future.add_done_callback(tell)
            return future

    return Backend(client=client)
