"""Every claim passes in its quick preset: it holds, and each check is rejected by the controls it names."""

from __future__ import annotations

import pytest

from measureformer.atlas.index import Listed
from measureformer.atlas.registry import load, run, select
from measureformer.atlas.result import Result

LISTED = select([])


@pytest.mark.parametrize("listed", LISTED, ids=[listed.name for listed in LISTED])
def test_claim_passes(listed: Listed) -> None:
    entry = load(listed)
    if entry.claim.needs is not None and (why := entry.claim.needs()):
        pytest.skip(f"not run: {why}")
    result = run(entry, seed=0, preset="quick")
    assert result.run.verdict == "holds", result.run.checks
    assert result.unrejected == ()
    assert result.idle_controls == ()
    assert result.passes
    # every control measures what the claim measures, on something false
    for control in result.controls:
        assert [check.name for check in control.outcome.checks] == [check.name for check in result.run.checks]
    assert Result.from_json(result.to_json()).to_json() == result.to_json()


def test_there_are_claims() -> None:
    # an empty index would pass the test above without running anything
    assert LISTED
