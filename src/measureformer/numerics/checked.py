"""`checked`: a public function refuses arguments of the wrong kind, as its annotations say."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

from measureformer.errors import (
    DtypeError,
    MeasureformerError,
    NoClosedFormError,
    NotFiniteError,
    OptionError,
    ShapeError,
    did_you_mean,
)
from measureformer.numerics.arrays import finite, floats, prng_key, shown
from measureformer.numerics.needed import NEEDED
from measureformer.numerics.types import Key, PathLike, Real, Within

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[Any, str], None]
"""Refuses a value of the argument of this name."""

WHOLE = Within(-(10**9), 10**9)
"""Whole numbers are not larger, unless their annotation says so: every one is a length or a number of repetitions."""
REAL = Within(-math.inf, math.inf)
LONGEST = 255
"""Bytes in the name of a file or folder."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which first refuses arguments that are not of the kinds in its annotations.

    The annotations are read at the first call. Missing and unexpected arguments are left to the function, which
    raises a TypeError; what an annotation does not decide passes, and so do tracers.

    Arguments:
        function: a function, or the function of a method; `@staticmethod` and `@classmethod` stand above `@checked`.
    """
    known: list[tuple[list[tuple[str, Check | None]], Any, dict[str, Check]]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not known:
            known.append(_checks(function))
        positional, rest, named = known[0]
        for value, (name, check) in zip(args, chain(positional, rest) if rest else positional, strict=False):
            if check is not None:
                check(value, name)
        for name, value in kwargs.items():
            if (check := named.get(name)) is not None:
                check(value, name)
        return function(*args, **kwargs)

    return call


def check_fields(record: Any) -> None:
    """Refuse fields of a dataclass that are not of the kinds in its annotations: the first line of `__post_init__`."""
    for name, check in _fields(type(record)).items():
        check(getattr(record, name), name)


@functools.cache
def _fields(kind: type) -> dict[str, Check]:
    checks = {name: check_of(hint) for name, hint in _hints(kind).items()}
    return {name: check for name, check in checks.items() if check is not None}


def _checks(function: Callable[..., Any]) -> tuple[list[tuple[str, Check | None]], Any, dict[str, Check]]:
    """By position, for all further positions, and by name. A default is always good, such as None for a number."""
    hints = _hints(function)
    positional: list[tuple[str, Check | None]] = []
    named: dict[str, Check] = {}
    rest: Any = None
    for name, parameter in inspect.signature(function).parameters.items():
        check = check_of(hints[name]) if name in hints else None
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = repeat((name, check))
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append((name, check))
        if check is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            named[name] = check
    return positional, rest, named


def _hints(function: Any) -> dict[str, Any]:
    """The annotations as objects; names that are imported for type checkers only count as anything."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(function, localns=unknown, include_extras=True)
        except NameError as error:
            if error.name is None or error.name in unknown:
                raise
            unknown[error.name] = Any


def check_of(hint: Any) -> Check | None:
    """What refuses the values that this annotation excludes; None if it excludes nothing that can be seen."""
    found = _alternative(hint)
    if found is None:
        return None

    def check(value: Any, name: str) -> None:
        if not isinstance(value, Tracer):
            found(value, name)

    return check


def _alternative(hint: Any) -> Check | None:
    origin, parts = get_origin(hint), get_args(hint)
    if hint == Key:
        return _key
    if hint == PathLike:
        return _path
    if origin is Annotated:
        for mark in reversed(hint.__metadata__):  # the last word counts
            if isinstance(mark, Real):
                return functools.partial(_array, mark=mark)
            if isinstance(mark, Within):
                return functools.partial(whole if parts[0] is int else real, limits=mark)
        return _alternative(parts[0])
    if hint == DTypeLike:
        return _dtype
    if origin is Union or origin is types.UnionType:
        return _union(parts)
    if origin is Literal:
        return functools.partial(_one_of, options=parts)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is tuple and parts[-1:] != (...,) and parts:
        return functools.partial(_tuple, checks=tuple(check_of(part) for part in parts))
    if origin in (tuple, list, Sequence):
        return functools.partial(_sequence, check=check_of(parts[0]) if parts else None)
    if origin is Callable:
        return functools.partial(_callable, count=len(parts[0]) if isinstance(parts[0], list) else None)
    kind = origin or hint
    if kind is Any or not inspect.isclass(kind) or getattr(kind, "_is_protocol", False):
        return None
    if kind in (np.ndarray, jax.Array):
        return _an_array
    if kind.__module__.startswith(("jaxtyping", "builtins")):
        return None
    return functools.partial(_instance, kind=kind)


