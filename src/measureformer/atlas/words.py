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


def often(result: Result) -> str:
    """How many fresh seeds pass, with the 95 % confidence interval of the rate; empty without any.

    >>> import measureformer as mf
    >>> often(mf.check("castin-2025-gaussian-tilt", seeds=2))
    '2 of 2 (95 % interval 0.34 to 1)'
    """
    if result.rate is None:
        return ""
    _, low, high = result.rate
    passed = sum(trial.passes for trial in result.trials)
    return f"{passed} of {len(result.trials)} (95 % interval {number(low, 2)} to {number(high, 2)})"


def failures(result: Result) -> list[str]:
    """A line for each fresh seed that does not pass: what went wrong."""
    lines: list[str] = []
    for trial in result.trials:
        parts = [f"{check} does not hold" for check in trial.failed]
        parts += [f"{check} is not rejected by {control or 'any control'}" for check, control in trial.unrejected]
        if not trial.passes:
            lines.append(f"seed {trial.seed}: {'; '.join([*parts, *([trial.raised] if trial.raised else [])])}")
    return lines


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
