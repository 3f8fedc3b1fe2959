"""What a claim returns: checks with margins, a verdict, the control's verdict, figure data. JSON in, JSON out.

A `Result` is all that the report reads. It holds only plain Python values, is frozen, and survives a round trip through
JSON (non-finite numbers are written as strings, so that the files are valid JSON everywhere).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, SupportsFloat, cast

from measureformer.atlas.kinds import Kind
from measureformer.atlas.trials import Trial
from measureformer.errors import ResultFormatError
from measureformer.figures.figure import Figure
from measureformer.storage.records import finite, read

SCHEMA = 4
"""Version of the JSON layout; a file with another one is refused and the claim is run again."""

Verdict = Literal["holds", "violated", "inconclusive"]


@dataclass(frozen=True, init=False)
class Check:
    """A measured number and the interval in which the claim says it lies.

    It holds if all of `value ± error` lies in the interval, is violated if all of it lies outside, and is inconclusive
    otherwise.

    Arguments:
        name: what was measured, in a few words.
        value: the measured number; NaN is inconclusive.
        low: lower end of the interval.
        high: upper end of the interval.
        error: uncertainty of the value, such as five standard errors or a rounding bound.
        rejected_by: names of the controls in which the check of the same name must be violated; without one, the claim
            does not pass.
        context: whether the number is only shown, and not counted.

    >>> Check("difference", 1e-15, high=1e-12).verdict
    'holds'
    >>> Check("slope", -0.52, low=-0.55, high=-0.45, error=0.1).verdict
    'inconclusive'
    """

    name: str
    value: float
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0
    rejected_by: tuple[str, ...] = ()
    context: bool = False

    def __init__(
        self,
        name: str,
        value: SupportsFloat,
        low: SupportsFloat = -math.inf,
        high: SupportsFloat = math.inf,
        error: SupportsFloat = 0.0,
        rejected_by: str | tuple[str, ...] = (),
        context: bool = False,
    ) -> None:
        # a result holds plain numbers only: arrays would be neither JSON nor comparable
        numbers = {"value": float(value), "low": float(low), "high": float(high), "error": float(error)}
        controls = (rejected_by,) if isinstance(rejected_by, str) else tuple(rejected_by)
        for field, entry in {"name": name, **numbers, "rejected_by": controls, "context": context}.items():
            object.__setattr__(self, field, entry)

    @property
    def verdict(self) -> Verdict:
        if math.isnan(self.value) or math.isnan(self.error):
            return "inconclusive"
        least, most = self.value - self.error, self.value + self.error
        if self.low <= least and most <= self.high:
            return "holds"
        return "violated" if most < self.low or least > self.high else "inconclusive"

    @property
    def margin(self) -> float:
        """Room left, as a share of the room there is: 1 far inside, 0 on the edge, negative outside."""
        if math.isnan(self.value) or math.isnan(self.error):
            return math.nan
        if self.low == self.high:
            return 1.0 if self.verdict == "holds" else -1.0
        two_sided = math.isfinite(self.low) and math.isfinite(self.high)
        room: list[float] = []
        for distance, end in ((self.value - self.low, self.low), (self.high - self.value, self.high)):
            if math.isfinite(end):
                unit = abs(self.high - self.low) / 2 if two_sided else (abs(end) or 1.0)
                room.append((distance - self.error) / unit)
        return min(1.0, *room) if room else 1.0


@dataclass(frozen=True)
class Outcome:
    """What was measured on one variant: the claim, or one of its controls.

    It is violated if one of its checks is, and holds if all of them do; checks that are context do not count.

    Arguments:
        checks: what was measured.
        figure: a picture of it, as data.

    >>> outcome = Outcome((Check("size", 3.0, low=0.0), Check("difference", 0.25, high=1.0)))
    >>> outcome.verdict, outcome.margin
    ('holds', 0.75)
    """

    checks: tuple[Check, ...]
    figure: Figure | None = None

    @property
    def evidence(self) -> tuple[Check, ...]:
        """The checks that count."""
        return tuple(check for check in self.checks if not check.context)

    @property
    def verdict(self) -> Verdict:
        verdicts = {check.verdict for check in self.evidence}
        if "violated" in verdicts:
            return "violated"
        return "inconclusive" if "inconclusive" in verdicts or not verdicts else "holds"

    @property
    def margin(self) -> float:
        """The smallest margin of the checks that count: how close the claim came to failing."""
        margins = [check.margin for check in self.evidence]
        return math.nan if not margins or any(map(math.isnan, margins)) else min(margins)

    def verdict_of(self, check: str) -> Verdict | None:
        """The verdict of the check of that name; None if it was not measured."""
        return next((one.verdict for one in self.checks if one.name == check), None)


@dataclass(frozen=True)
class Control:
    """A false variant of a claim, and what the checks of the claim measured on it."""

    name: str
    statement: str
    outcome: Outcome


@dataclass(frozen=True)
class Result:
    """A claim that was run together with its controls: the unit of the atlas.

    `mf.check` returns one.

    Arguments:
        claim: name of the claim.
        chapter: name of its chapter.
        chapter_title: title of its chapter.
        title: a few words.
        kind: "theorem", "construction" or "observation".
        statement: what is claimed.
        hypotheses: what the statement assumes.
        reference: key of the bibliography, and a place in it.
        citation: the formatted reference.
        run: what was measured on the claim.
        controls: what was measured on each control.
        seed: seed of all randomness.
        preset: "quick" or "full".
        config: sizes, repetitions and tolerances.
        versions: package ↦ version.
        seconds: duration of the run.
        fingerprint: hash of the sources and inputs; while it is unchanged, a new run would measure the same.
        command: what reproduces the result.
        trials: the claim and its controls on other seeds.

    >>> import measureformer as mf
    >>> result = mf.check(next(iter(mf.claims())))
    >>> Result.from_json(result.to_json()) == result
    True
    """

    claim: str
    chapter: str
    chapter_title: str
    title: str
    kind: Kind
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    citation: str
    run: Outcome
    controls: tuple[Control, ...]
    seed: int
    preset: str
    config: dict[str, int | float | str]
    versions: dict[str, str]
    seconds: float
    fingerprint: str
    command: str
    trials: tuple[Trial, ...] = ()

    @property
    def rate(self) -> tuple[float, float, float] | None:
        """The share of trials that pass, and Wilson's 95 % confidence interval of its expectation; None without any."""
        if not self.trials:
            return None
        # the command line starts without NumPy
        from measureformer.numerics.intervals import wilson

        share = sum(trial.passes for trial in self.trials) / len(self.trials)
        low, high = wilson(share, len(self.trials))
        return share, float(low), float(high)

    @property
    def verdict(self) -> Verdict:
        """The claim's own verdict; see `passes` for whether its controls were rejected as well."""
        return self.run.verdict

    @property
    def figure(self) -> Figure | None:
        """The picture of what was measured on the claim, as data; `mf.plot(result)` draws it."""
        return self.run.figure

    @property
    def passes(self) -> bool:
        """The claim holds, and every check that counts is violated in each control that it names, one at least."""
        return self.run.verdict == "holds" and not self.unrejected and not self.idle_controls

    @property
    def unrejected(self) -> tuple[tuple[str, str], ...]:
        """Pairs (check, control) that should be violated and are not; the control is "" where a check names none."""
        found: list[tuple[str, str]] = []
        outcomes = {control.name: control.outcome for control in self.controls}
        for check in self.run.evidence:
            if not check.rejected_by:
                found.append((check.name, ""))
            for control in check.rejected_by:
                if control not in outcomes or outcomes[control].verdict_of(check.name) != "violated":
                    found.append((check.name, control))
        return tuple(found)

    @property
    def idle_controls(self) -> tuple[str, ...]:
        """Controls that no check of the claim names: they show nothing."""
        named = {control for check in self.run.evidence for control in check.rejected_by}
        return tuple(control.name for control in self.controls if control.name not in named)

    def entries(self) -> dict[str, Any]:
        """The result as a JSON object, with the verdicts that follow from it."""
        rate = None if self.rate is None else list(self.rate)
        derived = {"verdict": self.verdict, "passes": self.passes, "rate": rate}
        return finite({"schema": SCHEMA, **derived, **asdict(self)})

    def to_json(self) -> str:
        return json.dumps(self.entries(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Result:
        """Read a result back; anything but a well-formed result of this schema is refused."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _refuse(f"text that is not JSON ({error})") from None
        return Result.from_entries(body)

    @staticmethod
    def from_entries(body: Any) -> Result:
        """The result that `entries` made this object of; anything else is refused."""
        if not isinstance(body, dict):
            raise _refuse(f"a JSON {type(body).__name__}")
        entries = cast(dict[str, Any], body)
        if entries.get("schema") != SCHEMA:
            raise _refuse(f"schema version {entries.get('schema')!r}")
        stored = {name: entries.get(name) for name in ("verdict", "passes", "rate")}
        rest = {name: value for name, value in entries.items() if name not in ("schema", *stored)}
        result = cast(Result, read(Result, rest, "result"))
        rate = None if result.rate is None else list(result.rate)
        if stored != {"verdict": result.verdict, "passes": result.passes, "rate": rate}:
            raise _refuse("a verdict that does not follow from the checks in the same file")
        return result


def _refuse(got: str) -> ResultFormatError:
    return ResultFormatError(
        got=got,
        need=f"a measureformer result of schema version {SCHEMA}",
        do="Delete the file, or run the claim again with --fresh.",
    )
