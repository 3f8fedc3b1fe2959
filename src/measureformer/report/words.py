"""How verdicts, numbers and intervals are written, on the page and on the command line."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Literal

from measureformer.result import Check, Result

Status = Literal["holds", "violated", "inconclusive", "control passed"]

STATUSES: tuple[Status, ...] = ("holds", "violated", "inconclusive", "control passed")

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def status(result: Result) -> Status:
    """The verdict in view of the control: a claim whose control is not rejected has shown nothing."""
    if result.verdict == "holds" and not result.passes:
        return "control passed"
    return result.verdict


def clean(text: str) -> str:
    """`text` without characters that neither XML nor a terminal can take: control, surrogate, unassigned.

    >>> clean("a\\x00b")
    'a�b'
    """
    return re.sub(r"[^\n -~]", lambda hit: "\ufffd" if unicodedata.category(hit[0]) in _HARMFUL else hit[0], text)


# Cf holds the marks that reverse the direction of what follows and can make a text read as another one
_HARMFUL = ("Cc", "Cf", "Cs", "Cn", "Co")


def one_line(text: str) -> str:
    """`text` cleaned, with every run of white space as one space."""
    return clean(" ".join(text.split()))


def number(value: float, digits: int = 3) -> str:
    """A number for people: a few digits, powers of ten as such, a true minus sign.

    >>> number(-3.2e-16), number(1234.5), number(float("inf"))
    ('−3.2×10⁻¹⁶', '1234', '∞')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        shown = f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    else:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        shown = f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPTS)}".removeprefix("1×")
    return shown.replace("-", "−")


def measured(check: Check) -> str:
    """The value with its error."""
    return f"{number(check.value)} ± {number(check.error, 2)}" if check.error else number(check.value)


def interval(check: Check) -> str:
    """Where the claim says that the value lies.

    >>> interval(Check("difference", 0.0, high=1e-12)), interval(Check("slope", -0.5, low=-0.55, high=-0.45))
    ('≤ 10⁻¹²', '[−0.55, −0.45]')
    """
    low, high = number(check.low, 4), number(check.high, 4)
    if check.low == check.high:
        return f"= {low}"
    if math.isinf(check.low) and math.isinf(check.high):
        return "any"
    if math.isinf(check.low):
        return f"≤ {high}"
    return f"≥ {low}" if math.isinf(check.high) else f"[{low}, {high}]"
