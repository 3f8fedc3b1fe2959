"""Arrays as the tuples of plain numbers that figures are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def floats(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
