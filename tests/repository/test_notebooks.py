"""Notebooks run from beginning to end, with their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_notebook_runs_and_shows_its_figure(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "--run", str(tmp_path / "made"), "measure"]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["measure.ipynb", "measure.svg"]
    book = nbformat.read(tmp_path / "made" / "measure.ipynb", as_version=4)
    shown = [output.data for cell in book.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("image/png" in data for data in shown)


def test_notebooks_in_the_repository_have_no_outputs() -> None:
    books = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert len(books) == 11
    for path in books:
        assert all(not cell.get("outputs") for cell in nbformat.read(path, as_version=4).cells)
