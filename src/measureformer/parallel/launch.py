"""`measureformer launch`: start the workers of one machine, watch them, and end all of them when one is lost.

Works without a terminal and starts no shell. The workers meet on the loopback; nothing is open to the network.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from measureformer.errors import LaunchError, WorkerLost

COORDINATOR, COUNT, INDEX = "MEASUREFORMER_COORDINATOR", "MEASUREFORMER_WORKERS", "MEASUREFORMER_WORKER"
"""Variables in which a worker finds the address of worker 0, the number of workers, and its own number."""

EXCHANGES = "MEASUREFORMER_EXCHANGES"
"""Variable in which a worker finds the file for its `Exchanges`, if somebody reads them."""

LOST = 3
"""Exit code of a worker that ends because it has lost another one."""

GRACE = 3.0
"""Seconds that workers have to end by themselves after a loss, and again after they were asked to."""

_INTERVAL = 0.05
_LAST_LINES = 20


@dataclass(frozen=True)
class Exchanges:
    """How many exchanges a worker has begun, and whether it has reached its end: two numbers in a file.

    All workers make the same exchanges. One that ended before it began an exchange that another one waits in is lost,
    although its exit code is 0.
    """

    begun: int
    ended: bool

    @staticmethod
    def read(path: Path) -> Exchanges:
        data = path.read_bytes() if path.is_file() else b""
        return Exchanges(*_RECORD.unpack(data)) if len(data) == _RECORD.size else Exchanges(0, ended=False)

    def write(self, file: int) -> None:
        """At once, into an open file."""
        os.pwrite(file, _RECORD.pack(self.begun, self.ended), 0)


_RECORD = struct.Struct("<Q?")


class Worker:
    """One process, its number, and the last lines that it wrote."""

    def __init__(self, number: int, count: int, command: Sequence[str], coordinator: str, folder: Path) -> None:
        self.number = number
        self.name = f"worker {number} of {count}"
        self.lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.exchanges = folder / str(number)
        own = {COORDINATOR: coordinator, COUNT: str(count), INDEX: str(number), EXCHANGES: str(self.exchanges)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            # a session of its own: Ctrl-C reaches the launcher only, and what the worker starts ends with it
            start_new_session=True,
            env=os.environ | own,
        )
        streams = ((self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr))
        self._readers = [threading.Thread(target=self._copy, args=pair, daemon=True) for pair in streams]
        for reader in self._readers:
            reader.start()

    def _copy(self, source: IO[str], target: IO[str]) -> None:
        for line in source:
            # the transport greets on standard output, where it would stand between the script's results
            if line.startswith("[Gloo] Rank "):
                continue
            self.lines.append(line.rstrip("\n"))
            # whoever reads may have gone away; the workers go on, and so does their log
            with suppress(OSError, ValueError):
                target.write(f"[{self.number}] {line.rstrip()}\n")
                target.flush()

    @property
    def stopped(self) -> bool:
        """Whether the process is suspended: alive, and silent."""
        if self.process.poll() is not None or not hasattr(os, "waitid"):
            return False
        look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, look) is not None

    def signal(self, number: signal.Signals) -> None:
        """To the worker and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def drain(self, seconds: float) -> None:
        """Wait for what the process has written before its end."""
        for reader in self._readers:
            reader.join(seconds)


def launch(script: Path, arguments: Sequence[str] = (), *, workers: int) -> None:
    """Run a Python script in that many workers until all are done; `WorkerLost` names the first that fails.

    Lines are passed on with the number of the worker in front. When one fails, the others are asked to end, and ended
    a few seconds later.
    """
    if workers < 1:
        raise LaunchError(got=f"{workers} workers", need="at least one", do="Say how many: measureformer launch -n 2.")
    if not script.is_file():
        raise LaunchError(
            got=f"the script {str(script)!r}, which is not a file",
            need="a Python script",
            do="Its options come after its name: measureformer launch -n 2 script.py --option.",
        )
    command = [sys.executable, "-u", str(script), *arguments]
    coordinator = f"127.0.0.1:{_free_port()}"
    started: list[Worker] = []
    with _ended_by_signals(), tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(workers):
                started.append(Worker(number, workers, command, coordinator, Path(folder)))
            loss = _watch(started)
            if loss is not None:
                # those who are left notice by themselves, and may have something to say or to save
                _wait([worker for worker in started if not worker.stopped], GRACE)
        finally:
            _end(started)
    if loss is not None:
        _show_last_lines(loss.worker)
        raise WorkerLost(
            got=f"{loss.worker.name} (process {loss.worker.process.pid}), which {loss.how}",
            need="every worker to finish",
            do="Its last lines are above; the other workers have been ended.",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """A request to end, or a closed terminal, ends the workers too: both arrive as an ordinary exit."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    # handlers can be set in the main thread only, and elsewhere nobody sends them
    chosen = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, leave) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Loss:
    """The worker because of which the others are ended, and how it went."""

    worker: Worker
    how: str


def _watch(workers: list[Worker]) -> _Loss | None:
    """Wait until all are done, or one has failed; that one, or the one whose silence made it fail."""
    while True:
        codes = {worker: worker.process.poll() for worker in workers}
        failed = [worker for worker, code in codes.items() if code]
        if failed:
            # who has lost another one is a witness, not the cause
            causes = [worker for worker in failed if codes[worker] not in (LOST, -signal.SIGABRT)]
            silent = [worker for worker in workers if worker.stopped]
            if silent and not causes:
                return _Loss(silent[0], "was stopped and no longer answered")
            worker = (causes or failed)[0]
            return _Loss(worker, _how(codes[worker] or 0))
        if all(code == 0 for code in codes.values()):
            return None
        early = _gone_early(workers)
        if early is not None:
            return early
        time.sleep(_INTERVAL)


def _gone_early(workers: list[Worker]) -> _Loss | None:
    """A worker that reached its end without an exchange in which another one waits for it."""
    counts = {worker: Exchanges.read(worker.exchanges) for worker in workers}
    most = max(count.begun for count in counts.values())
    for worker, count in counts.items():
        if count.ended and count.begun < most:
            return _Loss(worker, f"ended without an error after {count.begun} of {most} exchanges")
    return None


def _how(code: int) -> str:
    """What an exit code of `subprocess` says."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _wait(workers: list[Worker], seconds: float) -> None:
    last = time.monotonic() + seconds
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(max(0.0, last - time.monotonic()))


def _end(workers: list[Worker]) -> None:
    """Ask, wait a little, and insist; a second Ctrl-C insists at once."""
    alive = [worker for worker in workers if worker.process.poll() is None]
    try:
        for worker in alive:
            worker.signal(signal.SIGTERM)
        # a stopped process does not hear the question
        _wait([worker for worker in alive if not worker.stopped], GRACE)
    finally:
        for worker in alive:
            if worker.process.poll() is None:
                worker.signal(signal.SIGKILL)
                worker.process.wait()
        for worker in workers:
            worker.drain(1.0)


def _show_last_lines(worker: Worker) -> None:
    with suppress(OSError, ValueError):
        print(f"The last lines of {worker.name}:", *(f"  | {line}" for line in worker.lines), sep="\n", file=sys.stderr)
