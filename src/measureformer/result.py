"""What a claim returns: checks with margins, a verdict, the control's verdict, figure data. JSON in, JSON out.

A `Result` is all that the report reads. It holds only plain Python values, is frozen, and survives a round trip through
JSON (non-finite numbers are written as strings, so that the files are valid JSON everywhere).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from measureformer.errors import ResultFormatError

SCHEMA = 1
"""Version of the JSON layout; a file with another one is refused and the claim is run again."""

Verdict = Literal["holds", "violated", "inconclusive"]
Scale = Literal["linear", "log"]
Style = Literal["line", "dashed", "points", "bars", "band"]
Role = Literal["measured", "theory", "control", "measure"]

_LATER = {"later": True}
"""Marks fields that older files of this schema lack; they are read with the default."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON can spell them as escapes, but no file can hold them."""


@dataclass(frozen=True)
class Check:
    """A measured number and the interval in which the claim says it lies.

    `error` is the uncertainty of the value (five standard errors, a rounding bound): the check holds if the whole
    interval `value ± error` lies inside, is violated if it lies outside, and is inconclusive if it straddles an end.

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
class Series:
    """One curve, cloud, set of bars or band of a figure; `y2` is the other edge of a band.

    `role` says what it stands for, and how it is drawn, the same in all figures: what was "measured" in colours, what
    "theory" says black and dashed, a "control" vermilion with crosses, a "measure" itself green. Without it the label
    decides: "control …", "tokens", "density", "particles", "law" and "start" are what they say, and theory is every
    dashed line and a line that is called a bound, a limit or certified; the rest was measured. A band without a role
    takes the colour of the series before it.
    Numbers may come as any sequence, NumPy and JAX arrays included; not-a-number interrupts a curve.

    >>> Series("measured", x=(10.0, 100.0), y=(0.3, 0.1), style="points").y
    (0.3, 0.1)
    >>> Series("what Theorem 2 promises", x=(10.0, 100.0), y=(0.4, 0.2), role="theory").role
    'theory'
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Style = "line"
    y2: tuple[float, ...] = ()
    role: Role | None = field(default=None, metadata=_LATER)

    def __post_init__(self) -> None:
        for name in ("x", "y", "y2"):
            # a result holds plain numbers only: arrays would be neither JSON nor comparable
            object.__setattr__(self, name, _numbers(getattr(self, name), self.label))
        _require_one_of(self.style, Style, f"style of the series {self.label[:60]!r}")
        if self.role is not None:
            _require_one_of(self.role, Role, f"role of the series {self.label[:60]!r}", "Leave it out for the label's.")
        if len(self.x) != len(self.y) or len(self.y2) != (len(self.y) if self.style == "band" else 0):
            raise ResultFormatError(
                got=f"{len(self.x)} x, {len(self.y)} y and {len(self.y2)} y2 in the series {self.label[:60]!r}",
                need="as many x as y, and as many y2 for a band but none otherwise",
                do="Give arrays of the same length.",
            )


def _numbers(values: Any, label: str) -> tuple[float, ...]:
    try:
        # entry by entry, an array of JAX is slow to read
        return tuple(map(float, values.tolist() if hasattr(values, "tolist") else values))
    except (TypeError, ValueError):
        raise ResultFormatError(
            got=f"entries that are no numbers in the series {label[:60]!r}",
            need="one number for each point",
            do="Give arrays with one axis.",
        ) from None


@dataclass(frozen=True)
class Figure:
    """Everything needed to draw a figure, and nothing of how it is drawn.

    With `equal`, for points of the plane, a unit is as long on both axes, so that a circle is round.

    >>> figure = Figure("Error", "n", "error", (Series("measured", (10.0, 100.0), (0.3, 0.1)),), xscale="log")
    >>> figure.xscale, figure.yscale
    ('log', 'linear')
    """

    title: str
    xlabel: str
    ylabel: str
    series: tuple[Series, ...]
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    xticks: tuple[str, ...] = ()
    """Names of the positions 0, 1, 2, … on the x axis, for bars; empty for a numerical axis."""
    caption: str = ""
    equal: bool = field(default=False, metadata=_LATER)

    def __post_init__(self) -> None:
        # one series, or a list of them, is what people write who make their first figure
        given: Any = self.series
        object.__setattr__(self, "series", tuple(given) if hasattr(given, "__iter__") else (given,))
        if strange := [entry for entry in cast(tuple[Any, ...], self.series) if not isinstance(entry, Series)]:
            raise ResultFormatError(
                got=f"a {type(strange[0]).__name__} among the series of the figure {self.title[:60]!r}",
                need="curves and clouds with a label",
                do='Make them with mf.Series("label", x, y).',
            )
        _require_one_of(self.xscale, Scale, "xscale")
        _require_one_of(self.yscale, Scale, "yscale")
        if self.equal and (self.xticks or "log" in (self.xscale, self.yscale)):
            raise ResultFormatError(
                got=f"equal axes, one of them logarithmic or of names, in the figure {self.title[:60]!r}",
                need="two linear axes of numbers",
                do="Leave out equal, or the scales and names.",
            )


