"""Equinox modules from arrays that have been checked."""

from __future__ import annotations

from typing import Any, TypeVar

Module = TypeVar("Module")


def made(kind: type[Module], **fields: Any) -> Module:
    """A module with these fields, as JAX makes one from leaves: neither converted nor checked.

    The constructor takes twenty times as long, which a small layer feels.
    """
    module = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module
