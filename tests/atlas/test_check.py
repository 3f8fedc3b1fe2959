"""Laws of verdicts and margins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from measureformer.atlas.result import Check, Outcome
from planting import a_control, a_result

# sixteenths: sums and differences are exact, so that laws hold on the edges too
numbers = st.integers(-64, 64).map(lambda k: k / 16)
errors = st.integers(0, 32).map(lambda k: k / 16)
ends = st.one_of(numbers, st.just(math.inf))


@st.composite
def checks(draw: st.DrawFn) -> Check:
    low, high = -draw(ends), draw(ends)
    assume(low <= high)
    return Check("number", draw(numbers), low, high, draw(errors))


@given(checks())
def test_verdict_is_that_of_the_whole_interval(check: Check) -> None:
    # kills: the error ignored, or counted on one side only
    steps = [check.value + check.error * k / 4 for k in range(-4, 5)]
    inside = [check.low <= step <= check.high for step in steps]
    if check.verdict == "holds":
        assert all(inside)
    elif check.verdict == "violated":
        assert not any(inside)
    else:
        assert not (inside[0] and inside[-1])


@given(checks())
def test_margin_has_the_sign_of_the_verdict(check: Check) -> None:
    # kills: a margin measured from one end, or without the error
    assert (check.margin >= 0) == (check.verdict == "holds")
    assert check.margin <= 1


@given(checks(), st.integers(1, 32).map(lambda k: k / 16))
def test_more_error_never_helps(check: Check, more: float) -> None:
    worse = Check(check.name, check.value, check.low, check.high, check.error + more)
    assert worse.margin <= check.margin
    assert not (worse.verdict == "holds" and check.verdict != "holds")


@given(checks())
def test_reflection_changes_nothing(check: Check) -> None:
    # kills: strictness or the error treated differently at the two ends
    mirrored = Check(check.name, -check.value, -check.high, -check.low, check.error)
    assert mirrored.verdict == check.verdict
    assert mirrored.margin == check.margin


@pytest.mark.parametrize(
    ("check", "verdict", "margin"),
    [
        (Check("centre", 0.5, low=0.0, high=1.0), "holds", 1.0),
        (Check("edge", 1.0, low=0.0, high=1.0), "holds", 0.0),
        (Check("half-way", 0.5, high=1.0), "holds", 0.5),
        (Check("straddling", 1.0, high=1.0, error=0.5), "inconclusive", -0.5),
        (Check("outside", 3.0, high=1.0), "violated", -2.0),
        (Check("below", 0.5, low=1.0), "violated", -0.5),
        (Check("equal", 0.0, low=0.0, high=0.0), "holds", 1.0),
        (Check("not equal", 1e-300, low=0.0, high=0.0), "violated", -1.0),
        (Check("free", 7.0), "holds", 1.0),
        (Check("empty interval", 0.5, low=1.0, high=0.0), "violated", -1.0),
    ],
    ids=lambda value: value.name if isinstance(value, Check) else "",
)
def test_known_verdicts_and_margins(check: Check, verdict: str, margin: float) -> None:
    assert check.verdict == verdict
    assert check.margin == pytest.approx(margin, abs=1e-15)


@pytest.mark.parametrize("check", [Check("value", math.nan, high=1.0), Check("error", 0.0, high=1.0, error=math.nan)])
def test_not_a_number_is_inconclusive(check: Check) -> None:
    assert check.verdict == "inconclusive"
    assert math.isnan(check.margin)


@given(st.lists(checks(), max_size=4))
def test_outcome_is_as_good_as_its_worst_check(found: list[Check]) -> None:
    verdicts = [check.verdict for check in found]
    outcome = Outcome(tuple(found))
    if "violated" in verdicts:
        assert outcome.verdict == "violated"
    elif "inconclusive" in verdicts or not found:
        assert outcome.verdict == "inconclusive"
    else:
        assert outcome.verdict == "holds"
        assert outcome.margin == min(check.margin for check in found)


def test_outcome_without_checks_is_no_proof() -> None:
    assert Outcome(()).verdict == "inconclusive"
    assert math.isnan(Outcome(()).margin)


OUTCOMES = {
    "holds": Outcome((Check("x", 0.0, high=1.0, rejected_by="false"),)),
    "violated": Outcome((Check("x", 2.0, high=1.0, rejected_by="false"),)),
    "inconclusive": Outcome((Check("x", 1.0, high=1.0, error=0.5, rejected_by="false"),)),
}


@pytest.mark.parametrize("control", OUTCOMES)
@pytest.mark.parametrize("run", OUTCOMES)
def test_claim_passes_only_if_its_control_is_rejected(run: str, control: str) -> None:
    # kills: a control that merely fails to hold counted as rejected
    result = a_result(run=OUTCOMES[run], controls=a_control(OUTCOMES[control]))
    assert result.verdict == run
    assert result.passes == ((run, control) == ("holds", "violated"))


def test_every_check_must_be_rejected_by_the_controls_it_names() -> None:
    # kills: a control that rejects one check counted for all of them
    assert a_result().passes
    good = a_result().run.checks

    def passes(*checks: Check) -> bool:
        return a_result(run=Outcome(checks)).passes

    assert passes(*good)
    # rejected by one of the two that it names
    assert not passes(replace(good[0], rejected_by=("large", "steep")), good[1])
    assert not passes(replace(good[0], rejected_by=()), good[1])
    # no evidence, so nothing has to reject it
    assert passes(replace(good[0], rejected_by=(), context=True), good[1])
    # a name that no control measured
    assert not passes(good[0], good[1], Check("new", 0.0, high=1.0, rejected_by="large"))


def test_a_control_that_no_check_names_shows_nothing() -> None:
    result = a_result()
    only = replace(result.run, checks=tuple(replace(check, rejected_by="large") for check in result.run.checks))
    assert replace(result, run=only).idle_controls == ("steep",)
    assert not replace(result, run=only).passes


def test_context_is_neither_evidence_nor_trouble() -> None:
    outcome = Outcome((Check("x", 2.0, high=1.0, context=True), Check("y", 0.5, high=1.0)))
    assert (outcome.verdict, outcome.margin) == ("holds", 0.5)
    assert Outcome((Check("x", 0.0, high=1.0, context=True),)).verdict == "inconclusive"
