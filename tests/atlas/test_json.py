"""Results survive the way through JSON; anything that is not one is refused with a sentence."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measureformer.atlas.kinds import KINDS
from measureformer.atlas.result import Check, Control, Outcome, Result
from measureformer.errors import ResultFormatError
from measureformer.figures.figure import Figure, Series
from planting import a_result

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=True, allow_infinity=True)
made_of_numbers = st.builds(
    Check, texts, numbers, numbers, numbers, numbers, st.lists(texts, max_size=2).map(tuple), st.booleans()
)
# the registry refuses configurations that are not finite
entries = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)


@st.composite
def series(draw: st.DrawFn) -> Series:
    style = draw(st.sampled_from(["line", "dashed", "points", "bars", "band"]))
    n = draw(st.integers(0, 3))
    x, y, y2 = (tuple(draw(st.lists(numbers, min_size=n, max_size=n))) for _ in range(3))
    role = draw(st.sampled_from(["measured", "theory", "control", "measure"]))
    return Series(draw(texts), x, y, style, y2 if style == "band" else (), role=role)


words = texts, texts, texts, st.lists(series(), max_size=2).map(tuple)
figures = st.builds(
    Figure,
    *words,
    xscale=st.sampled_from(["linear", "log"]),
    yscale=st.sampled_from(["linear", "log"]),
    xticks=st.lists(texts, max_size=2).map(tuple),
    caption=texts,
) | st.builds(Figure, *words, equal=st.booleans())
outcomes = st.builds(Outcome, st.lists(made_of_numbers, max_size=3).map(tuple), st.none() | figures)
results = st.builds(
    Result,
    **{field.name: texts for field in fields(Result) if field.type == "str"},
    kind=st.sampled_from(sorted(KINDS)),
    hypotheses=st.lists(texts, max_size=2).map(tuple),
    run=outcomes,
    controls=st.lists(st.builds(Control, texts, texts, outcomes), max_size=2).map(tuple),
    seed=st.integers(),
    config=st.dictionaries(texts, entries, max_size=3),
    versions=st.dictionaries(texts, texts, max_size=2),
    seconds=numbers,
)


@given(results)
def test_round_trip(result: Result) -> None:
    # repr, because not-a-number is not equal to itself
    assert repr(Result.from_json(result.to_json())) == repr(result)


@given(results)
def test_files_are_strict_json(result: Result) -> None:
    def refuse(word: str) -> Any:
        raise ValueError(word)

    body = json.loads(result.to_json().encode("utf-8"), parse_constant=refuse)
    assert body["verdict"] == result.verdict
    assert body["passes"] is result.passes


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, "nan", "inf", "1", -(10**30)])
def test_configuration_keeps_the_types_of_its_values(value: int | float | str) -> None:
    read = Result.from_json(a_result(config={"entry": value}).to_json()).config["entry"]
    assert read == value
    assert type(read) is type(value)


def altered(**changes: Any) -> str:
    return json.dumps(json.loads(a_result().to_json()) | changes)


def without(name: str) -> str:
    body = json.loads(a_result().to_json())
    del body[name]
    return json.dumps(body)


def check_with(**changes: Any) -> str:
    run = json.loads(a_result().to_json())["run"]
    run["checks"][0] |= changes
    return altered(run=run)


def series_with(**changes: Any) -> str:
    run = json.loads(a_result().to_json())["run"]
    run["figure"]["series"][0] |= changes
    return altered(run=run)


REFUSED = {
    "nothing": ("", "not JSON"),
    "cut off": (a_result().to_json()[:-20], "not JSON"),
    "deep nesting": ("[" * 100_000, "not JSON"),
    "deep nesting in a field": (altered().replace('"f' + "f" * 63, "[" * 900 + "]" * 900 + ', "x": "'), "got"),
    "nested value": (altered(title=[[[[]]]]), "result.title = list"),
    "a list": ("[]", "a JSON list"),
    "a number": ("3", "a JSON int"),
    "no schema": (without("schema"), "schema version None"),
    "older schema": (altered(schema=0), "schema version 0"),
    "schema as text": (altered(schema="1"), "schema version '1'"),
    "missing field": (without("statement"), "without statement"),
    "missing verdict": (without("verdict"), "verdict that does not follow"),
    "unknown field": (altered(surprise=1), "unknown surprise"),
    "number for text": (altered(title=3), "result.title = 3"),
    "text for number": (altered(seed="3"), "result.seed = '3'"),
    "float for integer": (altered(seed=3.0), "result.seed = 3.0"),
    "truth for number": (altered(seconds=True), "result.seconds = True"),
    "truth in configuration": (altered(config={"size": True}), "result.config.size = True"),
    "text for list": (altered(hypotheses="x is real"), "result.hypotheses"),
    "list for record": (altered(run=[]), "result.run of type list"),
    "null for record": (altered(run=None), "result.run of type NoneType"),
    "number in list": (altered(hypotheses=["x", 1]), "result.hypotheses[1] = 1"),
    "list in configuration": (altered(config={"size": [1]}), "result.config.size = list"),
    "number in versions": (altered(versions={"jax": 1}), "result.versions.jax = 1"),
    "unknown kind": (altered(kind="folklore"), "result.kind = 'folklore'"),
    "missing kind": (without("kind"), "without kind"),
    "unknown role": (series_with(role="bound"), "role = 'bound'"),
    "unknown style": (series_with(style="pie"), "style = 'pie'"),
    "lengths differ": (series_with(x=[1.0]), "1 x, 3 y and 0 y2"),
    "band without edge": (series_with(style="band"), "3 x, 3 y and 0 y2"),
    "huge integer": (check_with(value=10**400), "value = "),
    "bare NaN": (check_with(value=math.nan), "value = nan"),
    "word for number": (check_with(value="NaN"), "value = 'NaN'"),
    "lone surrogate": (altered(title="\ud800"), "result.title"),
    "lone surrogate in a key": (altered(versions={"\ud800": "1"}), "a key of result.versions"),
    "tampered verdict": (altered(verdict="violated"), "verdict that does not follow"),
    "tampered pass": (altered(passes=False), "verdict that does not follow"),
    "tampered number": (check_with(value=5.0), "verdict that does not follow"),
}


@pytest.mark.parametrize(("text", "got"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_a_result_is_refused(text: str, got: str) -> None:
    with pytest.raises(ResultFormatError) as refusal:
        Result.from_json(text)
    assert got in str(refusal.value)
    needs = ("schema version 4", "as many x as y", "a file that this version of measureformer wrote")
    assert any(need in refusal.value.need for need in needs)
    assert len(str(refusal.value)) < 400


def test_unaltered_text_is_accepted() -> None:
    # the refusals above are refusals of the change
    assert Result.from_json(altered()) == a_result()


def test_result_is_frozen() -> None:
    with pytest.raises(AttributeError):
        a_result().seed = 4  # type: ignore[misc]
    assert replace(a_result(), seed=4).seed == 4
