"""Rule: what the theory says has a source, and the source is in `refs.bib`.

A docstring with a line that starts with `Statement` is that of a theory function: it needs a line
`Ref  castin2024, Theorem 3.3; kim2021.` A `Claim(...)` needs `reference="castin2024, Section 3"`. Every key must be one
of `src/measureformer/atlas/refs.bib`, where each key occurs once and each entry has author, title and year.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main, parse, python_files

KEY = re.compile(r"[a-z]+[0-9]{4}[a-z]?(?![0-9A-Za-z])")
STATEMENT = re.compile(r"^\s*Statement\b", re.MULTILINE)
REF = re.compile(r"^\s*Ref[ \t]+(\S.*)$", re.MULTILINE)
BIBLIOGRAPHY = Path("src") / "measureformer" / "atlas" / "refs.bib"
COLON = re.compile(r"^\s*Ref:", re.MULTILINE)
ENTRY = re.compile(r"^@\w+\{\s*([^,\s]+)\s*,(.*?)^\}", re.MULTILINE | re.DOTALL)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def rule(root: Path) -> Iterator[Violation]:
    bibliography = root / BIBLIOGRAPHY
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    yield from _entry_faults(bibliography, text)
    keys = {match[1] for match in ENTRY.finditer(text)}
    for path in python_files(root, "src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, Documented):
                yield from _docstring_faults(path, node, keys)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1].split("[")[0] == "Claim":
                yield from _claim_faults(path, node, keys)


def _entry_faults(path: Path, text: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for match in ENTRY.finditer(text):
        key, body, line = match[1], match[2], text.count("\n", 0, match.start()) + 1
        if not KEY.fullmatch(key):
            yield Violation(path, line, f"the key {key} is not a name and a year", "write it like castin2024")
        if key in seen:
            yield Violation(path, line, f"the key {key} occurs twice", "keep one entry")
        seen.add(key)
        for field in ("author", "title", "year"):
            if not re.search(rf"^\s*{field}\s*=", body, re.MULTILINE):
                yield Violation(path, line, f"the entry {key} has no {field}", "add it")


def _docstring_faults(path: Path, node: Documented, keys: set[str]) -> Iterator[Violation]:
    text = ast.get_docstring(node) or ""
    line = node.body[0].lineno if text else 1
    name = "the module" if isinstance(node, ast.Module) else node.name
    sources = REF.findall(text)
    if COLON.search(text):
        yield Violation(path, line, f"{name} has a line `Ref:`", "write `Ref  key, place.`, which cite() reads")
    elif STATEMENT.search(text) and not sources:
        yield Violation(path, line, f"{name} has a statement without a source", "add a line `Ref  key, place.`")
    for source in sources:
        yield from _source_faults(path, line, name, source, keys)


def _claim_faults(path: Path, node: ast.Call, keys: set[str]) -> Iterator[Violation]:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    value = given.get("reference")
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        yield Violation(path, node.lineno, "a claim without a literal reference", 'add reference="key, place"')
        return
    yield from _source_faults(path, value.lineno, "the claim", value.value, keys)


def _source_faults(path: Path, line: int, name: str, source: str, keys: set[str]) -> Iterator[Violation]:
    for piece in source.split(";"):
        key = KEY.match(piece.strip())
        if key is None:
            yield Violation(path, line, f"{name} cites {piece.strip()!r}", "begin with a key such as castin2024")
        elif key[0] not in keys:
            yield Violation(path, line, f"{name} cites {key[0]}", "add it to refs.bib, or correct the key")


if __name__ == "__main__":
    main(rule)
