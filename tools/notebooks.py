"""Rule: the notebooks in docs/notebooks/ are the tutorials and the exercises, without outputs.

`python tools/notebooks.py --write` makes them from the Markdown pages, `--run [FOLDER]` runs copies of them into a
folder (by default `notebooks`), with their outputs. `make notebooks` does both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from _rules import Violation, main

ROOT = Path(__file__).parent.parent
KEPT = "docs/notebooks"
START = """To run this notebook, install measureformer and its figures: `pip install ".[atlas,lens]"` in the repository.
"""
# from docs/tutorials/ and docs/ to docs/notebooks/
SIBLING = re.compile(r"\]\((?=[\w-]+\.md)")
FIGURE = re.compile(r"^mf\.save_figure\((\w+), [^)]*\)$", re.MULTILINE)


def rule(root: Path) -> Iterator[Violation]:
    made = notebooks(root)
    for path in sorted({*made, *(root / KEPT).glob("*.ipynb")}):
        if path not in made:
            yield Violation(path, 1, "a notebook without a page", "remove it")
        elif not path.is_file() or path.read_text(encoding="utf-8") != made[path]:
            yield Violation(path, 1, "the notebook is not what its page says", "run make notebooks")


def notebooks(root: Path) -> dict[Path, str]:
    """What the notebooks are, by path."""
    pages = [*sorted((root / "docs" / "tutorials").glob("*.md")), *(root / "docs").glob("exercises.md")]
    return {root / KEPT / f"{page.stem}.ipynb": converted(page) for page in pages}


def converted(page: Path) -> str:
    """A page as a notebook: examples become cells, and the figure is shown as well as saved."""
    home = "tutorials/" if page.parent.name == "tutorials" else ""
    book: Any = jupytext.reads(page.read_text(encoding="utf-8"), fmt="md")
    for i, cell in enumerate(book.cells):
        # names of cells are drawn at random otherwise
        cell["id"] = f"{page.stem}-{i}"
        if cell.cell_type == "markdown":
            cell.source = SIBLING.sub(f"](../{home}", cell.source)
        else:
            cell.source = FIGURE.sub(r"\g<0>\nmf.plot(\1)", cell.source)
    book.cells.insert(1, nbformat.v4.new_markdown_cell(START.strip(), id=f"{page.stem}-start"))
    book.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    book.nbformat, book.nbformat_minor = 4, 5
    nbformat.validate(book)
    return nbformat.writes(book) + "\n"


def write(root: Path) -> None:
    (root / KEPT).mkdir(exist_ok=True)
    for path, text in notebooks(root).items():
        path.write_text(text, encoding="utf-8")


def run(root: Path, out: Path, names: list[str]) -> None:
    """Run notebooks, all if none is named; each works in a folder of its own, where its figures stay."""
    from nbclient import NotebookClient

    out.mkdir(parents=True, exist_ok=True)
    for path in sorted((root / KEPT).glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        book: Any = nbformat.read(path, as_version=4)
        NotebookClient(book, timeout=300, resources={"metadata": {"path": str(out)}}).execute()
        nbformat.write(book, out / path.name)
        print(out / path.name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(ROOT)
    elif sys.argv[1:2] == ["--run"]:
        run(ROOT, Path(sys.argv[2] if len(sys.argv) > 2 else "notebooks"), sys.argv[3:])
    else:
        main(rule)
