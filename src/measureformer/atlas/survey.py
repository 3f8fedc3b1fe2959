"""The survey around the claims: order of teaching, introductions, what builds on what, what is open.

It lies in `survey.toml` of a package of claims, not in the modules of the claims: prose can be edited without running
anything again. Claims that the file does not know come last in their chapter, chapters that it does not know come last.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any, cast

from measureformer.atlas.atlas import Chapter, Note, Survey
from measureformer.atlas.errors import ClaimDefinitionError
from measureformer.atlas.index import Listed
from measureformer.atlas.references import cite

FILE = "survey.toml"
_CHAPTER = {"introduction": str, "claims": dict}
_CLAIM = {"builds_on": list, "open": str}


def survey(entries: Sequence[Listed]) -> Survey:
    """Chapters and notes of `entries`, from the surveys of their packages."""
    told: dict[str, dict[str, Any]] = {}
    for package in dict.fromkeys(listed.module.rsplit(".", 2)[0] for listed in entries):
        for chapter, table in _tables(_read(package)).items():
            known = told.setdefault(chapter, {})
            known |= {**table, "claims": {**known.get("claims", {}), **table.get("claims", {})}}
    return _arranged(entries, told)


def arrange(entries: Sequence[Listed], text: str) -> Survey:
    """The same from the text of one survey."""
    return _arranged(entries, _tables(text))


def _arranged(entries: Sequence[Listed], told: dict[str, dict[str, Any]]) -> Survey:
    titles = {entry.chapter: entry.chapter_title for entry in entries}
    known = {entry.name: entry for entry in entries}
    places = {name: i for i, name in enumerate([*told, *(name for name in titles if name not in told)])}
    claims = {name: table for chapter in told.values() for name, table in chapter.get("claims", {}).items()}
    ranks = {name: i for i, name in enumerate([*claims, *(name for name in known if name not in claims)])}
    for chapter, table in told.items():
        for name in table.get("claims", {}):
            if name not in known or known[name].chapter != chapter:
                raise _broken(f"{name} in the chapter {chapter}", "the name of a claim of that chapter")
    for name, table in claims.items():
        for before in table.get("builds_on", ()):
            if ranks.get(before, ranks[name]) >= ranks[name]:
                raise _broken(f"{name}, which builds on {before}", "a claim that comes before it")
    ordered = sorted(entries, key=lambda entry: (places[entry.chapter], ranks[entry.name]))
    return Survey(
        tuple(
            Chapter(name, titles[name], _paragraphs(told.get(name, {}).get("introduction", "")))
            for name in sorted(titles, key=lambda name: places[name])
        ),
        tuple(_note(entry, claims.get(entry.name, {})) for entry in ordered),
    )


def _read(package: str) -> str:
    file = resources.files(package).joinpath(FILE)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _tables(text: str) -> dict[str, dict[str, Any]]:
    """Chapter -> its table, with the types of all entries checked."""
    try:
        told = cast(dict[str, dict[str, Any]], tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _broken(str(error), "TOML") from None
    for chapter, table in told.items():
        _require(chapter, table, _CHAPTER)
        for name, entry in table.get("claims", {}).items():
            _require(name, entry, _CLAIM)
            if not all(isinstance(before, str) for before in entry.get("builds_on", ())):
                raise _broken(f"builds_on of {name}", "names of claims")
    return told


def _require(name: str, table: Any, kinds: dict[str, type]) -> None:
    if not isinstance(table, dict):
        raise _broken(f"{name} = {str(table)[:40]!r}", "a table")
    for key, value in cast(dict[str, Any], table).items():
        if key not in kinds or not isinstance(value, kinds[key]):
            raise _broken(f"{key} of {name}", f"only {', '.join(kinds)} there, each of its type")


def _note(listed: Listed, told: dict[str, Any]) -> Note:
    return Note(
        claim=listed.name,
        chapter=listed.chapter,
        title=listed.title,
        kind=listed.kind,
        statement=listed.statement,
        hypotheses=listed.hypotheses,
        reference=listed.reference,
        citation=cite(listed.reference),
        summary=listed.summary,
        builds_on=tuple(told.get("builds_on", ())),
        open=told.get("open", ""),
    )


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def _broken(got: str, need: str) -> ClaimDefinitionError:
    return ClaimDefinitionError(got=f"{got} in {FILE}", need=need, do="Correct the survey.")
