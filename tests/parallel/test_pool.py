"""Sweeps: the same values wherever they are computed; a cluster that loses a worker loses nothing."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer.atlas.registry import select
from measureformer.atlas.run import Event, Settings, run_atlas
from measureformer.errors import DependencyError, OptionError, SchedulerError, WorkerLost
from measureformer.parallel import pool as module
from planting import HOLDS, claim_source, plant, runs

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs Dask: pip install 'measureformer[dask]'"
)


def test_values_come_in_the_order_of_the_points() -> None:
    assert mf.sweep(lambda x: x * x, range(5)) == [0, 1, 4, 9, 16]
    assert mf.sweep(lambda x: x * x, range(5), pool=mf.Pool(jobs=2)) == [0, 1, 4, 9, 16]
    assert mf.sweep(lambda x: x, []) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_the_function_raises_is_raised(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError):
        mf.sweep(lambda x: 1 / x, [1, 0, 2], pool=mf.Pool(jobs=jobs))


def test_a_process_that_dies_is_named() -> None:
    with pytest.raises(WorkerLost, match="point"):
        mf.sweep(lambda x: os.kill(os.getpid(), signal.SIGKILL), [0, 1], pool=mf.Pool(jobs=2))


@pytest.mark.parametrize("bad", [{"jobs": 0}, {"jobs": 1.5}, {"jobs": True}, {"scheduler": ""}, {"scheduler": 3}])
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        mf.Pool(**bad)


def test_missing_dask_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DependencyError, match=r"measureformer\[dask\]"):
        mf.sweep(abs, [1], pool=mf.Pool(scheduler="tcp://127.0.0.1:8786"))


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


@needs_dask
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "no such machine", "gopher://127.0.0.1:{port}"])
def test_a_scheduler_that_does_not_answer_is_refused_soon(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: Dask's own patience, which is half a minute
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    start = time.monotonic()
    with pytest.raises(SchedulerError, match="scheduler"):
        mf.sweep(abs, [1], pool=mf.Pool(scheduler=address.format(port=_free_port())))
    assert time.monotonic() - start < 15


class Cluster:
    """A Dask scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "PYTHONPATH": path,
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
            "DASK_DISTRIBUTED__DASHBOARD__LINK": "",
        }
        self.address = f"tcp://127.0.0.1:{_free_port()}"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", self.address.rpartition(":")[2], "--no-dashboard", "--no-show"
        )
        self.workers = [self.add_worker() for _ in range(2)]

    def add_worker(self) -> subprocess.Popen[bytes]:
        place = ("--local-directory", str(self.folder), "--no-dashboard")
        # without a nanny: a worker that is killed stays dead
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", *place)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments]
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait(timeout=10)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder, os.pathsep.join([str(folder), *filter(None, sys.path)]))
    try:
        # processes that have to load, on a machine that may be busy
        with importlib.import_module("distributed").Client(made.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield made
    finally:
        made.end()


@needs_dask
def test_a_cluster_that_loses_a_worker_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: points of a dead worker that are dropped, run for ever, or reported as failures
    here = tmp_path / "pids"
    here.mkdir()
    # each task says which process it is in; the first two wait until one of them has been killed
    body = f"""import os, time
    (Path({str(here)!r}) / f"{{os.getpid()}}-{{time.time_ns()}}").touch()
    while not (Path({str(here)!r}).parent / "killed").exists(): time.sleep(0.02)
    {HOLDS}"""
    letters = "abcdef"
    files = {f"chapter/{letter}.py": claim_source(f"castin-2025-{letter}", body) for letter in letters}
    package = plant(tmp_path, monkeypatch, files)
    with cluster(tmp_path) as made:
        settings = Settings(tmp_path / "atlas", scheduler=made.address)
        events: list[Event] = []
        killer = subprocess.Popen([sys.executable, "-c", _KILLER, str(here)])
        try:
            done = run_atlas(select([]), settings, events.append)
        finally:
            killer.kill()
            killer.wait(timeout=10)
        assert (tmp_path / "killed").exists()
        assert [result.claim for result in done.results] == [f"castin-2025-{letter}" for letter in letters]
        assert done.failures == done.left == ()
        assert len(events) == len(letters)
        # the claim of the dead worker was run twice, the others once, and all results are on this disk
        counts = [runs(tmp_path, package, f"chapter/castin_2025_{letter}") for letter in letters]
        assert sorted(counts) == [1, 1, 1, 1, 1, 2]
        assert len(list((tmp_path / "atlas" / "results").glob("*.json"))) == len(letters)
        again = run_atlas(select([]), replace(settings, scheduler=None), events.append)
        assert again == done
        _sweeps_on(made)
        _ends_without_a_scheduler(made, tmp_path, monkeypatch)


_KILLER = """
import os, signal, sys, time
from pathlib import Path
here = Path(sys.argv[1])
while len({name.partition("-")[0] for name in os.listdir(here)}) < 2:
    time.sleep(0.02)
os.kill(int(sorted(os.listdir(here))[0].partition("-")[0]), signal.SIGKILL)
(here.parent / "killed").touch()
"""


def _sweeps_on(made: Cluster) -> None:
    """The same cluster, which has one worker left, takes sweeps of any function, and phase diagrams."""
    pool = mf.Pool(scheduler=made.address)
    assert mf.sweep(lambda x: x * x, range(5), pool=pool) == [0, 1, 4, 9, 16]
    # kills: a cluster of one worker that is left idle, while everything runs in this process
    assert mf.sweep(lambda x: os.getpid(), [0], pool=pool) != [os.getpid()]
    with pytest.raises(ZeroDivisionError):
        mf.sweep(lambda x: 1 / x, [1, 0], pool=pool)
    few = mf.clustering.Ensemble(n=4, dim=2, batches=8)
    found = [
        mf.clustering.phase_diagram(jax.random.key(0), [1.0], [0.0, 2.0], ensemble=few, pool=where).together
        for where in (None, pool)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    with pytest.raises(OptionError, match="cannot be sent"):
        mf.sweep(abs, [threading.Lock()], pool=pool)  # type: ignore[list-item]
    # a point that kills every worker is lost; the run ends, and says so
    made.workers.append(made.add_worker())
    with pytest.raises(WorkerLost, match="point 0"):
        mf.sweep(lambda x: os.kill(os.getpid(), signal.SIGKILL), [0], pool=pool)


def _ends_without_a_scheduler(made: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler dies when one claim is finished and another one is not."""
    # kills: a run that waits for ever, an error of Dask's that says nothing, a finished claim that is run again
    begun, gone = folder / "begun", folder / "gone"
    body = f"""import time
    try:
        Path({str(begun)!r}).mkdir()
    except FileExistsError:
        while not Path({str(gone)!r}).exists(): time.sleep(0.02)
    {HOLDS}"""
    files = {f"chapter/{letter}.py": claim_source(f"castin-2025-{letter}", body) for letter in "ab"}
    package = plant(folder, monkeypatch, files)
    made.workers.append(made.add_worker())
    settings = Settings(folder / "cut short", scheduler=made.address)
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        made.scheduler.kill()

    with pytest.raises(SchedulerError, match=r"is gone.*what was finished is kept"):
        run_atlas(select([]), settings, on_event)
    assert len(events) == 1
    gone.touch()
    done = run_atlas(select([]), replace(settings, scheduler=None), events.append)
    assert [result.claim for result in done.results] == ["castin-2025-a", "castin-2025-b"]
    assert sorted(runs(folder, package, f"chapter/castin_2025_{letter}") for letter in "ab") == [1, 2]
