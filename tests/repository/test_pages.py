"""Every Python example in the README and the documentation runs, page by page, in the order in which it is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import measureformer as mf

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SHOWN = re.compile(r"\]\((?:\.\./|docs/)?figures/([\w-]+\.svg)\)")
FIGURE_BYTES = 150_000
CLAIM = re.compile(r"`([a-z]+-[0-9]{4}[a-z]?-[a-z0-9-]+)`")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def looks(svg: str) -> tuple[set[str], list[str]]:
    """Colours and words of a figure, without numbers."""
    words = re.findall("<!-- (.*?) -->", svg)
    return set(re.findall("#[0-9a-f]{6}", svg)), [text for text in words if not re.search(r"[$\d]", text)]


def test_pages_are_found() -> None:
    assert {"README.md", "docs/index.md", "docs/tutorials/measure.md"} <= {name(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # an example may write a file
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, f"example in {page.name}", "exec"), scope)
    # a figure is drawn by the page that shows it; `make figures` keeps what is drawn
    for figure in (figure for figure in SHOWN.findall(text) if f'"{figure}"' in text):
        # kills: figures that were drawn before colours or labels changed; numbers differ with the machine
        now, kept = ((folder / figure).read_text("utf-8") for folder in (tmp_path, ROOT / "docs" / "figures"))
        assert looks(now) == looks(kept), f"{figure} is old: make figures"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_figures_are_small_and_claims_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for figure in SHOWN.findall(text):
        assert 0 < (ROOT / "docs" / "figures" / figure).stat().st_size <= FIGURE_BYTES, figure
    assert set(CLAIM.findall(text)) <= set(mf.claims())


def test_no_figure_is_left_over() -> None:
    shown = {figure for page in PAGES for figure in SHOWN.findall(page.read_text(encoding="utf-8"))}
    assert {path.name for path in (ROOT / "docs" / "figures").iterdir()} == shown


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_begins_with_a_question_and_ends_with_a_figure(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n\*.+\?\*\n", text)
    *_, last = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert f', "{page.stem}.svg")' in last
    assert SHOWN.findall(text) == [f"{page.stem}.svg"]
    assert 4 <= text.count("\n```python\n") <= 8
