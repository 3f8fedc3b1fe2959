"""`Atlas`: all results of a run, the claims that have none, and the survey around them. JSON in, JSON out.

It is what the report is written from and what two runs are compared by: everything is in it, and nothing is computed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, cast

from measureformer.atlas.kinds import Kind
from measureformer.atlas.names import claim_file
from measureformer.atlas.result import Result
from measureformer.errors import ResultFormatError
from measureformer.storage.files import require_file
from measureformer.storage.records import finite, read

FILE = "atlas.json"
SCHEMA = 2
"""Version of the layout of the file; one with another is refused."""
KIND = "measureformer atlas"

Absence = Literal["raised", "not finished", "not run"]


@dataclass(frozen=True)
class Missing:
    """A claim without a result, and why."""

    claim: str
    kind: Absence
    why: str


@dataclass(frozen=True)
class Chapter:
    """A chapter of the theory: the name of its folder, its title, and an introduction in paragraphs."""

    name: str
    title: str
    introduction: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """What is known of a claim before it is run: where it stands in the theory, and what it leaves open."""

    claim: str
    chapter: str
    title: str
    kind: Kind | None
    """None if nothing is known but the name."""
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    citation: str
    summary: str = ""
    builds_on: tuple[str, ...] = ()
    """Names of the claims that it takes further, specialises or uses."""
    open: str = ""
    """What neither the theory nor this measurement settles."""


@dataclass(frozen=True)
class Survey:
    """Chapters and claims in the order in which one would teach them."""

    chapters: tuple[Chapter, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Atlas:
    """Results, claims without one, and the survey that holds both.

    >>> Atlas.of([]).to_json()[:34]
    '{\\n "kind": "measureformer atlas",\\n'
    """

    survey: Survey
    results: tuple[Result, ...]
    missing: tuple[Missing, ...] = ()

    @staticmethod
    def of(results: Sequence[Result], missing: Sequence[Missing] = (), survey: Survey | None = None) -> Atlas:
        """An atlas in which every claim has a note; claims that the survey does not know come last, by name.

        Arguments:
            results: one for each claim that was measured.
            missing: claims without a result.
            survey: chapters and notes, in the order of teaching.
        """
        known = {note.claim: note for note in survey.notes} if survey else {}
        new = [_note_of(result) for result in results if result.claim not in known]
        new += [_bare_note(gap.claim) for gap in missing if gap.claim not in known]
        notes = [*known.values(), *sorted(new, key=lambda note: (note.chapter, note.claim))]
        titles = {result.chapter: result.chapter_title for result in sorted(results, key=lambda result: result.claim)}
        chapters = {chapter.name: chapter for chapter in survey.chapters} if survey else {}
        for note in notes:
            chapters.setdefault(note.chapter, Chapter(note.chapter, titles.get(note.chapter, note.chapter)))
        places = {name: i for i, name in enumerate(chapters)}
        ordered = sorted(notes, key=lambda note: places[note.chapter])
        rank = {note.claim: i for i, note in enumerate(ordered)}
        measured = sorted(results, key=lambda result: rank[result.claim])
        gaps = {gap.claim: gap for gap in missing}
        return _checked(Atlas(Survey(tuple(chapters.values()), tuple(ordered)), tuple(measured), tuple(gaps.values())))

    @cached_property
    def by_claim(self) -> dict[str, Result]:
        return {result.claim: result for result in self.results}

    def by_chapter(self) -> list[tuple[Chapter, list[Note]]]:
        """The chapters that have claims, each with its claims."""
        chapters = {chapter.name: chapter for chapter in self.survey.chapters}
        groups = groupby(self.survey.notes, key=lambda note: note.chapter)
        return [(chapters[name], list(notes)) for name, notes in groups]

    def to_json(self) -> str:
        body = {
            "kind": KIND,
            "schema": SCHEMA,
            "survey": asdict(self.survey),
            "missing": [asdict(gap) for gap in self.missing],
            "results": [result.entries() for result in self.results],
        }
        return json.dumps(finite(body), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str = "text") -> Atlas:
        """Read an atlas back; anything else is refused, and `where` says what it was."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            raise _refuse(f"{where}, which is not JSON") from None
        if not isinstance(body, dict) or cast(dict[str, Any], body).get("kind") != KIND:
            raise _refuse(f"{where}, which is JSON of another kind")
        entries = cast(dict[str, Any], body)
        if entries.get("schema") != SCHEMA:
            raise _refuse(f"{where}, an atlas of schema version {str(entries.get('schema'))[:20]!r}")
        try:
            atlas = Atlas(
                cast(Survey, read(Survey, entries.get("survey"), "survey")),
                tuple(Result.from_entries(entry) for entry in _list(entries, "results")),
                tuple(cast(Missing, read(Missing, entry, "missing")) for entry in _list(entries, "missing")),
            )
            return _checked(atlas)
        except (ResultFormatError, RecursionError) as error:
            raise _refuse(f"{where}, a damaged atlas ({getattr(error, 'got', 'nested too deeply')})") from None


def read_atlas(path: Path) -> Atlas:
    """Read an atlas that `measureformer atlas` wrote.

    Arguments:
        path: its folder, or the file `atlas.json` in it.
    """
    place = path / FILE if os.path.isdir(path) else path
    try:
        require_file(place)
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise _refuse(f"{place} ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise _refuse(f"{place}, which is not text") from None
    return Atlas.from_json(text, where=str(place))


def _note_of(result: Result) -> Note:
    names = ("claim", "chapter", "title", "kind", "statement", "hypotheses", "reference", "citation")
    return Note(**{name: getattr(result, name) for name in names})


def _bare_note(claim: str) -> Note:
    return Note(claim, "other", claim, None, "", (), "", "")


def _list(entries: dict[str, Any], name: str) -> list[Any]:
    value = entries.get(name)
    if not isinstance(value, list):
        raise _refuse(f"{name} that are no list")
    return cast(list[Any], value)


def _checked(atlas: Atlas) -> Atlas:
    """Refuse names that could leave a folder, names that occur twice, and results without a place in the survey."""
    names = [note.claim for note in atlas.survey.notes]
    for some in (names, [result.claim for result in atlas.results], [gap.claim for gap in atlas.missing]):
        for name in some:
            claim_file(Path(), name, "json")
        if twice := sorted({name for name in some if some.count(name) > 1}):
            raise ResultFormatError(
                got=f"two results of {twice[0][:60]!r}", need="one result for each claim", do="Remove one of the two."
            )
        if lost := sorted(set(some) - set(names)):
            raise _refuse(f"a result of {lost[0]}, which the survey does not know")
    chapters = [chapter.name for chapter in atlas.survey.chapters]
    used = [name for name, _ in groupby(atlas.survey.notes, key=lambda note: note.chapter)]
    if len(set(chapters)) < len(chapters) or len(set(used)) < len(used) or not set(used) <= set(chapters):
        raise _refuse("chapters that do not fit their claims")
    return atlas


def _refuse(got: str) -> ResultFormatError:
    return ResultFormatError(
        got=got,
        need=f"the file {FILE} of an atlas",
        do="`measureformer atlas` writes one into its folder.",
    )
