"""`sweep` evaluates a function at many points; a `Pool` says where: local processes (joblib) or a Dask cluster.

Exceptions of the function are raised again. The death of a process is not one of them: a cluster retries its points on
other processes, and on one machine they are reported as lost.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from measureformer.errors import OptionError, SchedulerError, WorkerLost, need
from measureformer.numerics.checked import checked
from measureformer.parallel.progress import bar, hushed

S = TypeVar("S")
T = TypeVar("T")

PATIENCE = 5.0
"""Seconds within which a scheduler must answer, and have a Dask worker."""

IDLE = 5.0
"""Seconds after which an idle process of this machine ends and returns its memory."""


@dataclass(frozen=True)
class Lost:
    """Stands for the value at a point whose process died."""

    why: str


@dataclass(frozen=True)
class Pool:
    """Where a sweep runs: `jobs` processes of this machine, or the Dask cluster whose scheduler has this address.

    Anybody who can reach a scheduler can run code on its workers and read what they return: keep it in a network that
    you trust.

    Arguments:
        jobs: number of processes of this machine; 1 stays in this process.
        scheduler: address of a Dask scheduler, e.g. tcp://10.0.0.1:8786; `jobs` is then ignored. Every Dask worker
            needs the same version of measureformer, and one thread.

    >>> import measureformer as mf
    >>> mf.Pool(jobs=2)
    Pool(jobs=2, scheduler=None)
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

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> Generator[tuple[int, T | Lost]]:
        """(i, function(items[i])) for all i, in the order in which they finish."""
        if self.scheduler is not None:
            return _on_cluster(function, items, self.scheduler)
        if (jobs := min(self.jobs, len(items))) > 1:
            return _in_processes(function, items, jobs)
        return ((i, function(item)) for i, item in enumerate(items))

    def values(self, function: Callable[[S], T], items: Sequence[S]) -> Generator[tuple[int, T]]:
        """The same; raises `WorkerLost` if a value is lost."""
        with closing(self.each(function, items)) as found:
            for i, value in found:
                if isinstance(value, Lost):
                    raise WorkerLost(
                        got=f"no value at point {i}: {value.why}",
                        need="processes that live until the function returns",
                        do="Give them more memory, or use fewer of them at a time.",
                    )
                yield i, value


@checked
def sweep(function: Callable[[S], T], points: Sequence[S], *, pool: Pool | None = None) -> list[T]:
    """`[function(point) for point in points]`, in a pool, with a bar that shows the time left.

    Arguments:
        function: of one point; lambdas and closures are fine. Its exceptions are raised here.
        points: its arguments. In a pool they and the values are pickled: send a key as `jax.random.key_data(key)`.
        pool: where it runs; by default in this process.

    >>> import measureformer as mf
    >>> mf.sweep(lambda beta: 2 * beta, [0.5, 1.0])
    [1.0, 2.0]
    """
    items = list(points)
    found: dict[int, T] = {}
    with bar("sweep", len(items)) as show, closing((pool or Pool()).values(function, items)) as values:
        for i, value in values:
            found[i] = value
            show(len(found), f"{len(found)} of {len(items)}")
    return [found[i] for i in range(len(items))]


def _numbered(function: Callable[[S], T], i: int, item: S) -> tuple[int, T]:
    # Ctrl-C reaches the whole process group; the parent decides what becomes of its processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return i, _hushed(function, item)


def _hushed(function: Callable[[S], T], item: S) -> T:
    # progress bars of several processes would be written into each other
    with hushed():
        return function(item)


def _in_processes(function: Callable[[S], T], items: Sequence[S], jobs: int) -> Generator[tuple[int, T | Lost]]:
    joblib = need("joblib", "atlas", instead="use one process")
    # a process that has grown is replaced by a new one, and nothing is lost; the warning comes from a thread of loky
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    left = set(range(len(items)))
    calls = [joblib.delayed(_numbered)(function, i, item) for i, item in enumerate(items)]
    with joblib.parallel_config(backend="loky", n_jobs=jobs, idle_worker_timeout=IDLE):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
    values: Generator[tuple[int, T]] = parallel(calls)
    try:
        for i, value in values:
            left.discard(i)
            yield i, value
    except BrokenProcessPool as error:
        yield from ((i, Lost(f"a process died: {error}")) for i in sorted(left))
    finally:
        with warnings.catch_warnings():
            # joblib kills the busy processes of an interrupted run, and warns that it does
            warnings.simplefilter("ignore", UserWarning)
            values.close()


def _on_cluster(function: Callable[[S], T], items: Sequence[S], scheduler: str) -> Generator[tuple[int, T | Lost]]:
    distributed = need("distributed", "dask", instead="use processes of this machine")
    client = _connect(distributed, scheduler)
    try:
        # all at once: the scheduler moves points between workers, also to those that join later
        left = _submitted(client, partial(_hushed, function), items)
        for future in distributed.as_completed(list(left), loop=client.loop):
            i = left.pop(future)
            if future.cancelled():
                raise SchedulerError(
                    got=f"the scheduler {scheduler!r}, which is gone",
                    need="a scheduler that lives until the end",
                    do="Start it again: what was finished is kept where results are saved.",
                )
            killed = isinstance(error := future.exception(), distributed.KilledWorker)
            yield i, Lost(" ".join(str(error).split())[:200]) if killed else future.result()
    finally:
        client.close(timeout=PATIENCE)


def _submitted(client: Any, function: Callable[[S], T], items: Sequence[S]) -> dict[Any, int]:
    """The number of the item of every future."""
    try:
        return {future: i for i, future in enumerate(client.map(function, items, pure=False))}
    except Exception as error:  # whatever an object raises when it is pickled
        raise OptionError(
            got=f"a function, or points, that cannot be sent to workers ({type(error).__name__}: {str(error)[:100]})",
            need="numbers, texts, NumPy arrays and functions of them",
            do="Open files and make keys inside the function.",
        ) from None


def _connect(distributed: Any, scheduler: str) -> Any:
    """A Dask client of the scheduler, which answers and has workers."""
    advice = "Start it with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`; pass its address."
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        got = f"no answer from the scheduler {scheduler!r} ({why})"
        raise SchedulerError(got=got, need="a Dask scheduler that can be reached", do=advice) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, TimeoutError):
        client.close(timeout=PATIENCE)
        got = f"the scheduler {scheduler!r} without workers"
        raise SchedulerError(got=got, need="at least one worker", do=advice) from None
    return client
