"""Every claim, found by discovery, passes in its quick preset: it holds and its control is rejected."""

from __future__ import annotations

import pytest

from measureformer.atlas.registry import Entry, discover, run
from measureformer.atlas.result import Result

ENTRIES = discover()


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_claim_passes(entry: Entry) -> None:
    if entry.claim.needs is not None and (why := entry.claim.needs()):
        pytest.skip(f"not run: {why}")
    result = run(entry, seed=0, preset="quick")
    assert result.run.verdict == "holds", result.run.checks
    assert result.control.verdict == "violated", result.control.checks
    assert result.passes
    # the control measures what the claim measures, on something false
    assert [check.name for check in result.control.checks] == [check.name for check in result.run.checks]
    assert Result.from_json(result.to_json()).to_json() == result.to_json()


def test_there_are_claims() -> None:
    # an empty discovery would pass the test above without running anything
    assert ENTRIES
