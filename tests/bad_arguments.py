"""Bad arguments for every public function: its own example is run once with recorders, and then again with one argument
replaced by each of a catalogue of bad values.

A case ends well if the call returns finite numbers, or refuses with one of the library's errors. Everything else is a
fault: a raw exception from inside, a NaN where the arguments had none, a call that does not end.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

import measureformer as mf
from measureformer.errors import MeasureformerError

SECONDS = 12
"""A call that computes for longer does not end: processor time, which a busy machine does not stretch."""
BYTES = 16 << 30
"""Address space of a process of the attack: a size of 2⁶³ must be refused before memory is asked for."""


class Theirs(Exception):
    """An exception of the user's own function, which must come through as it is."""


def broken(*_: Any, **__: Any) -> Any:
    """A function of the user that does not work."""
    raise Theirs


class Opaque:
    """Nothing that any function could want."""

    def __init__(self, *args: Any) -> None:
        if args:
            raise Theirs

    def __repr__(self) -> str:
        return "Opaque()"


SCALARS: dict[str, Any] = {
    "None": None,
    "object": Opaque(),
    "string": "no such thing",
    "bytes": b"\x00\xff",
    "True": True,
    "zero": 0,
    "minus one": -1,
    "half": 0.5,
    "1e300": 1e300,
    "denormal": 5e-324,
    "nan": float("nan"),
    "inf": float("inf"),
    "2**63": 2**63,
    "10**400": 10**400,
    "complex": 1 + 2j,
}


def catalogue() -> dict[str, Any]:
    """Name -> bad value. Some are good for some arguments, which then accept them."""
    structured = np.zeros(3, dtype=[("a", float), ("b", int)])
    return SCALARS | {
        "empty list": [],
        "ragged": [[1.0], [2.0, 3.0]],
        "rows of nothing": np.zeros((0, 2)),
        "no columns": np.zeros((2, 0)),
        "nan array": np.array([[0.0, np.nan], [1.0, 2.0]]),
        "inf array": np.array([[0.0, np.inf], [1.0, 2.0]]),
        "huge array": np.array([[1e308, -1e308], [1e308, 1e308]]),
        "negative array": np.array([-1.0, 2.0]),
        "three axes": np.zeros((2, 2, 2)),
        "complex array": np.array([1j, 2.0]),
        "masked": np.ma.masked_array([1.0, 2.0], mask=[True, False]),
        "structured": structured,
        "strings": np.array(["a", "b"]),
        "objects": np.array([Opaque(), None], dtype=object),
        "dates": np.array(["2026-01-01"], dtype="datetime64[D]"),
        "dict": {"a": 1},
        "set": {1, 2},
        "function": broken,
        "class": Opaque,
        "key": jax.random.key(0),
        "measure": mf.Discrete.uniform([[0.0, 1.0, 2.0]]),
        "map": mf.Identity(),
        "empty string": "",
        "long string": "x" * 10_000,
        "minus inf": -float("inf"),
        "-1e300": -1e300,
        "2**31": 2**31,
        "-2**63": -(2**63),
        "half precision": np.float16(0.1),
        "fraction": Fraction(1, 3),
        "range": range(3),
        "empty tuple": (),
        "nested": [[[[[1.0]]]]],
        "generator": (i for i in range(3)),
        "bytearray": bytearray(b"ab"),
        "no axes": np.array(2.0),
        "booleans": np.array([True, False]),
        "integers": np.array([[1, 2], [3, 4]]),
        "denormals": np.array([[5e-324, -5e-324]]),
        "float32": np.array([[0.1, 0.2]], np.float32),
        "gaussian": mf.Gaussian([0.0], [[1.0]]),
        "causal": mf.SpaceTime.sequence([[0.0], [1.0]]),
        "path": Path("nowhere"),
    }


@dataclass(frozen=True)
class Call:
    """One good call of a public function."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def places(self) -> list[tuple[str, int | str]]:
        """Arguments that can be replaced: those given, and the keyword-only ones that were left out."""
        given: list[tuple[str, int | str]] = [(f"argument {i}", i) for i in range(len(self.args))]
        given += [(name, name) for name in self.kwargs]
        with contextlib.suppress(TypeError, ValueError):
            parameters = inspect.signature(self.function).parameters.values()
            rest = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in self.kwargs]
            given += [(name, name) for name in rest]
        return given

    def bad(self, place: int | str, value: Any) -> Callable[[], Any]:
        args = [value if i == place else argument for i, argument in enumerate(self.args)]
        kwargs = dict(self.kwargs) | ({place: value} if isinstance(place, str) else {})
        return lambda: self.function(*args, **kwargs)


class Recorder:
    """Stands for a public object while its example runs, and keeps the first call of everything below it."""

    def __init__(self, name: str, real: Any, calls: dict[str, Call]) -> None:
        self.__dict__.update(_name=name, _real=real, _calls=calls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_real(a) for a in args)
        kwargs = {name: _real(value) for name, value in kwargs.items()}
        known = {call.function for call in self._calls.values() if inspect.isfunction(call.function)}
        if self._real not in known:
            self._calls.setdefault(self._name, Call(self._name, self._real, args, kwargs))
        return self._real(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        wanted = isinstance(found, ModuleType) or (callable(found) and not name.startswith("_"))
        return Recorder(f"{self._name}.{name}", found, self._calls) if wanted else found


def _real(value: Any) -> Any:
    return value._real if isinstance(value, Recorder) else value


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, `mf.name` and `mf.folder.name`."""
    for name in mf.__all__:
        found = getattr(mf, name)
        if isinstance(found, ModuleType):
            yield from ((f"mf.{name}.{inner}", getattr(found, inner)) for inner in dir(found))
        elif callable(found):
            yield f"mf.{name}", found


