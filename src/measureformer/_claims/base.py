"""`Claim`: a statement of the theory made executable, with a control that the same checks must reject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from measureformer.result import Outcome

Preset = Literal["quick", "full"]


class Config(Protocol):
    """A frozen dataclass of plain numbers and strings: sizes, repetitions, tolerances."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Claim(Generic[C]):
    """A statement with its quantifiers and hypotheses, the experiment that tests it, and a false variant.

    `run(key, config)` and `control(key, config)` measure the same checks, once on the truth and once on a variant that
    is deliberately false: a dropped term, a transposed matrix, a violated hypothesis. A claim passes only if `run`
    holds and `control` is violated. The quick preset takes seconds and the test suite runs it; the atlas runs the full.

    >>> import measureformer as mf
    >>> claim = next(iter(mf.claims().values()))
    >>> isinstance(claim, mf.Claim) and isinstance(claim.statement, str)
    True
    """

    name: str
    title: str
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    """A key of `refs.bib`, with a place in it after a comma: "castin2025, Section 3"."""
    run: Callable[[Any, C], Outcome]
    control: Callable[[Any, C], Outcome]
    control_statement: str
    quick: C
    full: C
    needs: Callable[[], str] | None = None
    """What is not installed and how to install it, in a sentence; empty if the claim can be run. A claim without what
    it needs is reported as not run, and never as passed."""

    def config(self, preset: Preset) -> C:
        return self.quick if preset == "quick" else self.full

    def config_entries(self, preset: Preset) -> dict[str, int | float | str]:
        return asdict(self.config(preset))  # pyright: ignore[reportArgumentType] a Config is a dataclass