def _require_one_of(value: Any, choices: Any, what: str, do: str = "Leave it out for the first.") -> None:
    if value not in get_args(choices):
        need = ", ".join(f'"{choice}"' for choice in get_args(choices))
        raise ResultFormatError(got=f"{value!r} as the {what}", need=f"one of {need}", do=do)


@dataclass(frozen=True)
class Outcome:
    """What one experiment measured: the claim's, or its control's.

    It holds if all of its checks do, and is violated if one is.

    >>> outcome = Outcome((Check("size", 3.0, low=0.0), Check("difference", 0.25, high=1.0)))
    >>> outcome.verdict, outcome.margin
    ('holds', 0.75)
    """

    checks: tuple[Check, ...]
    figure: Figure | None = None

    @property
    def verdict(self) -> Verdict:
        verdicts = {check.verdict for check in self.checks}
        if "violated" in verdicts:
            return "violated"
        return "inconclusive" if "inconclusive" in verdicts or not verdicts else "holds"

    @property
    def margin(self) -> float:
        """The smallest margin of the checks: how close the claim came to failing."""
        margins = [check.margin for check in self.checks]
        return math.nan if not margins or any(map(math.isnan, margins)) else min(margins)


@dataclass(frozen=True)
class Result:
    """A claim that was run together with its control: the unit of the atlas.

    >>> import measureformer as mf
    >>> result = mf.check(next(iter(mf.claims())))
    >>> mf.Result.from_json(result.to_json()) == result
    True
    """

    claim: str
    chapter: str
    chapter_title: str
    title: str
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    citation: str
    control_statement: str
    run: Outcome
    control: Outcome
    seed: int
    preset: str
    config: dict[str, int | float | str]
    versions: dict[str, str]
    seconds: float
    fingerprint: str
    command: str

    @property
    def verdict(self) -> Verdict:
        """The claim's own verdict; see `passes` for whether the control was rejected as well."""
        return self.run.verdict

    @property
    def passes(self) -> bool:
        """The claim holds and its control is rejected by the same checks."""
        return self.run.verdict == "holds" and self.control.verdict == "violated"

    def entries(self) -> dict[str, Any]:
        """The result as a JSON object, with the verdicts that follow from it."""
        return finite({"schema": SCHEMA, "verdict": self.verdict, "passes": self.passes, **asdict(self)})

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
        stored = {name: entries.get(name) for name in ("verdict", "passes")}
        rest = {name: value for name, value in entries.items() if name not in ("schema", *stored)}
        result = cast(Result, read(Result, rest, "result"))
        if stored != {"verdict": result.verdict, "passes": result.passes}:
            raise _refuse("a verdict that does not follow from the checks in the same file")
        return result


def _refuse(got: str) -> ResultFormatError:
    return ResultFormatError(
        got=got,
        need=f"a measureformer result of schema version {SCHEMA}",
        do="Delete the file, or run the claim again with --fresh.",
    )


def finite(value: Any) -> Any:
    """The same tree with non-finite numbers as strings: 'nan', 'inf', '-inf'."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in cast(list[Any], value)]
    return value


def read(kind: Any, value: Any, path: str) -> Any:
    """`value`, as parsed from JSON, turned into an instance of the type `kind`, or refused with its path."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, value, path)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, path)
    if origin is tuple and isinstance(value, list):
        entries = cast(list[Any], value)
        return tuple(read(arguments[0], entry, f"{path}[{i}]") for i, entry in enumerate(entries))
    if origin is dict and isinstance(value, dict):
        items = cast(dict[str, Any], value)
        return {read(str, k, f"a key of {path}"): read(arguments[1], v, f"{path}.{k}") for k, v in items.items()}
    if origin is Literal and value in arguments:
        return value
    if kind is NoneType and value is None:
        return None
    if kind is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind in (int, bool) and type(value) is kind:
        return value
    if kind is str and isinstance(value, str) and not _LONE_SURROGATE.search(value):
        return value
    # the text of a container is not shown: it may be long, or nested too deeply to be written
    shown = repr(value)[:60] if isinstance(value, (str, int, float, NoneType)) else type(value).__name__
    raise _refuse(f"{path} = {shown}")


def _read_record(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _refuse(f"{path} of type {type(value).__name__}")
    entries = cast(dict[str, Any], value)
    hints = get_type_hints(kind)
    wanted = [one.name for one in fields(kind)]
    required = {one.name for one in fields(kind) if not one.metadata.get("later")}
    if missing := sorted(required - set(entries)):
        raise _refuse(f"{path} without {', '.join(missing)}")
    if extra := sorted(set(entries) - set(wanted)):
        raise _refuse(f"{path} with unknown {', '.join(extra)[:60]}")
    return kind(**{name: read(hints[name], entry, f"{path}.{name}") for name, entry in entries.items()})


def _read_union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    # int before float before str: 1 stays an integer, "nan" in a union with str stays a string
    refusals: list[ResultFormatError] = []
    for kind in kinds:
        if kind is float and isinstance(value, str):
            continue
        try:
            return read(kind, value, path)
        except ResultFormatError as error:
            refusals.append(error)
    raise refusals[0]
