"""The documentation builds without a warning, fetches nothing, and shows examples and theorems as they are meant."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from measureformer.atlas.index import index

ROOT = Path(__file__).parents[2]
# what a browser would fetch by itself; a link that is merely there to be followed is allowed
FETCHED = re.compile(r"""<(?:script|img|link|iframe|source)[^>]*(?:src|href)=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_pages_fetch_nothing(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    assert [page.name for page in pages if FETCHED.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_generated_pages_hold_their_sources(site: Path) -> None:
    assert "push-forward" in (site / "glossary.html").read_text(encoding="utf-8")
    assert 'id="castin2024"' in (site / "references.html").read_text(encoding="utf-8")
    measures = (site / "api" / "measures.html").read_text(encoding="utf-8")
    assert 'id="measureformer.measures.discrete.Discrete.mean"' in measures
    assert "&gt;&gt;&gt;" in measures
    assert "ShapeError" in (site / "api" / "errors.html").read_text(encoding="utf-8")
    gallery = (site / "gallery.html").read_text(encoding="utf-8")
    assert all(f"figures/{page.stem}.svg" in gallery for page in (ROOT / "docs" / "tutorials").glob("*.md"))


DOCSTRINGS = {
    "a theorem": (
        "Statement  for all mu:\n           it holds.\nRef        kim2021.",
        "- **Statement** for all mu:\n  it holds.\n- **Ref** kim2021.",
    ),
    "arguments": (
        "Arguments:\n    mu: the context.\n    x: queries,\n        (m, d).",
        "**Arguments**\n\n- `mu`: the context.\n- `x`: queries,\n  (m, d).\n\n<!-- -->",
    ),
    "an example": ("Two.\n\n>>> 1 + 1\n2\n\nEnd.", "Two.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd."),
    "a formula": ("Γ[mu](x) is `a[0](x)`", "Γ[mu]\\(x) is `a[0](x)`"),
}


@pytest.mark.parametrize("case", DOCSTRINGS)
def test_docstrings_become_markdown(case: str) -> None:
    spec = importlib.util.spec_from_file_location("_docstrings", ROOT / "tools" / "_docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plain, expected = DOCSTRINGS[case]
    assert module.markdown(plain) == expected


def test_every_correction_names_source_formulas_and_a_claim() -> None:
    # kills: an entry without its row, and a claim that was renamed
    text = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\*\*(.+?)\*\*", text.partition("## Sources")[0], re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == entries
    assert [row for row in rows if len(row) != 5 or not all(row)] == []
    known = set(index())
    shown = [re.findall(r"`([^`]+)`", row[4]) for row in rows[2:]]
    assert all(names and set(names) <= known for names in shown)
    # every claim that an entry names in the text exists, too
    said = re.findall(r"`([a-z]+-[0-9]{4}[a-z]?-[a-z0-9-]+)`", text)
    assert set(said) <= known
