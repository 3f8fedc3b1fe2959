"""Rule: the repository names no machine, and the glossary defines a word once.

No home folders, no URLs of local files, no package registries.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main

FORBIDDEN = {
    re.compile(r"(?<![\w.])/(?:home|Users)/\w|(?<![\w.])/(?:root)(?![\w-])"): ("a home folder", "use a relative path"),
    re.compile(r"\bfile:/{2,}"): ("the URL of a local file", "use a relative path"),
    re.compile(r"\b(?:pypi|pythonhosted|npmjs|anaconda)\.(?:org|com|io)\b"): (
        "the address of a package registry",
        "give name and version only",
    ),
}
MADE = re.compile(r"\.|(?:atlas|site|dist)$")


def rule(root: Path) -> Iterator[Violation]:
    yield from _defined_twice(root / "GLOSSARY.md")
    for path in _files(root):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(lines, start=1):
            for pattern, (what, do) in FORBIDDEN.items():
                if match := pattern.search(line):
                    yield Violation(path, number, f"{what}, {match[0]!r}", do)


def _defined_twice(glossary: Path) -> Iterator[Violation]:
    """Words in the first column of more than one row; each table has a head and a line below it."""
    seen: dict[str, int] = {"word": 0, "---": 0}
    for number, line in enumerate(glossary.read_text("utf-8").splitlines() if glossary.is_file() else (), start=1):
        word = line.strip("| ").split(" | ")[0].split("|")[0].strip() if line.startswith("|") else ""
        if seen.setdefault(word, number) not in (0, number) and word:
            what = f"{word!r} is defined in line {seen[word]} too"
            yield Violation(
                glossary, number, what, "one word for one concept: rename one of them, or define them together"
            )


def _files(root: Path) -> Iterator[Path]:
    """What git tracks or would track; outside a repository, everything that is not hidden or made by make."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        paths = [root / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for top in sorted(root.iterdir()) if not MADE.match(top.name) for path in (top, *top.rglob("*"))]
    # a tracked file may have been deleted
    yield from (path for path in paths if path.is_file())


if __name__ == "__main__":
    main(rule)
