"""How verdicts, measured numbers and intervals are written, on the page and on the command line."""

from __future__ import annotations

import math
from typing import Literal

from measureformer.atlas.result import Check, Result
from measureformer.pages.words import number

Status = Literal["holds", "violated", "inconclusive", "control not rejected"]

STATUSES: tuple[Status, ...] = ("holds", "violated", "inconclusive", "control not rejected")


def status(result: Result) -> Status:
    """The verdict in view of the control: a claim whose control is not rejected has shown nothing."""
    if result.verdict == "holds" and not result.passes:
        return "control not rejected"
    return result.verdict


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
