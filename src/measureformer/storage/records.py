"""Frozen dataclasses to JSON and back: everything that is read is checked against the types of its fields."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from measureformer.errors import ResultFormatError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON can spell them as escapes, but no file can hold them."""


def unreadable(got: str, need: str = "a file that this version of measureformer wrote") -> ResultFormatError:
    """The refusal of a file that cannot be a record."""
    return ResultFormatError(got=got, need=need, do="Delete the file, and have it made again.")


def finite(value: Any) -> Any:
    """The same tree with non-finite numbers as strings: 'nan', 'inf', '-inf'."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in cast(list[Any], value)]
    return value


def read(kind: Any, value: Any, path: str) -> Any:
    """`value`, as parsed from JSON, turned into an instance of the type `kind`, or refused with its path."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, value, path)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, path)
    if origin is tuple and isinstance(value, list):
        entries = cast(list[Any], value)
        return tuple(read(arguments[0], entry, f"{path}[{i}]") for i, entry in enumerate(entries))
    if origin is dict and isinstance(value, dict):
        items = cast(dict[str, Any], value)
        return {read(str, k, f"a key of {path}"): read(arguments[1], v, f"{path}.{k}") for k, v in items.items()}
    if origin is Literal and value in arguments:
        return value
    if kind is NoneType and value is None:
        return None
    if kind is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind in (int, bool) and type(value) is kind:
        return value
    if kind is str and isinstance(value, str) and not _LONE_SURROGATE.search(value):
        return value
    # the text of a container is not shown: it may be long, or nested too deeply to be written
    shown = repr(value)[:60] if isinstance(value, (str, int, float, NoneType)) else type(value).__name__
    raise unreadable(f"{path} = {shown}")


def _read_record(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise unreadable(f"{path} of type {type(value).__name__}")
    entries = cast(dict[str, Any], value)
    hints = get_type_hints(kind)
    wanted = {one.name for one in fields(kind)}
    if missing := sorted(wanted - set(entries)):
        raise unreadable(f"{path} without {', '.join(missing)}")
    if extra := sorted(set(entries) - wanted):
        raise unreadable(f"{path} with unknown {', '.join(extra)[:60]}")
    return kind(**{name: read(hints[name], entry, f"{path}.{name}") for name, entry in entries.items()})


def _read_union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    # int before float before str: 1 stays an integer, "nan" in a union with str stays a string
    refusals: list[ResultFormatError] = []
    for kind in kinds:
        if kind is float and isinstance(value, str):
            continue
        try:
            return read(kind, value, path)
        except ResultFormatError as error:
            refusals.append(error)
    raise refusals[0]
