"""Files: names that are safe on every file system, and writes that are whole or not there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from measureformer.errors import OutputError


def write_atomically(path: Path, data: bytes, *, do: str = "Choose another folder with --out, or make room.") -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and then take the name. `do` is the
    advice where that fails.
    """
    # not tempfile: its files are readable by their owner only, and an atlas is made to be shared
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            got=f"'{error.strerror or error}' for {path}",
            need="a folder that can be written to",
            do=do,
        ) from error
