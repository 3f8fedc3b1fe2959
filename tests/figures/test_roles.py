"""The visual language: the role decides, and no two series of a figure differ by colour alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from measureformer.errors import ResultFormatError
from measureformer.figures.figure import Role, Series, Style
from measureformer.figures.roles import COLOURS, CONTROL, INK, MEASURE, PALETTE, Looks


def series(role: Role, style: Style = "line") -> Series:
    return Series("trained", (0.0, 1.0), (1.0, 2.0), style, (2.0, 3.0) if style == "band" else (), role=role)


@pytest.mark.parametrize("style", ["line", "dashed", "points", "bars", "band"])
@pytest.mark.parametrize("label", ["control: no mask", "proven bound", "tokens", "trained"])
def test_the_role_decides_whatever_the_label_says(label: str, style: Style) -> None:
    for kind, table in COLOURS.items():
        looks = Looks()
        looks.next(series("control"))
        assert looks.next(replace(series(kind, style), label=label)).color in table


def test_a_dashed_series_is_dashed_whatever_it_stands_for() -> None:
    for kind in COLOURS:
        assert Looks().next(series(kind, "dashed")).dash != "solid"


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(ResultFormatError, match='"measured", "theory", "control", "measure"'):
        Series("trained", (), (), role="bound")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["measured", "theory", "control", "measure"])
@pytest.mark.parametrize("style", ["line", "bars"])
def test_series_differ_in_more_than_colour(kind: Role, style: Style) -> None:
    number = {"measured": 6, "theory": 4, "control": 2, "measure": 3}[kind]
    looks = Looks()
    found = [looks.next(series(kind, style)) for _ in range(number)]
    for a, b in combinations(found, 2):
        assert a.color != b.color
        assert (a.dash, a.marker) != (b.dash, b.marker) if style == "line" else a.hatch != b.hatch


def test_colours_have_one_meaning() -> None:
    tables = (PALETTE, INK, CONTROL, MEASURE)
    assert len({colour for table in tables for colour in table}) == sum(map(len, tables))


def test_band_looks_like_the_series_of_its_role_before_it() -> None:
    looks = Looks()
    before = looks.next(series("measured"))
    looks.next(series("control"))
    assert looks.next(series("measured", "band")) == before
    assert looks.next(series("theory", "band")).color in COLOURS["theory"]


def test_a_series_without_a_role_is_refused() -> None:
    with pytest.raises(TypeError, match="role"):
        Series("trained", (), ())  # pyright: ignore[reportCallIssue]
