"""Starting real processes in tests: every one has a time-out and is ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "parallel" / "programs"
PATIENCE = 120.0
"""Seconds after which something is wrong, on a machine that is busy with other work."""


def environment(**more: str) -> dict[str, str]:
    """This process's own, without what other tests may have asked of workers."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MEASUREFORMER_", "JAX_NUM_CPU"))}
    return kept | more


def run_program(name: str, *arguments: str, devices: int = 1, **more: str) -> str:
    """The output of a program of this folder, alone, with that many devices."""
    command = [sys.executable, str(PROGRAMS / name), *arguments]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    given = environment(XLA_FLAGS=flags.strip(), **more)
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Launched:
    """A running `measureformer launch`, whose output goes to files."""

    process: subprocess.Popen[str]
    folder: Path

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(encoding="utf-8")

    def worker(self, number: int) -> int:
        """The process id that worker `number` has written down, once it has."""
        file = self.folder / f"worker{number}"
        return int(until(lambda: file.read_text(encoding="utf-8") if file.exists() else ""))


def until(look: object) -> str:
    """What `look()` returns as soon as it is not empty."""
    assert callable(look)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise TimeoutError("nothing came")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def launched(folder: Path, program: str, *arguments: str, **more: str) -> Generator[Launched]:
    """`measureformer launch` of a program of this folder, as its users start it, without a terminal."""
    command = [sys.executable, "-m", "measureformer", "launch", "-n", "2", str(PROGRAMS / program)]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*command, str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            env=environment(**more),
            start_new_session=True,
        )
        try:
            yield Launched(process, folder)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()


def lines(text: str, numbers: Sequence[int]) -> dict[int, list[str]]:
    """What each worker wrote, without the number in front."""
    return {i: [line[4:] for line in text.splitlines() if line.startswith(f"[{i}] ")] for i in numbers}