COSTLY = (
    # train, fit or search for seconds
    "train", "fit", "phase_diagram", "retrieval", "observables", "measure_laws", "error_curve", "epsilon", "perplexity",
    "generate", "load_", "diagnose", "is_transformer", "decompose", "descend_all", "mf.check", "mean_field_rate",
    "adversary", "pair_covariance", "local_lipschitz", "InContextModel", "LanguageModel", "check_laws", "lens.load",
    "SinkhornAttention", "SparseAttention",
    # solve differential equations
    "flow", "mf.clustering.equiangular", "weak_residual", "push_density",
)  # fmt: skip
"""Parts of names whose examples cost more than a second or two: their cases are left to `make bench`."""


EXCUSED = (
    "mf.sweep(argument 1",  # its example multiplies what it is given: what fails is the user's function
    "mf.mean_field.pair_covariance(argument 2 = measure)",  # draws of a Dirac have no covariance to fit an order to
    "mf.lens.diagnose(lipschitz = True",  # asks for the constants of all layers, which takes long
    "mf.universality.fit_map(search = None",  # the default, a full search, takes long
    "mf.is_transformer(",  # NaN stands for a search that was not needed
)
"""Beginnings of cases that end in another way, rightly."""


def good_calls(skip: Sequence[str] = ()) -> dict[str, Call]:
    """One good call of each public function and constructor that an example calls, except those with such names."""
    calls: dict[str, Call] = {}
    seen: set[int] = set()
    parser = doctest.DocTestParser()
    for name, found in public():
        if id(found) in seen or not inspect.getdoc(found) or isinstance(found, ModuleType):
            continue
        if any(part in name for part in skip):
            continue
        seen.add(id(found))
        _run(parser.get_examples(inspect.getdoc(found) or ""), calls)
    return calls


def _run(examples: list[doctest.Example], calls: dict[str, Call]) -> None:
    """The lines of an example with recorders in place of the package, as far as they go."""
    sys.modules["measureformer"] = Recorder("mf", mf, calls)  # type: ignore[assignment]
    scope: dict[str, Any] = {}
    try:
        with contextlib.chdir(tempfile.mkdtemp()), contextlib.redirect_stdout(io.StringIO()):
            for example in examples:
                exec(compile(example.source, "<example>", "single"), scope)
    except Exception:  # an `isinstance` of a recorder, say: the calls before it are kept
        pass
    finally:
        sys.modules["measureformer"] = mf


class TooLong(BaseException):
    """The call did not end."""


def _ring(*_: Any) -> None:
    raise TooLong


def outcome(run: Callable[[], Any]) -> str:
    """ "refused", "accepted", or the fault."""
    signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            value = run()
            silent = has_nan(value)
    except MeasureformerError as error:
        return "refused" if error.got and error.need and error.do else "fault: a part of the sentence is empty"
    except Theirs:
        return "passed on"
    except TooLong:
        return "fault: does not end"
    except BaseException as error:
        return f"fault: {type(error).__name__}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "fault: NaN" if silent else "accepted"


def has_nan(value: Any) -> bool:
    with contextlib.suppress(Exception):
        for leaf in jax.tree.leaves(value):
            if isinstance(leaf, (float, np.ndarray, np.generic, jax.Array)):
                numbers = np.asarray(leaf)
                if numbers.dtype.kind == "f" and np.isnan(numbers).any():
                    return True
    return False


def cases(calls: Mapping[str, Call]) -> list[tuple[str, Callable[[], Any]]]:
    """Every call × argument × bad value, with a name that says which."""
    return [
        (f"{call.name}({place_name} = {value_name})", call.bad(place, value))
        for call in calls.values()
        for place_name, place in call.places()
        for value_name, value in catalogue().items()
        if not f"{call.name}({place_name} = {value_name})".startswith(EXCUSED)
    ]


def limited() -> None:
    """Bound the memory of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    os.chdir(tempfile.mkdtemp())