def _union(parts: Sequence[Any]) -> Check | None:
    """Accepts what one of the alternatives accepts."""
    optional = type(None) in parts
    kinds = [part for part in parts if part is not type(None)]
    checks = [_alternative(part) for part in kinds]
    if any(check is None for check in checks):
        return None
    some = [check for check in checks if check is not None]
    words = [_words(part) for part in parts]

    def check(value: Any, name: str) -> None:
        if optional and value is None:
            return None
        if len(some) == 1:
            some[0](value, name)
            return None
        for alternative in some:
            try:
                return alternative(value, name)
            except MeasureformerError:
                continue
        # the one that is closest says what is wrong
        for part, alternative in zip(kinds, some, strict=True):
            strings = isinstance(value, str) and (get_origin(part) is Literal or part == PathLike)
            arrays = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
            if strings or (arrays and (alternative in _OF_ARRAYS or getattr(alternative, "func", None) in _OF_ARRAYS)):
                alternative(value, name)
        raise DtypeError(got=shown(value, name), need=" or ".join(words), do=f"Pass {name} as one of these.")

    return check


def _words(hint: Any) -> str:
    if hint is type(None):
        return "None"
    if any(isinstance(mark, Real) for mark in getattr(hint, "__metadata__", ())):
        return "an array of real numbers"
    if hint == PathLike:
        return "a path"
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Callable, Sequence):
        return "a function" if get_origin(hint) is Callable else "a sequence"
    name = getattr(hint, "__name__", str(hint))
    return NEEDED.get(name, name)


def _array(value: Any, name: str, mark: Real) -> None:
    numbers = floats(value, name)
    if mark.axes is not None and numbers.ndim != mark.axes:
        need = "one number" if mark.axes == 0 else f"an array with {mark.axes} axes"
        raise ShapeError(got=f"{name} of shape {numbers.shape}", need=need, do=f"Pass {name} in this shape.")
    if mark.filled and numbers.size == 0:
        raise ShapeError(
            got=f"{name} of shape {numbers.shape}", need="at least one number", do=f"Pass {name} with entries."
        )
    if mark.finite:
        finite(numbers, name)
    limits = Within(mark.least, mark.most)
    if limits != REAL and not isinstance(numbers, Tracer):
        for value in (float(numbers.min()), float(numbers.max())) if numbers.size else ():
            _in(value, name, limits)


def _key(value: Any, name: str) -> None:
    prng_key(value)


def _dtype(value: Any, name: str) -> None:
    try:
        kind = np.dtype(value).kind
    except (TypeError, ValueError):
        kind = ""
    if kind != "f":
        need = "a floating-point type"
        raise DtypeError(got=shown(value, name), need=need, do=f"Pass {name} = np.float32, say.")


def whole(value: Any, name: str, limits: Within = WHOLE) -> None:
    """Refuse what is not one whole number, or not within the limits."""
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_, type)) or not hasattr(value, "__index__"):
            raise DtypeError(got=shown(value, name), need="a whole number", do=f"Pass {name} as an int.")
        try:
            value = operator.index(value)
        except TypeError:  # an array offers the method, whatever it holds
            raise DtypeError(
                got=f"{name} of shape {np.shape(value)}", need="one whole number", do=f"Pass {name} as an int."
            ) from None
    _in(value, name, limits)


def real(value: Any, name: str, limits: Within = REAL) -> None:
    if type(value) is not float:
        # random keys have a type that says nothing, and no float
        one = getattr(value, "ndim", 0) == 0 and hasattr(value, "__float__")
        one = one and getattr(getattr(value, "dtype", None), "kind", "f") in "iuf"
        # fractions and decimals have a float too, but arrays of them have objects for entries
        if isinstance(value, bool) or not (one if hasattr(value, "dtype") else isinstance(value, (int, float))):
            raise DtypeError(got=shown(value, name), need="one real number", do=f"Pass {name} as a float.")
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise NotFiniteError(got=f"{name} = {value}", need="a finite number", do=f"Pass a finite {name}.")
    _in(value, name, limits)


def _in(value: float, name: str, limits: Within) -> None:
    if not limits.least <= value <= limits.most:
        raise OptionError(
            got=shown(value, name),
            need=f"numbers from {limits.least:,} to {limits.most:,}",
            do=f"Choose {name} between these limits.",
        )


