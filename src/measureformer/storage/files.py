"""Files: writes that are whole or not there, and refusals that say which file could not be written."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from measureformer.errors import MeasureformerError, OutputError

DO = "Choose another folder, or make room."


@contextmanager
def refusing_output(path: Path, do: str = DO) -> Generator[None]:
    """Turn errors of the system into a refusal that names the file; `do` is the advice."""
    try:
        yield
    except MeasureformerError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte, or with half a character
        what = error.strerror if isinstance(error, OSError) else None
        raise OutputError(
            got=f"'{what or error}' for {str(path)[:300]!r}", need="a folder that can be written to", do=do
        ) from error


def require_file(path: Path) -> None:
    """Raise an OSError unless this is a file that has an end: to open a pipe may take for ever, and so may a device."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:  # a zero byte, or half a character
        raise OSError(errno.EINVAL, "Not a name of a file", str(path)[:200]) from None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def write_atomically(path: Path, data: bytes, *, do: str = DO) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and then take the name. `do` is the
    advice where that fails.
    """
    # not tempfile: its files are readable by their owner only, and results are made to be shared
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with refusing_output(path, do):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
