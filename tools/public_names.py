"""Rule: every public name has one meaning, resolves, is documented, and shows an example that runs.

Public names are those of the stub `__init__.pyi` of the package and, for each folder that the stub shows as a whole,
those that the folder's `__init__.py` imports, as in `mf.regularity.lipschitz_ball`; if that is a module, as in
`mf.incontext.tasks`, then its public functions and classes. A name may be shown in several places if it is the same
object; there are `MOST` names at most. A block `Arguments:` names every parameter. Exceptions and constants need a
docstring but neither. What the documentation, docstrings and messages call `mf.…` is public.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from _rules import Violation, homes, main, namespaces, parse, python_files

PACKAGE = "measureformer"
MOST = 230
ARGUMENTS = re.compile(r"^Arguments:\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)
ADVERTISED = re.compile(r"\bmf((?:\.[A-Za-z_]\w*)+)")
NAMED = re.compile(r"^[ ]{4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)


class Public(NamedTuple):
    name: str
    place: str
    """How users reach it: `mf`, `mf.regularity`, `mf.incontext.tasks`."""
    source: Path
    line: int
    value: Any


def rule(root: Path) -> Iterator[Violation]:
    # the tree that is checked, which need not be the installed one
    sys.path.insert(0, str(root / "src"))
    package = root / "src" / PACKAGE
    shown, unresolved = _shown(package)
    yield from unresolved
    yield from _advertised(root, {f"{public.place}.{public.name}" for public in shown}, _places(package, shown))
    meanings: dict[str, list[Public]] = defaultdict(list)
    for public in shown:
        known = meanings[public.name]
        if not any(other.value is public.value for other in known):
            known.append(public)
    for public in (known[0] for known in meanings.values()):
        for what, do in _document_faults(public.name, public.value):
            yield Violation(public.source, public.line, f"{public.name} {what}", do)
    for name, (first, *others) in meanings.items():
        for other in others:
            what = f"{name} is one thing in {first.place} and another in {other.place}"
            yield Violation(other.source, other.line, what, "rename one of them")
            yield from (
                Violation(other.source, other.line, f"{name} {fault}", do)
                for fault, do in _document_faults(name, other.value)
            )
    count = sum(map(len, meanings.values()))
    if count > MOST:
        what = f"{count} public names, which is more than {MOST}"
        yield Violation(package / "__init__.pyi", 1, what, "take names out of the folders that users do not need")
    print(f"{count} public names, of {MOST} at most", file=sys.stderr)


def _shown(package: Path) -> tuple[list[Public], list[Violation]]:
    """Everything that users see, and what they do not see although it is listed."""
    stub, top = package / "__init__.pyi", importlib.import_module(PACKAGE)
    shown: list[Public] = []
    faults: list[Violation] = []
    for name, (_, line) in homes(package).items():
        try:
            shown.append(Public(name, "mf", stub, line, getattr(top, name)))
        except Exception as error:  # whatever the home raises while it loads is the finding
            what = f"{name} does not resolve ({type(error).__name__}: {error})"
            faults.append(Violation(stub, line, what, "define it, or take it out of the stub"))
    for folder in namespaces(package):
        shown += _of_module(importlib.import_module(f"{PACKAGE}.{folder}"), f"mf.{folder}")
    return shown, faults


def _places(package: Path, shown: list[Public]) -> set[str]:
    """Folders and modules that are public under their own names."""
    return {f"mf.{folder}" for folder in namespaces(package)} | {public.place for public in shown}


def _advertised(root: Path, names: set[str], places: set[str]) -> Iterator[Violation]:
    """What users read of as `mf.…`, and do not find among the public names."""
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    for path in (*pages, *python_files(root, f"src/{PACKAGE}")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for found in ADVERTISED.finditer(line):
                parts = found[0].split(".")
                heads = {".".join(parts[:k]) for k in range(2, len(parts) + 1)}
                if not heads & names and found[0] not in places:
                    what = f"{found[0]} is advertised and is not a public name"
                    yield Violation(path, number, what, "show it in the stub or in its folder, or do not mention it")


def _of_module(module: ModuleType, place: str) -> Iterator[Public]:
    source = Path(inspect.getfile(module))
    if source.name != "__init__.py":
        for name, value in vars(module).items():
            # what functions return is found by calling them; a class that users make has an example
            made = inspect.isfunction(value) or (inspect.isclass(value) and ">>>" in (value.__doc__ or ""))
            if made and value.__module__ == module.__name__ and not name.startswith("_"):
                yield Public(name, place, source, 1, value)
        return
    imports = (node for node in parse(source).body if isinstance(node, ast.ImportFrom))
    shown = ((alias.name, node.lineno) for node in imports for alias in node.names if alias.asname == alias.name)
    for name, line in shown:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield from _of_module(value, f"{place}.{name}")
        else:
            yield Public(name, place, source, line, value)


def _document_faults(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not (isinstance(value, type) or callable(value)):
        return  # a constant
    text = value.__doc__
    # a dataclass without a docstring gets its signature as one
    if not text or text.startswith(f"{name}("):
        yield "has no docstring", "say in one sentence what it is"
    elif isinstance(value, type) and issubclass(value, BaseException):
        return
    elif ">>>" not in text:
        yield "has no example", "add a `>>>` example to its docstring"
    else:
        if missing := _unexplained(value):
            yield f"does not explain {', '.join(missing)}", "add it to a block `Arguments:` of its docstring"
        yield from _failures(name, value, text)


def _unexplained(value: Any) -> list[str]:
    """Parameters that no block of arguments names; a class may be explained by the functions that make it."""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []  # a class of Python, which has no signature
    members = vars(value).values() if isinstance(value, type) else ()
    makers = [member for member in members if isinstance(member, staticmethod)]
    told = {name for text in (value, *makers) for name in _explained(inspect.getdoc(text) or "")}
    if told and makers and not _explained(inspect.getdoc(value) or ""):
        return []
    return [name for name in parameters if name not in {"self", *told}]


def _explained(text: str) -> list[str]:
    block = ARGUMENTS.search(text)
    return [name.strip("* ") for names in NAMED.findall(block[1]) for name in names.split(",")] if block else []


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
