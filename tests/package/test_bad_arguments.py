"""Public functions refuse bad arguments with the library's sentences, and `checked`, which sees to most of it."""

from __future__ import annotations

import inspect
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bad_arguments
import measureformer as mf
from measureformer.errors import DtypeError, MeasureformerError, NotFiniteError, OptionError, ShapeError
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.checked import check_fields, checked
from measureformer.numerics.types import ArrayLike, Extended, Key, Number, PathLike, Within

CASES = 2000


@checked
def everything(
    count: int = 1,
    share: Annotated[float, Within(0, 1)] = 0.5,
    /,
    array: ArrayLike = 0.0,
    logs: Extended = 0.0,
    *,
    one: Number = 0.0,
    key: Key | None = None,
    kind: Literal["a", "b"] = "a",
    word: str = "",
    yes: bool = True,
    path: PathLike = ".",
    function: Callable[[Any], Any] = abs,
    map: mf.AbstractInContextMap | None = None,
    atoms: AbstractAtomic | None = None,
    pair: tuple[int, float] = (1, 1.0),
    many: Sequence[int] | int = 1,
) -> str:
    """An example."""
    return "called"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((3, 0.25, [[1, 2], [3, 4]], [-np.inf, 0.0]), {}),
        ((np.int64(3), np.float32(0.25), jnp.ones(2), -np.inf), {}),
        ((jnp.asarray(3), 1, True), {"one": np.array(2.0)}),
        ((), {"key": jax.random.key(0), "kind": "b", "word": "x", "yes": np.False_, "path": Path("x")}),
        ((), {"key": None, "function": lambda x, y=1: x, "map": mf.Identity(), "pair": [2, 3], "many": [1, 2]}),
        ((), {"map": None, "many": np.array([1, 2]), "path": "x"}),
    ],
)
def test_good_arguments_pass(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert everything(*args, **kwargs) == "called"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((True,), DtypeError),
        ((1.0,), DtypeError),
        ((np.ones(2),), DtypeError),
        ((10**400,), OptionError),
        ((-(10**10),), OptionError),
        ((1, True), DtypeError),
        ((1, "0.5"), DtypeError),
        ((1, Fraction(1, 2)), DtypeError),
        ((1, 1j), DtypeError),
        ((1, None), DtypeError),
        ((1, int), DtypeError),
        ((1, jax.random.key(0)), DtypeError),  # kills: what has a type without a kind taken for a number
        ((1, 10**400), NotFiniteError),
        ((1, float("nan")), NotFiniteError),
        ((1, 1.5), OptionError),
        ({"array": [[1.0], [1.0, 2.0]]}, ShapeError),
        ({"array": [1.0, np.nan]}, NotFiniteError),
        ({"array": 1j}, DtypeError),
        ({"logs": "none"}, DtypeError),
        ({"one": [1.0]}, ShapeError),
        ({"key": 0}, DtypeError),
        ({"kind": "c"}, OptionError),
        ({"kind": ["a"]}, OptionError),
        ({"word": b"x"}, DtypeError),
        ({"yes": 1}, DtypeError),
        ({"path": 1}, DtypeError),
        ({"path": "x" * 300}, OptionError),
        ({"path": "a\0b"}, OptionError),
        ({"function": 1}, DtypeError),
        ({"function": lambda: None}, DtypeError),
        ({"map": np.ones(2)}, DtypeError),
        ({"pair": (1,)}, DtypeError),
        ({"pair": (1, "x")}, DtypeError),
        ({"many": "12"}, DtypeError),
        ({"many": [1, 0.5]}, DtypeError),
    ],
)
def test_bad_arguments_are_refused(bad: Any, error: type[MeasureformerError]) -> None:
    args, kwargs = (bad, {}) if isinstance(bad, tuple) else ((), bad)
    with pytest.raises(error) as refused:
        everything(*args, **kwargs)
    assert all([refused.value.got, refused.value.need, refused.value.do])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        # kills: numbers told as arrays, with an index or a dtype
        ({"array": float("nan")}, "array = nan"),
        ({"array": None}, "array = None of type NoneType"),
        ({"array": "1"}, "array = '1' of type str"),
        ({"array": np.ma.masked_array([1.0, 2.0], [True, False])}, "array with 1 masked entries"),
        ({"path": f"/tmp/{'x' * 300}"}, "a name of 300 bytes"),
        # kills: a file's name taken for its text
        ({"word": Path("x")}, r"word\.read_text"),
        ({"map": "attention"}, "need an in-context map, such as mf.Attention.random"),
        ({"atoms": mf.Gaussian([0.0], [[1.0]])}, r"atoms\.discretize\(n\)"),
    ],
)
def test_sentences_show_what_was_received(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(MeasureformerError, match=says):
        everything(**bad)


@pytest.mark.parametrize("call", [lambda: pair(1.0), lambda: pair(1.0, 2.0, 3.0), lambda: pair(1.0, 2.0, c=3.0)])
def test_missing_and_extra_arguments_stay_type_errors(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError) as refused:
        call()
    assert not isinstance(refused.value, MeasureformerError)


@checked
def pair(a: float, b: float) -> float:
    """a + b."""
    return a + b


def test_position_and_name_are_checked_alike() -> None:
    for call in (lambda: pair(1.0, "x"), lambda: pair(1.0, b="x"), lambda: pair(b="x", a=1.0)):  # type: ignore[arg-type]
        with pytest.raises(DtypeError, match="b = 'x'"):
            call()


def test_every_one_of_many_arguments_is_checked() -> None:
    @checked
    def total(*numbers: float) -> float:
        return sum(numbers)

    assert total(1.0, 2.0, 3.0) == 6.0
    with pytest.raises(NotFiniteError):
        total(1.0, 2.0, float("inf"))


def test_tracers_pass() -> None:
    assert jax.jit(pair)(1.0, 2.0) == 3.0
    assert jax.grad(lambda a: pair(a, 2.0))(1.0) == 1.0


def test_the_function_keeps_its_signature_and_pickles() -> None:
    assert list(inspect.signature(pair).parameters) == ["a", "b"]
    assert pair.__doc__ == "a + b."
    assert pickle.loads(pickle.dumps(mf.memory.amit85_capacity)) is mf.memory.amit85_capacity


def test_annotations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pair(1.0, 2.0) == 3.0
    monkeypatch.setattr("measureformer.numerics.checked._checks", lambda function: pytest.fail("read again"))
    assert pair(1.0, 2.0) == 3.0


def test_a_value_that_no_annotation_decides_passes() -> None:
    @checked
    def loose(a: Any, b: object, c: NotThere) -> Any:  # type: ignore[name-defined]
        return a

    assert loose("a", 1, None) == "a"


def test_fields_are_checked() -> None:
    @dataclass
    class Settings:
        steps: int = 1

        def __post_init__(self) -> None:
            check_fields(self)

    assert Settings(2).steps == 2
    with pytest.raises(DtypeError, match="steps"):
        Settings("2")  # type: ignore[arg-type]


def test_a_broken_function_of_the_user_is_not_renamed() -> None:
    @checked
    def apply(f: Callable[[float], float]) -> float:
        return f(1.0)

    with pytest.raises(bad_arguments.Theirs):
        apply(bad_arguments.broken)


@pytest.mark.slow
def test_a_sample_of_bad_arguments_ends_well() -> None:
    calls = bad_arguments.good_calls(skip=bad_arguments.COSTLY)
    cases = bad_arguments.cases(calls)
    random.Random(0).shuffle(cases)
    faults = [
        f"{name}: {found}" for name, run in cases[:CASES] if (found := bad_arguments.outcome(run)).startswith("fault")
    ]
    assert len(cases) > CASES
    assert not faults, "\n".join(faults)
