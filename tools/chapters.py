"""Rule: there is one partition into chapters, with the same words everywhere.

A chapter is a folder of the package, of the tests and of the claims, and a page of the documentation. Chapters and
their order are `CHAPTERS` in `import_direction.py`. What is no chapter is listed here as support. Within a folder of
the package either all modules are public or all are private.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main
from import_direction import CHAPTERS, PACKAGE

NAMES = tuple(chapter for line in CHAPTERS for chapter in line)
SOURCE = f"src/{PACKAGE}"
CLAIMS = f"{SOURCE}/atlas/claims"

SUPPORT = ("numerics", "training", "storage", "parallel", "figures", "pages", "atlas", "explore", "cli")
"""Folders of the package and of the tests that are no chapters."""
TESTS = ("benchmarks", "package", "repository", "tools")
"""Further folders of the tests."""
PAGES = (
    *(
        "index",
        "gallery",
        "cheat_sheet",
        "exercises",
        "coming_from",
        "reading_map",
        "corrections",
        "limits",
        "reliability",
        "mutants",
        "imports",
        "architecture",
    ),
    *("atlas", "parallel", "explore"),
)
"""Pages of the documentation that are no chapters."""


def rule(root: Path) -> Iterator[Violation]:
    for name in NAMES:
        for path in (root / SOURCE / name, root / "tests" / name, root / CLAIMS / name):
            if not any(path.glob("*.py")):
                yield Violation(path, 1, f"the chapter {name} is missing here", f"a chapter has a folder {path.name}")
        if not (page := root / "docs" / f"{name}.md").exists():
            yield Violation(page, 1, f"the chapter {name} has no page", "write it")
    yield from _strange(_folders(root / SOURCE), (*NAMES, *SUPPORT))
    yield from _strange(_folders(root / "tests"), (*NAMES, *SUPPORT, *TESTS))
    yield from _strange(_folders(root / CLAIMS), NAMES)
    yield from _strange((root / "docs").glob("*.md"), (*NAMES, *PAGES))
    for folder in sorted((root / SOURCE).rglob("*/")):
        modules = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
        private = [path for path in modules if path.name.startswith("_")]
        if private and len(private) < len(modules):
            what = f"{private[0].name} is private beside public modules"
            yield Violation(private[0], 1, what, "within a folder all modules are public or all are private")


def _folders(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("*/") if any(path.glob("*.py")))


def _strange(paths: Iterator[Path], known: tuple[str, ...]) -> Iterator[Violation]:
    for path in paths:
        if path.stem not in known:
            do = f"use the name of a chapter ({', '.join(NAMES)}), or list it as support in tools/chapters.py"
            yield Violation(path, 1, f"{path.stem} is no chapter", do)


if __name__ == "__main__":
    main(rule)
