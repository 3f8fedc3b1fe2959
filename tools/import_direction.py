"""Rule: inside the package, imports point down only.

A folder may import itself and the folders on lines above its own in `ORDER`; folders on one line do not import each
other. Imports inside functions, type-only imports and names taken from the package itself (`mf.Discrete`) count too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, homes, main, parse, python_files

PACKAGE = "measureformer"
ORDER = (
    ("errors",),
    ("result", "refs", "files", "progress", "launcher"),
    ("atlas", "workers"),
    ("numerics",),
    ("distributed", "training"),
    ("measures", "attention"),
    ("maps", "transport"),
    ("regularity",),
    ("flows", "structure", "memory"),
    ("universality", "implicit_bias", "incontext"),
    ("text",),
    ("lens",),
    ("_claims",),
    ("report",),
    ("explore",),
    ("commands",),
    ("cli",),
)
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
# the report must be reproducible from stored results alone
ONLY = {"report": {"atlas", "errors", "files", "refs", "result", "workers"}}


def rule(root: Path) -> Iterator[Violation]:
    package = root / "src" / PACKAGE
    init = package / "__init__.py"
    public = {name: home for name, (home, _) in homes(parse(init)).items()} if init.exists() else {}
    for path in python_files(package, "."):
        parts = path.relative_to(package).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue  # the table of names and the program stand above everything
        here = parts[0]
        if here not in LEVEL:
            yield Violation(
                path, 1, f"{here} has no place in the order of imports", "add it to ORDER in tools/import_direction.py"
            )
            continue
        for module, line in imported(parse(path), [PACKAGE, *parts[:-1]]):
            there = folder_of(module, public)
            if there is not None and not _allowed(here, there):
                yield Violation(path, line, f"{here} imports {there}", _remedy(here, there))


def _allowed(here: str, there: str) -> bool:
    if here == there:
        return True
    if here in ONLY:
        return there in ONLY[here]
    return there in LEVEL and LEVEL[there] < LEVEL[here]


def _remedy(here: str, there: str) -> str:
    if here in ONLY:
        return f"{here} may import {', '.join(sorted(ONLY[here]))} only: put what it needs into the result"
    if there not in LEVEL:
        return f"name a folder of the package, or add {there} to ORDER in tools/import_direction.py"
    return "imports point down only: move the shared part to a folder below both"


def folder_of(module: str, public: dict[str, str]) -> str | None:
    """The folder that a dotted name inside the package belongs to; None for the package itself and its metadata."""
    rest = module.split(".")[1:]
    if not rest or rest[0].startswith("__"):
        return None
    return public.get(rest[0], rest[0])


def imported(tree: ast.Module, package: list[str]) -> Iterator[tuple[str, int]]:
    """Every dotted name of the package that a module reaches, with its line."""
    aliases: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == PACKAGE:
                    yield name.name, node.lineno
                    if name.name == PACKAGE or name.asname is None:
                        aliases.add(name.asname or PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source.split(".")[0] == PACKAGE:
                yield from ((f"{source}.{name.name}", node.lineno) for name in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module":
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and str(argument.value).split(".")[0] == PACKAGE:
                    yield str(argument.value), node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield f"{PACKAGE}.{node.attr}", node.lineno


if __name__ == "__main__":
    main(rule)
