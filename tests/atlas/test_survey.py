"""The survey: every claim has its place in it, and what does not fit is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from measureformer.atlas.atlas import Atlas
from measureformer.atlas.errors import ClaimDefinitionError
from measureformer.atlas.registry import select
from measureformer.atlas.report.pages import chapter_page, overview_page
from measureformer.atlas.report.view import View
from measureformer.atlas.survey import arrange, survey
from planting import claim_source, plant

TEXT = """
[second]
introduction = "One.\\n\\nTwo."
[second.claims]
"castin-2025-b" = { builds_on = [], open = "All." }
[first.claims]
"castin-2025-a" = { builds_on = ["castin-2025-b"] }
"""
PLACES = [("first", "a"), ("first", "c"), ("second", "b"), ("third", "d")]


def test_every_claim_has_its_place() -> None:
    # a claim that is added needs a line in survey.toml: what it builds on, and what it leaves open
    about = survey(select([]))
    assert [chapter.name for chapter in about.chapters if not chapter.introduction] == []
    assert [note.claim for note in about.notes if not note.open or not note.summary] == []


def test_every_claim_is_on_the_pages_and_on_the_maps() -> None:
    view = View(Atlas.of([], survey=survey(select([]))))
    names = sorted(entry.name for entry in select([]))
    chapters = "".join(chapter_page(view, i, {}) for i in range(len(view.pages)))
    assert sorted(re.findall('<article id="([^"]+)"', chapters)) == names
    marks = re.findall('<a href="[^"#]+#([^"]+)" class="mark ', overview_page(view))
    assert sorted(marks) == names


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    files = {f"{chapter}/{name}.py": claim_source(f"castin-2025-{name}") for chapter, name in PLACES}
    return plant(tmp_path, monkeypatch, files)


def test_order_is_that_of_the_file_and_what_it_does_not_know_comes_last(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "survey.toml").write_text(TEXT, encoding="utf-8")
    about = survey(select([]))
    assert [chapter.name for chapter in about.chapters] == ["second", "first", "third"]
    assert about.chapters[0].introduction == ("One.", "Two.")
    assert [note.claim[-1] for note in about.notes] == ["b", "a", "c", "d"]
    assert [note.builds_on for note in about.notes] == [(), ("castin-2025-b",), (), ()]
    assert about.notes[0].open == "All."


def test_package_without_a_survey_has_its_own_order(package: str) -> None:
    about = survey(select([]))
    assert [note.claim[-1] for note in about.notes] == ["a", "c", "b", "d"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("2025-b", "2025-x", 1), "castin-2025-x in the chapter second"),
        (TEXT.replace("[first.claims]", "[third.claims]"), "castin-2025-a in the chapter third"),
        (TEXT.replace("builds_on = []", 'builds_on = ["castin-2025-a"]'), "which builds on castin-2025-a"),
        (TEXT.replace("builds_on = []", 'builds_on = ["castin-2025-b"]'), "which builds on castin-2025-b"),
        (TEXT.replace("builds_on = []", 'builds_on = ["castin-2025-x"]'), "which builds on castin-2025-x"),
        (TEXT.replace("open", "opne"), "opne of castin-2025-b"),
        (TEXT.replace('"All."', "3"), "open of castin-2025-b"),
        ("first = 3", "first"),
        ("[first", "TOML"),
    ],
)
def test_surveys_that_do_not_fit_are_refused(package: str, text: str, words: str) -> None:
    # kills: cycles, and claims that were renamed and silently drop out of the map
    with pytest.raises(ClaimDefinitionError, match=re.escape(words)):
        arrange(select([]), text)


def test_observations_say_that_they_are_observed() -> None:
    # a statement with an interval that no proof gives must not read like a theorem
    listed = select([])
    assert {one.kind for one in listed} == {"theorem", "construction", "observation"}
    silent = [one.name for one in listed if one.kind == "observation" and "bserved" not in one.statement]
    assert silent == []
