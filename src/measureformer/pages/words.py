"""Numbers and text for people: safe in a page and on a terminal."""

from __future__ import annotations

import math
import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
    """A number for readers: a few digits, powers of ten with superscripts, a true minus sign.

    Arguments:
        value: any float.
        digits: significant digits.

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