def _one_of(value: Any, name: str, options: tuple[Any, ...]) -> None:
    if not (isinstance(value, (str, int, types.NoneType)) and value in options):
        hint = did_you_mean(value, options) if isinstance(value, str) else ""
        raise OptionError(
            got=shown(value, name),
            need=f"one of {', '.join(map(repr, options))}",
            do=hint or f"Pass {name} as one of these.",
        )


def _kind(value: Any, name: str, kinds: Any, words: str, do: str) -> None:
    if not isinstance(value, kinds):
        raise DtypeError(got=shown(value, name), need=words, do=do.format(name=name))


def _instance(value: Any, name: str, kind: type) -> None:
    if kind.__name__ in ("AbstractAtomic", "Discrete") and hasattr(value, "discretize"):
        raise NoClosedFormError(
            got=f"{name} of type {type(value).__name__}, which has a density",
            need="a measure with atoms",
            do=f"Take atoms first: {name}.discretize(n), or {name}.sample(key, n).",
        )
    words = NEEDED.get(kind.__name__, f"an object of the class {kind.__name__}")
    _kind(value, name, kind, words, "Pass {name} as such an object.")


def _callable(value: Any, name: str, count: int | None) -> None:
    if not callable(value):
        raise DtypeError(got=shown(value, name), need="a function", do=f"Pass {name} as something that can be called.")
    if count is None:
        return
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return  # written in C: nothing is known
    try:
        signature.bind(*[None] * count)
    except TypeError:
        words = "1 argument" if count == 1 else f"{count} arguments"
        raise DtypeError(
            got=f"{name} that is called as {name}{signature}",
            need=f"a function of {words}",
            do=f"Pass a function that can be called with {words}, without names.",
        ) from None


def _sequence(value: Any, name: str, check: Check | None) -> None:
    whole = getattr(value, "ndim", 1) > 0 and not isinstance(value, (str, bytes))
    if not (whole and isinstance(value, (Sequence, np.ndarray, jax.Array))):
        raise DtypeError(got=shown(value, name), need="a sequence", do=f"Pass {name} as a list or a tuple.")
    if check is not None:
        for i, part in enumerate(value):
            check(part, f"{name}[{i}]")


def _tuple(value: Any, name: str, checks: tuple[Check | None, ...]) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != len(checks):
        need = f"{len(checks)} values in a tuple"
        raise DtypeError(got=shown(value, name), need=need, do=f"Pass {name} = ({', '.join('…' * len(checks))}).")
    for i, (check, part) in enumerate(zip(checks, value, strict=True)):
        if check is not None:
            check(part, f"{name}[{i}]")


def _an_array(value: Any, name: str) -> None:
    # a random key says that it is an array, but no function of arrays takes it
    if not isinstance(value, (np.ndarray, jax.Array)) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise DtypeError(got=shown(value, name), need="an array", do=f"Pass {name} as an array.")
    if value.ndim == 0:
        raise ShapeError(got=f"{name} of shape ()", need="an array with an axis", do=f"Pass {name} as [{name}].")


def _path(value: Any, name: str) -> None:
    _kind(value, name, (str, os.PathLike), "a path", "Pass {name} as a str or a pathlib.Path.")
    path = os.fsdecode(value)
    try:
        longest = max(len(os.fsencode(part)) for part in path.split(os.sep))
    except UnicodeEncodeError:
        got = f"{name} = {path[:40]!r}, which the file system cannot encode"
        raise OptionError(got=got, need="a name in its encoding", do="Choose another name.") from None
    if longest > LONGEST or "\0" in path:
        raise OptionError(
            got=f"{name} = {path[:40]!r}, a path with a name of {longest} bytes",
            need=f"names of at most {LONGEST} bytes without null characters, which file systems can hold",
            do="Choose another name.",
        )


def _string(value: Any, name: str) -> None:
    do = "Pass {name} as a str."
    if isinstance(value, os.PathLike):
        do = "Pass {name}.read_text(encoding='utf-8') for the text in the file, or str({name}) for its name."
    _kind(value, name, str, "a string", do)


_OF_ARRAYS = (_array, _sequence)

_PLAIN: dict[Any, Check] = {
    int: whole,
    float: real,
    str: _string,
    bool: functools.partial(_kind, kinds=(bool, np.bool_), words="True or False", do="Pass {name} as a bool."),
}
for _each in (Mapping, Iterable):
    _PLAIN[_each] = functools.partial(_kind, kinds=_each, words=f"a {_each.__name__.lower()}", do="Pass {name} as one.")
