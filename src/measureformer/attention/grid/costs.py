"""What things cost on this machine, in seconds: measured once, kept in the user's cache folder."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from measureformer.errors import OutputError
from measureformer.storage.files import write_atomically


@dataclass(frozen=True)
class Costs:
    """Seconds per unit of work. A wrong number costs time, never correctness.

    >>> Costs().pair < 1e-6
    True
    """

    pair: float = 3e-9
    """A query and a key, streamed."""
    point: float = 1e-7
    """A point put into its cell, looked up, and its polynomials."""
    moment: float = 1.5e-10
    """A point times a moment times a column."""
    node: float = 3e-9
    """A number on the grid, moved about."""
    product: float = 4e-11
    """A multiplication and addition in the products along the axes."""
    box: float = 1e-3
    """A box, whatever is in it."""
    masked_pair: float = 6e-9
    """A query and a key that it sees, streamed behind a mask."""


def cache_file() -> Path:
    """Where the measured costs are kept: the user's cache folder, by the custom of the system."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "measureformer" / "grid-costs.json"


def stored(path: Path) -> Costs | None:
    """The costs in a file; None if it is not there, cannot be read, or holds anything but positive numbers."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    names = {field.name for field in fields(Costs)}
    sound = isinstance(found, dict) and set(found) == names
    if not sound or not all(isinstance(value, float) and 0 < value < 1 for value in found.values()):
        return None
    return Costs(**found)


def keep(path: Path, costs: Costs) -> None:
    """Store the costs, whole or not at all. A folder that cannot be written to is no reason to stop."""
    try:
        write_atomically(path, (json.dumps(asdict(costs), indent=1) + "\n").encode())
    except OutputError:
        return
