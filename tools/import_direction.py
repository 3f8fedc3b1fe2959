"""Rule: inside the package, imports point down only, and the library does not know the atlas.

A folder may import itself and the folders on lines above its own in `ORDER`; folders on one line do not import each
other. Imports inside functions, type-only imports and names taken from the package itself (`mf.Discrete`) count too.
Claims are mentioned, in code, scripts and sentences, by the folders that may import the atlas and by no others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, homes, main, parse, python_files

PACKAGE = "measureformer"
CHAPTERS = (
    ("measures", "attention"),
    ("maps", "transport"),
    ("regularity",),
    ("flows",),
    ("clustering", "mean_field", "structure", "memory"),
    ("universality", "implicit_bias", "incontext"),
    ("sequences",),
    ("text",),
    ("lens",),
)
ORDER = (
    ("errors",),
    ("numerics",),
    ("storage", "pages"),
    ("figures", "parallel"),
    ("training",),
    *CHAPTERS,
    ("atlas",),
    ("explore",),
    ("cli",),
)
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
# the library does not know the atlas that checks it
GUESTS = {"atlas": ("atlas", "explore", "cli"), "explore": ("explore", "cli"), "cli": ("cli",)}
# the report must be reproducible from stored results alone
ONLY: dict[tuple[str, ...], set[str]] = {
    ("atlas", "report"): {"atlas", "errors", "figures", "pages", "parallel", "storage"}
}
CLAIM = re.compile(r"(?<![A-Za-z])[Cc]laim\w*|\w*[a-z]Claim\w*")
SOURCES = {".py", ".js", ".css", ".html", ".toml"}


def rule(root: Path) -> Iterator[Violation]:
    package = root / "src" / PACKAGE
    yield from _claims(package)
    public = {name: home.split(".")[0] for name, (home, _) in homes(package).items()}
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
            if there is not None and (remedy := _remedy(parts, there)):
                yield Violation(path, line, f"{here} imports {there}", remedy)


def _claims(package: Path) -> Iterator[Violation]:
    for path in sorted(path for path in package.rglob("*") if path.suffix in SOURCES):
        here = path.relative_to(package).parts[0]
        if here in GUESTS["atlas"] or here in ("__init__.py", "__main__.py"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if found := CLAIM.search(line):
                what = f"{here} mentions claims, {found[0]!r}"
                yield Violation(path, number, what, f"only {', '.join(GUESTS['atlas'])} know the atlas: say it without")


def _remedy(parts: tuple[str, ...], there: str) -> str:
    """What to do about an import; empty if it is allowed."""
    here = parts[0]
    if (allowed := ONLY.get(parts[:2])) and there not in allowed:
        return f"{'/'.join(parts[:2])} may import {', '.join(sorted(allowed))} only: put what it needs into the result"
    if here == there:
        return ""
    if there not in LEVEL:
        return f"name a folder of the package, or add {there} to ORDER in tools/import_direction.py"
    if here not in GUESTS.get(there, (here,)):
        return f"only {', '.join(GUESTS[there])} may import {there}: the library stands without it"
    return "" if LEVEL[there] < LEVEL[here] else "imports point down only: move the shared part to a folder below both"


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
