"""`only_writer`: one process at a time writes into a folder, and a second one is told which process that is.

The operating system holds the lock and frees it when the process ends, however that happens. File systems without such
locks get a file that is created once; there the lock of a process that has died is recognised by its number.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from measureformer.errors import FolderInUseError
from measureformer.storage.files import DO, refusing_output

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK, OWNER = ".lock", ".owner"
"""What the system locks, and what is created where it locks nothing; hidden, since neither is part of a result."""


@contextmanager
def only_writer(folder: Path, *, do: str = DO) -> Generator[None]:
    """Hold a folder, which is made if it is not there, against other writers; readers are not kept out.

    Refused with `FolderInUseError` while another process, or another call in this one, holds it; `do` is the advice
    where nothing can be written.
    """
    with refusing_output(folder / LOCK, do):
        folder.mkdir(parents=True, exist_ok=True)
        path, descriptor = _locked(folder / LOCK)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, _this_process().encode())
    try:
        yield
    finally:
        # before the lock is freed: a later owner's file must not be removed
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> tuple[Path, int]:
    """The lock file, held, and its descriptor."""
    while fcntl is not None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return path, descriptor
            # the owner before has removed this file since it was opened
            os.close(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise _in_use(path, _read(path)) from None
        except OSError:  # a file system without locks
            os.close(descriptor)
            path.unlink(missing_ok=True)
            break
    return _created(path.with_name(OWNER))


def _created(path: Path) -> tuple[Path, int]:
    """The same where there are no locks: that the file is there is the lock."""
    while True:
        try:
            return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            found = _read(path)
        if not _has_ended(found):
            raise _in_use(path, found)
        aside = path.with_name(f"{OWNER}.{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            os.replace(path, aside)
            if aside.read_text(encoding="utf-8") != found:  # another process was quicker, and this lock is its own
                os.replace(aside, path)
                raise _in_use(path, _read(path))
            aside.unlink()


def _this_process() -> str:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _owner(text: str) -> dict[str, Any]:
    try:
        owner = json.loads(text)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _has_ended(text: str) -> bool:
    """Whether the owner was a process of this machine that is no longer there; unknown counts as no."""
    owner = _owner(text)
    pid = owner.get("pid")
    if os.name != "posix" or owner.get("host") != socket.gethostname() or type(pid) is not int or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _in_use(path: Path, text: str) -> FolderInUseError:
    owner = _owner(text)
    name = f"process {owner.get('pid')} on {owner.get('host')}" if owner else "another process"
    since = f" since {owner['since']}" if "since" in owner else ""
    advice = "Wait until it ends, stop it, or choose another folder."
    if path.name == OWNER or owner.get("host") not in (None, socket.gethostname()):
        advice += f" If it has ended, delete {path}."
    return FolderInUseError(
        got=f"the folder {path.parent}, into which {name} has been writing{since}",
        need="one writer at a time",
        do=advice,
    )
