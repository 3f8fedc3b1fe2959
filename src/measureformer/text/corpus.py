"""Sources of text: a file, or the documentation inside CPython."""

from __future__ import annotations

from pathlib import Path

from measureformer.errors import TextError
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.files import require_file

PIECE = 2000
"""Characters of a held-out piece."""


@checked
def read_text(path: PathLike) -> str:
    """Read a text file; one that is empty or not UTF-8 is refused.

    Arguments:
        path: the file.

    >>> import pathlib, tempfile, measureformer as mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "verse.txt"
    ...     _ = file.write_text("roses are red")
    ...     mf.text.read_text(file)
    'roses are red'
    """
    path = Path(path)
    try:
        require_file(path)
        data = path.read_bytes()
    except OSError as error:
        raise TextError(
            got=f"'{error.strerror or error}' for {str(path)[:300]}",
            need="a text file",
            do="Check the name of the file.",
        ) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            got=f"{path}, which is not UTF-8 (byte {data[error.start]:#04x} at place {error.start})",
            need="text in UTF-8",
            do="Convert it: iconv -f latin1 -t utf-8, say.",
        ) from error
    if not text.strip():
        raise TextError(got=f"{path}, which is empty", need="text", do="Choose a file with words in it.")
    return text


def documentation() -> str:
    """The documentation text inside CPython: the topics of `help()`, several hundred thousand characters.

    >>> len(documentation()) > 100_000
    True
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip() for name in sorted(topics))


def split(text: str, share: float) -> tuple[str, str]:
    """The text to train on, and evenly spaced held-out pieces, about `share` of the whole."""
    every = max(round(1 / share), 2)
    size = min(PIECE, max(len(text) // every, 1))
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    kept = [piece for i, piece in enumerate(pieces) if i % every != every - 1]
    return "".join(kept), "".join(pieces[every - 1 :: every])
