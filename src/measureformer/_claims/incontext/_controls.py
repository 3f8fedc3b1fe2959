"""Several controls of one claim: each has to be rejected."""

from __future__ import annotations

from measureformer.result import Check

NEARNESS = ("violated", "inconclusive", "holds")


def nearest(*controls: tuple[Check, ...]) -> tuple[Check, ...]:
    """Of each check, the control that comes nearest to holding: if that one is violated, so are all others.

    >>> [check.value for check in nearest((Check("error", 3.0, high=1.0),), (Check("error", 2.0, high=1.0),))]
    [2.0]
    """
    closeness = lambda check: (NEARNESS.index(check.verdict), check.margin)  # noqa: E731
    return tuple(max(same, key=closeness) for same in zip(*controls, strict=True))
