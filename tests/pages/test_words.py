"""Numbers and intervals as people read them."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measureformer.atlas.result import Check, Outcome
from measureformer.atlas.words import interval, measured, status
from measureformer.pages.words import clean, number, one_line
from planting import a_control, a_result

_BACK = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")


def read(text: str) -> float:
    """The number that a text written by `number` stands for."""
    sign, text = (-1.0, text[1:]) if text.startswith("−") else (1.0, text)
    if "10" in text and any(c in text for c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"):
        mantissa, _, power = ("1×" + text if text.startswith("10") else text).partition("×10")
        return sign * float(f"{mantissa}e{power.translate(_BACK)}")
    return sign * float(text)


@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_numbers_keep_three_digits(value: float) -> None:
    shown = read(number(value)) if abs(value) < 0.999 * sys.float_info.max else value
    assert shown == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-0.5, "−0.5"),
        (0.9996, "1"),
        (1234.5, "1234"),
        (99999.0, "99999"),
        (123456.0, "1.23×10⁵"),
        (0.001, "0.001"),
        (1e-4, "10⁻⁴"),
        (-2.5e-16, "−2.5×10⁻¹⁶"),
        (1e300, "10³⁰⁰"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "not a number"),
    ],
)
def test_known_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("check", "shown"),
    [
        (Check("x", 0.0, high=1e-12), "≤ 10⁻¹²"),
        (Check("x", 0.0, low=2.0), "≥ 2"),
        (Check("x", 0.0, low=-1.0, high=1.0), "[−1, 1]"),
        (Check("x", 0.0, low=0.0, high=0.0), "= 0"),
        (Check("x", 0.0), "any"),
    ],
)
def test_known_intervals(check: Check, shown: str) -> None:
    assert interval(check) == shown


def test_errors_are_shown_if_there_are_any() -> None:
    assert measured(Check("x", 1.5, error=0.25)) == "1.5 ± 0.25"
    assert measured(Check("x", 1.5)) == "1.5"


def test_claim_whose_control_passes_has_a_status_of_its_own() -> None:
    good, bad = (Outcome((Check("x", value, high=1.0, rejected_by="false"),)) for value in (0.0, 2.0))
    assert status(a_result(run=good, controls=a_control(bad))) == "holds"
    assert status(a_result(run=good, controls=a_control(good))) == "control not rejected"
    assert status(a_result(run=bad, controls=a_control(bad))) == "violated"
    assert status(a_result(run=Outcome(()), controls=a_control(bad))) == "inconclusive"


@given(st.text(st.characters(), max_size=20))
def test_clean_text_can_be_written_and_shown(text: str) -> None:
    assert clean(text).encode("utf-8")[:0] == b""
    assert all(c.isprintable() or c == "\n" or c.isspace() for c in clean(text))
    assert "\n" not in one_line(text)


def test_letters_and_symbols_are_kept() -> None:
    text = "Γ[μ](x) ⋄ ♯ ≤ ∞ ⟨Qx, Ky⟩ Peyré Łukasz Kᵀ x₁²"
    assert clean(text) == text


@pytest.mark.parametrize("hidden", ["\x00", "\x1b", "\x7f", "\u202e", "\u200b", "\ufffe", "\ud800", "\ue000"])
def test_harmful_characters_are_replaced(hidden: str) -> None:
    assert clean(f"a{hidden}b") == "a\ufffdb"
