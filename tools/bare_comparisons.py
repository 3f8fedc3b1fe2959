"""Rule: a test that compares asserts. A line `np.allclose(a, b)` or `a == b` alone tests nothing.

Inside `with pytest.raises(...)` such a line is the test, and is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main, parse, python_files

COMPARING = {"allclose", "isclose", "array_equal", "array_equiv", "same_as", "all", "any"}


def rule(root: Path) -> Iterator[Violation]:
    for path in python_files(root, "tests", "benchmarks"):
        for node in _statements(parse(path)):
            if _compares(node.value):
                yield Violation(path, node.lineno, f"`{ast.unparse(node)[:60]}` asserts nothing", "write assert")


def _statements(node: ast.AST) -> Iterator[ast.Expr]:
    """The expression statements below a node, except those in a block that expects an error."""
    if isinstance(node, ast.With) and any(_expects_error(item.context_expr) for item in node.items):
        return
    if isinstance(node, ast.Expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _statements(child)


def _expects_error(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and ast.unparse(context.func).split(".")[-1] in ("raises", "warns")


def _compares(value: ast.expr) -> bool:
    if isinstance(value, ast.BoolOp):
        return any(map(_compares, value.values))
    if isinstance(value, ast.UnaryOp):
        return _compares(value.operand)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in COMPARING
    return isinstance(value, ast.Compare)


if __name__ == "__main__":
    main(rule)
