"""Files: names that are safe on every file system, and writes that are whole or not there."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from measureformer.errors import OutputError, ResultFormatError

CLAIM_NAME = re.compile(r"[a-z]+(-[a-z]+)*-[0-9]{4}[a-z]?(-[a-z0-9]+)+")
"""`author-year-what` in lower-case kebab style; several authors are joined by dashes."""

LONGEST_NAME = 100


def is_claim_name(name: str) -> bool:
    """Whether `name` is a well-formed name of a claim, and so a safe name of a file.

    >>> is_claim_name("castin-2025-gaussian-closed-form"), is_claim_name("../../etc/passwd")
    (True, False)
    """
    return len(name) <= LONGEST_NAME and CLAIM_NAME.fullmatch(name) is not None


def claim_file(folder: Path, claim: str, suffix: str) -> Path:
    """`folder/claim.suffix`; a name that could leave the folder is refused, because results may come from anywhere."""
    if not is_claim_name(claim):
        raise ResultFormatError(
            got=f"a result whose claim is called {claim[:60]!r}",
            need="a name of the form author-year-what, in lower-case letters, digits and dashes",
            do="Delete the file, or run the claim again with --fresh.",
        )
    return folder / f"{claim}.{suffix}"


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
