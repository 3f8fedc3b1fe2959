"""Several controls of one claim: each has to be rejected."""

from __future__ import annotations

from measureformer.atlas.result import Check

NEARNESS = ("violated", "inconclusive", "holds")


def weakest(*controls: tuple[Check, ...]) -> tuple[Check, ...]:
    """The checks of the control that comes nearest to holding: if that one is rejected, so are all others.

    >>> far, near = (Check("error", 3.0, high=1.0),), (Check("error", 2.0, high=1.0),)
    >>> [check.value for check in weakest(far, near)]
    [2.0]
    """
    return max(controls, key=lambda checks: min((NEARNESS.index(one.verdict), one.margin) for one in checks))
