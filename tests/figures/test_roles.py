"""The visual language: roles follow from labels, and no two series of a figure differ by colour alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from measureformer.errors import ResultFormatError
from measureformer.figures.figure import Series, Style
from measureformer.figures.roles import COLOURS, CONTROL, INK, MEASURE, PALETTE, Looks, role


def series(label: str, style: Style = "line") -> Series:
    return Series(label, (0.0, 1.0), (1.0, 2.0), style, (2.0, 3.0) if style == "band" else ())


@pytest.mark.parametrize(
    ("label", "style", "expected"),
    [
        ("control: no mask", "line", "control"),
        ("control: V(m + ΣQᵀKx)", "dashed", "control"),
        ("mean, coordinate 1: control, QᵀK", "dashed", "control"),
        ("under control of nobody", "line", "measured"),
        ("N^{-1/2}", "dashed", "theory"),
        ("sum of the error bounds", "line", "theory"),
        ("certified upper value", "line", "theory"),
        ("mean, coordinate 1: equation", "line", "theory"),
        ("order 1/n", "line", "theory"),
        ("unbounded", "line", "measured"),
        ("bound violated here", "points", "measured"),
        ("start", "points", "measure"),
        ("start", "dashed", "theory"),
        ("tokens", "points", "measure"),
        ("restart", "line", "measured"),
    ],
)
def test_roles(label: str, style: Style, expected: str) -> None:
    assert role(series(label, style)) == expected


@pytest.mark.parametrize("style", ["line", "dashed", "points", "bars", "band"])
@pytest.mark.parametrize("label", ["control: no mask", "proven bound", "tokens", "trained"])
def test_a_role_that_is_given_decides(label: str, style: Style) -> None:
    for kind, table in COLOURS.items():
        given = replace(series(label, style), role=kind)
        assert role(given) == kind
        looks = Looks()
        looks.next(series("control"))
        # kills: the label, or the series before a band, that knows better
        assert looks.next(given).color in table


def test_a_dashed_series_is_dashed_whatever_it_stands_for() -> None:
    for kind in COLOURS:
        assert Looks().next(replace(series("trained", "dashed"), role=kind)).dash != "solid"


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(ResultFormatError, match='"measured", "theory", "control", "measure"'):
        Series("trained", (), (), role="bound")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["measured", "theory", "control", "measure"])
@pytest.mark.parametrize("style", ["line", "bars"])
def test_series_differ_in_more_than_colour(kind: str, style: Style) -> None:
    label = {"measured": "run", "theory": "bound", "control": "control:", "measure": "tokens"}[kind]
    number = {"measured": 6, "theory": 4, "control": 2, "measure": 3}[kind]
    looks = Looks()
    # bounds that are bars are data that were measured
    found = [looks.next(series(f"{label} {i}", style)) for i in range(number)]
    for a, b in combinations(found, 2):
        assert a.color != b.color
        assert (a.dash, a.marker) != (b.dash, b.marker) if style == "line" else a.hatch != b.hatch


def test_colours_have_one_meaning() -> None:
    tables = (PALETTE, INK, CONTROL, MEASURE)
    assert len({colour for table in tables for colour in table}) == sum(map(len, tables))


def test_band_looks_like_the_series_before_it() -> None:
    looks = Looks()
    looks.next(series("a"))
    before = looks.next(series("control: b"))
    assert looks.next(series("spread", "band")) == before
