"""Rule: every public name resolves, is documented, shows an example that runs, and is known to editors.

Public names are those of the lazy table `_HOMES` in the package's `__init__.py`; editors read the `TYPE_CHECKING` block
beside it, so the two must agree. Exceptions need a docstring but no example. The functions of a folder in `_NAMESPACES`
are public under its name, as in `mf.regularity.ball`, and so are those of modules that its `__init__.py` imports by
name, as in `mf.incontext.tasks.linear`.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from _rules import Violation, homes, main, parse

PACKAGE = "measureformer"


def rule(root: Path) -> Iterator[Violation]:
    init = root / "src" / PACKAGE / "__init__.py"
    tree = parse(init)
    table = homes(tree)
    yield from _disagreements(init, table, _seen_by_editors(tree))
    # the tree that is checked, which need not be the installed one
    sys.path.insert(0, str(root / "src"))
    package = importlib.import_module(PACKAGE)
    for name, (_, line) in table.items():
        try:
            value = getattr(package, name)
        except Exception as error:  # whatever the home raises while it loads is the finding
            what = f"{name} does not resolve ({type(error).__name__}: {error})"
            yield Violation(init, line, what, "define it, or take it out of _HOMES")
            continue
        yield from (Violation(init, line, f"{name} {what}", do) for what, do in _document_faults(name, value))
    for folder in getattr(package, "_NAMESPACES", ()):
        source = root / "src" / PACKAGE / folder / "__init__.py"
        for name, value in _functions(f"{PACKAGE}.{folder}"):
            yield from (Violation(source, 1, f"{name} {what}", do) for what, do in _document_faults(name, value))


def _functions(home: str) -> Iterator[tuple[str, Any]]:
    """The functions of a public folder, and the public ones of the modules that it shows as a whole."""
    module = importlib.import_module(home)
    yield from ((name, value) for name, value in vars(module).items() if inspect.isfunction(value))
    imports = (node for node in parse(Path(inspect.getfile(module))).body if _imports(node, home))
    for alias in (alias for node in imports for alias in node.names):
        inner = importlib.import_module(f"{home}.{alias.name}")
        for name, value in vars(inner).items():
            if inspect.isfunction(value) and value.__module__ == inner.__name__ and not name.startswith("_"):
                yield f"{alias.name}.{name}", value


def _imports(node: ast.stmt, home: str) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and node.module == home


def _seen_by_editors(tree: ast.Module) -> dict[str, tuple[str, int]]:
    """Name -> (submodule, line) from the imports under `if TYPE_CHECKING`."""
    blocks = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING"))
    imports = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))
    return {
        alias.asname or alias.name: ((node.module or "").removeprefix(f"{PACKAGE}."), node.lineno)
        for node in imports
        for alias in node.names
    }


def _disagreements(
    init: Path, table: dict[str, tuple[str, int]], editors: dict[str, tuple[str, int]]
) -> Iterator[Violation]:
    for name in sorted(table.keys() | editors.keys()):
        if name not in editors:
            yield Violation(init, table[name][1], f"{name} is not under TYPE_CHECKING", "import it there")
        elif name not in table:
            yield Violation(init, editors[name][1], f"{name} is not in _HOMES", "add it, or take the import out")
        elif table[name][0] != editors[name][0]:
            what = f"{name} comes from {table[name][0]} in _HOMES and from {editors[name][0]} under TYPE_CHECKING"
            yield Violation(init, editors[name][1], what, "name one place")


def _document_faults(name: str, value: Any) -> Iterator[tuple[str, str]]:
    text = value.__doc__ if isinstance(value, type) or callable(value) else None
    # a dataclass without a docstring gets its signature as one
    if not text or text.startswith(f"{name}("):
        yield "has no docstring", "say in one sentence what it is"
    elif isinstance(value, type) and issubclass(value, BaseException):
        return
    elif ">>>" not in text:
        yield "has no example", "add a `>>>` example to its docstring"
    else:
        yield from _failures(name, value, text)


def _failures(name: str, value: Any, text: str) -> Iterator[tuple[str, str]]:
    scope = dict(vars(sys.modules[value.__module__]))
    if isinstance(value, type):
        examples = doctest.DocTestFinder().find(value, name, globs=scope)
    else:
        # jit-compiled functions are callable objects, which the finder of the standard library passes over
        examples = [doctest.DocTestParser().get_doctest(text, scope, name, None, 0)]
    for example in examples:
        runner = _Runner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(example, out=lambda _: None)
        if runner.said:
            yield f"has an example in {example.name} that fails ({runner.said[0]})", "correct it"


class _Runner(doctest.DocTestRunner):
    """Keeps one line per failure instead of printing ten."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.said: list[str] = []

    def report_failure(self, out: Any, test: Any, example: doctest.Example, got: str) -> None:
        self.said.append(f"`{example.source.strip()}` gives {got.strip()!r}")

    def report_unexpected_exception(self, out: Any, test: Any, example: doctest.Example, exc_info: Any) -> None:
        self.said.append(f"`{example.source.strip()}` raises {exc_info[0].__name__}: {exc_info[1]}")


if __name__ == "__main__":
    main(rule)
