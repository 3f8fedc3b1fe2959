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


def homes(package: Path) -> dict[str, tuple[str, int]]:
    """Public name -> (submodule, line), from the stub `__init__.pyi` of the package; no stub, no names."""
    return {alias.name: (node.module, node.lineno) for node, alias in _stub(package) if node.module is not None}


def namespaces(package: Path) -> list[str]:
    """The folders of the package that are public under their own names, as in `mf.regularity`."""
    return [alias.name for node, alias in _stub(package) if node.module is None]


def _stub(package: Path) -> Iterator[tuple[ast.ImportFrom, ast.alias]]:
    stub = package / "__init__.pyi"
    body = parse(stub).body if stub.exists() else []
    yield from ((node, alias) for node in body if isinstance(node, ast.ImportFrom) for alias in node.names)
