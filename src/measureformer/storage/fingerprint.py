"""Fingerprints of what is computed, which two processes can compare by their content.

Arrays count with all their bytes, maps with the names of their classes and their fields. A Python function counts with
its code, its defaults, what it closes over, and the functions and numbers of its own package that it names; what it
calls in other packages counts by name only.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import OptionError

Piece = str | bytes | memoryview
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis))


def fingerprint(value: Any) -> str:
    """SHA-256 of the content; refused for objects whose content cannot be told from their address."""
    digest = hashlib.sha256()
    for piece in _pieces(value, "", set()):
        digest.update(piece.encode() if isinstance(piece, str) else piece)
        digest.update(b"\0")
    return digest.hexdigest()


def _pieces(value: Any, package: str, seen: set[int]) -> Iterator[Piece]:
    """A description in pieces. `package` is that of the function whose code is being read."""
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        yield f"array {array.dtype} {array.shape}"
        # not a copy: weights in a mapped file may be larger than the memory
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    elif isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (list, tuple, set, frozenset)):
        # sets have no order of their own, and that of their texts differs from process to process
        entries = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        yield f"{type(value).__name__} {len(entries)}"
        for entry in entries:
            yield from _pieces(entry, package, seen)
    elif isinstance(value, dict):
        yield f"dict {len(value)}"
        for name, entry in value.items():
            yield from _pieces((name, entry), package, seen)
    elif isinstance(value, (type, ModuleType, np.dtype)):
        yield _named(value)
    elif isinstance(value, CodeType):
        yield from _of_code(value, package, seen)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, package, seen)
    elif isinstance(value, partial):
        yield from _pieces(("partial", value.func, value.args, value.keywords), package, seen)
    elif dataclasses.is_dataclass(value):
        yield _named(type(value))
        for field in dataclasses.fields(value):
            yield from _pieces((field.name, getattr(value, field.name)), package, seen)
    elif hasattr(value, "__wrapped__"):
        yield from _pieces(value.__wrapped__, package, seen)
    elif hasattr(value, "__qualname__") or hasattr(value, "__name__"):
        yield _named(value)
    else:
        raise OptionError(
            got=f"a velocity with a {type(value).__name__}, which another run cannot compare with its own",
            need="arrays, numbers, texts and functions",
            do="Pass what it needs as arrays of an Equinox module, or leave `save` out.",
        )


def _of_function(function: FunctionType, package: str, seen: set[int]) -> Iterator[Piece]:
    yield _named(function)
    own = function.__module__.partition(".")[0]
    if id(function) in seen or (package and own != package):
        return
    seen.add(id(function))
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    yield from _pieces((function.__defaults__, function.__kwdefaults__, closed), own, seen)
    yield from _pieces(function.__code__, own, seen)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, (*_PLAIN, np.ndarray, np.generic, jax.Array, FunctionType, ModuleType, type)):
            yield from _pieces((name, used), own, seen)


def _of_code(code: CodeType, package: str, seen: set[int]) -> Iterator[Piece]:
    yield code.co_code
    yield from _pieces((code.co_names, code.co_varnames, code.co_consts), package, seen)


def _named(value: Any) -> str:
    name = getattr(value, "__qualname__", getattr(value, "__name__", str(value)))
    return f"{type(value).__name__} {getattr(value, '__module__', '')} {name}"
