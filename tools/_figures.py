"""Make the figures of the documentation again: `make figures`, or `python tools/_figures.py NAME.svg …` for some.

A figure is drawn by the examples of the page that shows it, and by nothing else. This program runs such a page in an
empty folder and keeps what it shows; the tests run the same examples.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS, FIGURES = ROOT / "docs", ROOT / "docs" / "figures"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\]\((?:\.\./|docs/)?figures/([\w-]+\.svg)\)")
LARGEST = 150_000
"""Bytes of a figure: a page has to open at once."""


def drawn(page: Path) -> list[str]:
    """The figures that a page shows and draws; the map of imports is made by a program of its own."""
    text = page.read_text(encoding="utf-8")
    return [name for name in SHOWN.findall(text) if f'"{name}"' in text]


def run(page: Path) -> None:
    """Run the examples of a page, in the order in which they are read, in the current folder."""
    scope: dict[str, Any] = {"__name__": "page"}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, f"example in {page.name}", "exec"), scope)


def main(wanted: list[str]) -> None:
    FIGURES.mkdir(exist_ok=True)
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        names = [name for name in drawn(page) if not wanted or name in wanted]
        if not names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            run(page)
            for name in names:
                data = Path(name).read_bytes()
                if len(data) > LARGEST:
                    sys.exit(f"{page.name}: {name} has {len(data)} bytes, at most {LARGEST}; draw fewer points")
                (FIGURES / name).write_bytes(data)
                print(f"{name}  {len(data) // 1000} kB  {page.relative_to(ROOT)}")
            os.chdir(ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
