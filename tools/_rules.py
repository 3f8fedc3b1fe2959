"""What the rule programs share: finding and parsing files, and reporting.

A rule is a function from the root of a repository to violations. `main` runs it on the folder named on the command
line (this repository by default), prints one line per violation and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Violation(NamedTuple):
    path: Path
    line: int
    what: str
    do: str


def main(rule: Callable[[Path], Iterable[Violation]]) -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = sorted(rule(root.resolve()))
    for violation in found:
        path = violation.path.relative_to(root.resolve()).as_posix()
        print(f"{path}:{violation.line}: {violation.what}; {violation.do}")
    sys.exit(1 if found else 0)


def python_files(root: Path, *folders: str) -> Iterator[Path]:
    """The Python files below the named folders of the root, in order; folders that do not exist are skipped."""
    for folder in folders:
        yield from sorted(path for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def homes(init: ast.Module) -> dict[str, tuple[str, int]]:
    """Public name -> (submodule, line), from the literal table `_HOMES` of the package's `__init__.py`."""
    for node in init.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "_HOMES" for t in node.targets):
            return dict(_entries(node.value))
    return {}


def _entries(table: ast.expr) -> Iterator[tuple[str, tuple[str, int]]]:
    if not isinstance(table, ast.Dict):
        return
    for home, names in zip(table.keys, table.values, strict=True):
        for name in getattr(names, "elts", []):
            if isinstance(home, ast.Constant) and isinstance(name, ast.Constant):
                yield str(name.value), (str(home.value), name.lineno)
