"""Pin every package that an installation brings, in `constraints.txt`, by name and version only.

`python tools/pin.py --write` asks pip to resolve the dependencies and all extras of `pyproject.toml` from scratch,
and writes what it chose. `python tools/pin.py [root]` checks, offline, that every declared dependency is pinned.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

from _rules import Violation, main

HEADER = """\
# Versions that are known to work together: the dependencies of measureformer and of all its extras.
# Resolved on Linux with Python {python}. Made by `make pin`; do not edit.
"""
LINE = re.compile(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)")


def rule(root: Path) -> Iterator[Violation]:
    path = root / "constraints.txt"
    pins: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("#"):
            continue
        if match := LINE.fullmatch(line):
            pins[match[1]] = match[2]
        else:
            yield Violation(path, number, f"{line!r} is not name==version", "run make pin")
    for requirement in requirements(root):
        name = normal(re.split(r"[\s\[<>=!~;]", requirement)[0])
        exact = requirement.partition("==")[2]
        if name not in pins:
            yield Violation(path, 1, f"{name} is not pinned", "run make pin")
        elif exact and pins[name] != exact:
            yield Violation(path, 1, f"{name} is pinned at {pins[name]}, declared {exact}", "run make pin")


def write(root: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", *requirements(root)]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    metadata = (package["metadata"] for package in report["install"])
    # a local build (1.0+cpu) is not to be had elsewhere under that name
    pins = sorted((normal(entry["name"]), entry["version"].split("+")[0]) for entry in metadata)
    header = HEADER.format(python=".".join(map(str, sys.version_info[:2])))
    (root / "constraints.txt").write_text(
        header + "".join(f"{name}=={version}\n" for name, version in pins), encoding="utf-8"
    )


def requirements(root: Path, without: Collection[str] = ()) -> list[str]:
    """The declared requirements, those of extras included but for the extras named in `without`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [lines for name, lines in project.get("optional-dependencies", {}).items() if name not in without]
    found = {*project["dependencies"], *(requirement for extra in extras for requirement in extra)}
    # extras that name other extras of this package bring nothing that those do not declare
    return sorted(requirement for requirement in found if not requirement.startswith("measureformer["))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(Path(__file__).parent.parent)
    else:
        main(rule)
