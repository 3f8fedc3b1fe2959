"""What the pages show of a claim: its note, and its result or the reason why there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from measureformer.atlas.atlas import Absence, Atlas, Chapter, Note
from measureformer.atlas.result import Result
from measureformer.atlas.words import STATUSES, Status, status
from measureformer.pages.words import one_line

State = Status | Absence

STATES: tuple[State, ...] = (*STATUSES, "raised", "not finished", "not run")
SAID: dict[State, str] = {**{state: state for state in STATES}, "raised": "raised an error"}
NOT_ASKED = "not asked for, and without a stored result."


@dataclass(frozen=True)
class Shown:
    """A claim on a page: its state, the words for it, and `place`, the address of its card from any page."""

    note: Note
    result: Result | None
    state: State
    said: str
    why: str
    place: str

    @property
    def name(self) -> str:
        return self.note.claim

    @property
    def css(self) -> str:
        return self.state.replace(" ", "-")


@dataclass(frozen=True)
class Page:
    """A chapter with its claims, and the name of its file."""

    chapter: Chapter
    claims: tuple[Shown, ...]
    file: str

    def count(self, state: State) -> int:
        return sum(claim.state == state for claim in self.claims)


class View:
    """An atlas arranged for its pages."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        gaps = {gap.claim: gap for gap in atlas.missing}
        taken: set[str] = set()
        pages: list[Page] = []
        for chapter, notes in atlas.by_chapter():
            file = _file_name(chapter.name, taken)
            claims: list[Shown] = []
            for note in notes:
                result, gap = atlas.by_claim.get(note.claim), gaps.get(note.claim)
                state: State = status(result) if result else gap.kind if gap else "not run"
                why = "" if result else gap.why if gap else NOT_ASKED
                # what it needs is the verdict of a claim whose data are not installed
                said = one_line(gap.why) if gap and not result and state == "not run" else SAID[state]
                claims.append(Shown(note, result, state, said, why, f"{file}#{note.claim}"))
            pages.append(Page(chapter, tuple(claims), file))
        self.pages = tuple(pages)
        self.claims = {claim.name: claim for page in pages for claim in page.claims}

    @cached_property
    def used_by(self) -> dict[str, list[Shown]]:
        """Which claims build on a claim."""
        found: dict[str, list[Shown]] = {name: [] for name in self.claims}
        for claim in self.claims.values():
            for before in claim.note.builds_on:
                if before in found:
                    found[before].append(claim)
        return found

    def builds_on(self, claim: Shown) -> list[Shown]:
        return [self.claims[name] for name in claim.note.builds_on if name in self.claims]


def _file_name(chapter: str, taken: set[str]) -> str:
    """A name made of letters and digits, whatever the chapter is called."""
    stem = re.sub(r"[^a-z0-9]+", "-", chapter.lower()).strip("-")[:40] or "chapter"
    name, i = f"chapter-{stem}.html", 2
    while name in taken:
        name, i = f"chapter-{stem}-{i}.html", i + 1
    taken.add(name)
    return name
