"""Rule: files and functions stay small enough to be read at one sitting. A function's docstring is not counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main, parse, python_files

# folder -> lines of a file; a table of test cases is long and still easy to read
FILE_LINES = {"src": 400, "tools": 400, "tests": 600, "benchmarks": 400}
FUNCTION_LINES = 60


def rule(root: Path) -> Iterator[Violation]:
    for folder, most in FILE_LINES.items():
        for path in python_files(root, folder):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > most:
                yield Violation(path, most + 1, f"{lines} lines, at most {most}", "split the file by concept")
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > FUNCTION_LINES:
                    what = f"{node.name} has {_lines(node)} lines, at most {FUNCTION_LINES}"
                    yield Violation(path, node.lineno, what, "name its parts")


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    last = node.end_lineno or node.lineno
    first = node.body[0]
    docstring = 0
    if ast.get_docstring(node, clean=False) is not None:
        docstring = (first.end_lineno or first.lineno) - first.lineno + 1
    return last - node.lineno + 1 - docstring


if __name__ == "__main__":
    main(rule)
