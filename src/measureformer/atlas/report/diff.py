"""What changed between two atlases: verdicts, margins, claims that came or went, versions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from measureformer.atlas.atlas import Atlas
from measureformer.atlas.report.view import Shown, State, View

MOVED = 0.05
"""A margin that changes by less is not reported: it is a share, 1 being as far inside as can be."""

Direction = Literal["worse", "better", "changed"]

# from good to bad; a claim that was not run or not finished says neither
_RANK: dict[State, int] = {"holds": 0, "inconclusive": 1, "control not rejected": 2, "violated": 3, "raised": 4}


@dataclass(frozen=True)
class Change:
    """A claim whose verdict, or whose margin, is not what it was; a margin without a result is not a number."""

    claim: str
    old: State
    new: State
    old_margin: float
    new_margin: float

    @property
    def direction(self) -> Direction:
        """Whether the verdict got worse or better, if both atlases have one and they differ."""
        if self.old == self.new or self.old not in _RANK or self.new not in _RANK:
            return "changed"
        return "worse" if _RANK[self.new] > _RANK[self.old] else "better"


@dataclass(frozen=True)
class Difference:
    """All that differs between two atlases."""

    verdicts: tuple[Change, ...]
    margins: tuple[Change, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[tuple[str, str, str], ...]
    """(what, old, new): versions, presets and seeds that are not the same."""

    @property
    def worse(self) -> bool:
        return any(change.direction == "worse" for change in self.verdicts)


def compare(old: Atlas, new: Atlas, *, moved: float = MOVED) -> Difference:
    """What changed from `old` to `new`; margins that moved by at least `moved`."""
    before, after = View(old).claims, View(new).claims
    both = [_change(before[name], after[name]) for name in after if name in before]
    return Difference(
        verdicts=tuple(change for change in both if change.old != change.new),
        margins=tuple(
            change
            for change in both
            # a margin that is not a number has not moved: the verdict says what happened
            if change.old == change.new and 0 < abs(change.new_margin - change.old_margin) >= moved
        ),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        settings=_settings(old, new),
    )


def _change(old: Shown, new: Shown) -> Change:
    margins = (claim.result.run.margin if claim.result else math.nan for claim in (old, new))
    return Change(old.name, old.state, new.state, *margins)


def _settings(old: Atlas, new: Atlas) -> tuple[tuple[str, str, str], ...]:
    before, after = _facts(old), _facts(new)
    names = dict.fromkeys([*before, *after])
    pairs = ((name, ", ".join(before.get(name, ["–"])), ", ".join(after.get(name, ["–"]))) for name in names)
    return tuple(row for row in pairs if row[1] != row[2])


def _facts(atlas: Atlas) -> dict[str, list[str]]:
    """Versions, presets and seeds of all results, without repetition."""
    found: dict[str, set[str]] = {}
    for result in atlas.results:
        for name, value in {**result.versions, "preset": result.preset, "seed": str(result.seed)}.items():
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in sorted(found.items())}
