"""`Claim`: a statement of the theory made executable, with controls that its checks must reject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from measureformer.atlas.kinds import Kind
from measureformer.atlas.result import Outcome

if TYPE_CHECKING:  # claims are listed without JAX
    from measureformer.numerics.types import Key

Preset = Literal["quick", "full"]

CLAIM = "claim"
"""The variant that is the statement itself; every other variant is the name of a control."""


class Config(Protocol):
    """A frozen dataclass of plain numbers and strings: sizes, repetitions, tolerances."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Claim(Generic[C]):
    """A statement with its quantifiers and hypotheses, how it is measured, and its false variants.

    `measure(key, config, variant)` measures the checks of one variant: `"claim"` is the statement, any other value is
    the name of one of the `controls`, a false variant that is as near to the statement as possible (a dropped term, a
    transposed matrix, a violated hypothesis). Every variant gets the same key. A check names the controls that must
    reject it. The quick preset takes seconds and the test suite runs it; the atlas runs the full one.

    Arguments:
        name: `author-year-what` in lower case with dashes; the file has the same name with underscores.
        title: a few words, without a full stop.
        kind: "theorem", "construction" or "observation": the weakest among its checks.
        statement: what is claimed, with its quantifiers.
        hypotheses: what the statement assumes, one sentence each.
        reference: a key of `refs.bib`, with a place in it after a comma: "castin2025, Section 3".
        measure: the measurement.
        controls: name of each control -> what is false in it, in a sentence.
        quick: sizes that take seconds.
        full: the real sizes.
        needs: returns what has to be installed first, such as "make lens-data", or "" if the claim can be run.
            Otherwise the claim is reported as not run, never as passed.

    >>> Claim.__dataclass_fields__["controls"].name
    'controls'
    """

    name: str
    title: str
    kind: Kind
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    measure: Callable[[Key, C, str], Outcome]
    controls: Mapping[str, str]
    quick: C
    full: C
    needs: Callable[[], str] | None = None

    def config(self, preset: Preset) -> C:
        return self.quick if preset == "quick" else self.full

    def config_entries(self, preset: Preset) -> dict[str, int | float | str]:
        return asdict(self.config(preset))  # pyright: ignore[reportArgumentType] a Config is a dataclass
