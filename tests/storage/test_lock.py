"""One writer for each folder: real processes that meet, and that die."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from launching import PATIENCE
from measureformer.errors import FolderInUseError, OutputError
from measureformer.storage import lock
from measureformer.storage.folder import RunFolder
from measureformer.storage.lock import LOCK, OWNER, only_writer

HOLD = """
import sys
from pathlib import Path
from measureformer.storage import lock
if sys.argv[2] == "files":
    lock.fcntl = None
with lock.only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
HERE = socket.gethostname()
FILES = {"locks": LOCK, "files": OWNER}


@pytest.fixture(params=["locks", "files"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A system with locks on files, and one without."""
    if request.param == "files":
        monkeypatch.setattr(lock, "fcntl", None)
    return request.param


@contextmanager
def holder(folder: Path, system: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder), system]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path, system: str) -> None:
    with holder(tmp_path, system) as process:
        with (
            pytest.raises(FolderInUseError, match=f"process {process.pid} on {HERE} has been writing since 2") as error,
            only_writer(tmp_path),
        ):
            pass
        assert "Wait until it ends, stop it, or choose another folder" in str(error.value)
        # a refusal changes nothing: kills a second process that removes the lock of the first
        with pytest.raises(FolderInUseError, match=str(process.pid)), RunFolder.of(tmp_path, {}):
            pass
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    with only_writer(tmp_path):
        assert json.loads((tmp_path / FILES[system]).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, system: str) -> None:
    with holder(tmp_path, system) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    assert json.loads((tmp_path / FILES[system]).read_text())["pid"] == process.pid
    with only_writer(tmp_path):
        assert json.loads((tmp_path / FILES[system]).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_one_process_does_not_write_twice(tmp_path: Path, system: str) -> None:
    with only_writer(tmp_path), pytest.raises(FolderInUseError, match=f"process {os.getpid()}"), only_writer(tmp_path):
        pass
    with ExitStack() as stack:
        for name in "ab":
            stack.enter_context(only_writer(tmp_path / name))


@pytest.mark.parametrize(
    "owner",
    [
        # of another machine, of nobody, cut off: whether they have ended cannot be known
        json.dumps({"pid": 1, "host": "elsewhere", "since": "2026-01-01 00:00:00"}),
        json.dumps({"pid": -1, "host": HERE}),
        json.dumps([1]),
        '{"pid": ',
        "",
    ],
)
def test_where_there_are_no_locks_doubt_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    (tmp_path / OWNER).write_text(owner)
    with pytest.raises(FolderInUseError, match=f"If it has ended, delete {tmp_path / OWNER}"), only_writer(tmp_path):
        pass
    assert (tmp_path / OWNER).read_text() == owner


def test_a_file_system_that_refuses_locks_gets_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuses)
    with only_writer(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [OWNER]
        with pytest.raises(FolderInUseError, match=str(os.getpid())), only_writer(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(OutputError, match="need a folder that can be written to"), only_writer(path):
            pass


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the owner before removes the file after it was opened here, and the next one makes another
    lock_file, removed = fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        lock_file(descriptor, how)
        if not removed:
            (tmp_path / LOCK).unlink()
            removed.append(descriptor)

    monkeypatch.setattr("fcntl.flock", flock)
    with only_writer(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert removed


def test_of_two_that_find_a_dead_lock_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    quicker = json.dumps({"pid": 1, "host": "elsewhere"})

    def has_ended(text: str) -> bool:
        # meanwhile another process takes the lock over
        (tmp_path / OWNER).write_text(quicker)
        return True

    (tmp_path / OWNER).write_text(json.dumps({"pid": 2, "host": HERE}))
    monkeypatch.setattr(lock, "_has_ended", has_ended)
    with pytest.raises(FolderInUseError, match="process 1 on elsewhere"), only_writer(tmp_path):
        pass
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(OWNER, quicker)]
