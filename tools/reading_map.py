"""Rule: `docs/reading_map.md` is what the code says: theorem → function → claim → test. `--write` makes it again.

A theorem is a docstring with a line `Ref  key, place`; a claim names its own `reference`. A claim or a test belongs to
a function if its file uses the function's name. A public statement that neither of them uses is a violation.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _rules import Violation, homes, main, namespaces, parse, python_files
from references import BIBLIOGRAPHY, ENTRY, KEY, REF, STATEMENT, Documented

PACKAGE = "measureformer"
PAGE = Path("docs") / "reading_map.md"
HEAD = """\
# Reading map

From a statement in the literature to the function that computes it, the claim that checks it against a control, and the
tests. The tables are made from the code by `python tools/reading_map.py --write`, and `make check` compares them with
it: functions are those whose docstring has a line `Ref`, claims and tests are those whose file uses the function. Keys
are those of the [references](references.md).
"""


class Theorem(NamedTuple):
    path: Path
    line: int
    home: str
    """The folder of the package, and the name inside it: a function, a class, a method `Class.method`, or a module."""
    name: str
    public: str
    """How users call it; empty if they do not."""
    stated: bool

    @property
    def shown(self) -> str:
        return self.public or f"{self.home}.{self.name}"


class Map(NamedTuple):
    """What the code says; sources are (key, place)."""

    theorems: dict[tuple[str, str], list[Theorem]]
    claims: dict[tuple[str, str], list[str]]
    claims_using: dict[Theorem, list[str]]
    tests_using: dict[Theorem, list[str]]


def rule(root: Path) -> Iterator[Violation]:
    found = collect(root)
    for theorem in sorted({t for group in found.theorems.values() for t in group}):
        # classes are often made by a function, which is what tests call
        calls = theorem.public and theorem.name[0].islower()
        if calls and theorem.stated and not {*found.claims_using[theorem], *found.tests_using[theorem]}:
            what = f"{theorem.public} is a statement that no claim and no test uses"
            yield Violation(theorem.path, theorem.line, what, "test it against the truth")
    page = root / PAGE
    if not page.exists() or page.read_text(encoding="utf-8") != written(root, found):
        yield Violation(page, 1, "the map is not that of the code", "run python tools/reading_map.py --write")


def collect(root: Path) -> Map:
    package, public = root / "src" / PACKAGE, _public(root)
    theorems, claims = defaultdict(list), defaultdict(list)
    for path in python_files(package, "."):
        home = path.relative_to(package).with_suffix("").parts[0]
        for name, node in _documented(path):
            text = ast.get_docstring(node) or ""
            for source in (piece for line in REF.findall(text) for piece in _sources(line)):
                owner, _, method = name.partition(".")
                # a folder may show functions of one name in two of its modules
                places = (f"{path.stem}.{owner}", f"{path.parent.name}.{owner}", owner)
                called = next((public[home, place] for place in places if (home, place) in public), "")
                shown = f"{called}.{method}" if called and method else called
                theorems[source].append(
                    Theorem(path, node.body[0].lineno, home, name, shown, bool(STATEMENT.search(text)))
                )
    everything = {theorem for group in theorems.values() for theorem in group}
    claims_using, tests_using = defaultdict(list), defaultdict(list)
    for path in python_files(package, "atlas/claims"):
        for claim, reference in _claims(parse(path)):
            for source in _sources(reference):
                claims[source].append(claim)
            for theorem in _used(path, everything, public):
                claims_using[theorem].append(claim)
    for path in python_files(root, "tests"):
        for theorem in _used(path, everything, public):
            tests_using[theorem].append(path.relative_to(root / "tests").as_posix())
    return Map(theorems, claims, claims_using, tests_using)


def written(root: Path, found: Map) -> str:
    bibliography = root / BIBLIOGRAPHY
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    entries = {match[1]: match[2] for match in ENTRY.finditer(text)}
    lines = [HEAD]
    sources = sorted({*found.theorems, *found.claims})
    for key in sorted({key for key, _ in sources}):
        lines += [f"## {key}", "", f"{_title(entries.get(key, ''))} ([{key}](references.md#{key}))", ""]
        lines += ["| place | function | claims | tests |", "|---|---|---|---|"]
        for source in (source for source in sources if source[0] == key):
            lines += _rows(source, found)
        lines.append("")
    return "\n".join(lines)


def _rows(source: tuple[str, str], found: Map) -> Iterator[str]:
    place, told = source[1].replace("|", "\\|") or "–", set()
    for theorem in sorted(found.theorems.get(source, []), key=lambda t: t.shown):
        claims = sorted(set(found.claims_using[theorem]))
        told.update(claims)
        yield f"| {place} | `{theorem.shown}` | {_few(claims)} | {_few(sorted(set(found.tests_using[theorem])))} |"
    if rest := sorted({*found.claims.get(source, [])} - told):
        # every claim and its control run in one test
        yield f"| {place} | | {_few(rest, len(rest))} | `atlas/test_every_claim.py` |"


def _few(names: list[str], most: int = 4) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _title(body: str) -> str:
    found = re.search(r"^\s*title\s*=\s*\{(.*)\},?\s*$", body, re.MULTILINE)
    return re.sub(r"[{}\\]", "", found[1]) if found else ""


def _sources(text: str) -> list[tuple[str, str]]:
    """`castin2024, Theorem 3.3; kim2021.    Derived: …` as pairs of key and place; the place ends with the sentence."""
    text = re.split(r"\.\s|\.$|\s{3,}", text)[0]
    found = []
    for piece in text.split(";"):
        if match := KEY.match(piece.strip()):
            found.append((match[0], piece.strip()[match.end() :].strip(" ,.")))
    return found


def _documented(path: Path) -> Iterator[tuple[str, Documented]]:
    """A module, under its own name, and its functions, classes and methods that have no underscore."""
    tree = parse(path)
    yield path.stem.strip("_"), tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner


def _claims(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1].split("[")[0] == "Claim":
            given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if "name" in given and "reference" in given:
                yield str(given["name"]), str(given["reference"])


def _used(path: Path, theorems: set[Theorem], public: dict[tuple[str, str], str]) -> list[Theorem]:
    """The theorems that a file imports or spells out; a method, if the file uses its folder and says `.method`."""
    tree = parse(path)
    homes_of = {name: home for (home, name), called in public.items() if called == f"mf.{name}"}
    known = {PACKAGE: PACKAGE, "mf": PACKAGE} | _aliases(tree)
    folders: set[str] = set()
    names: set[tuple[str, str]] = set()
    for dotted in _spelled(tree, known):
        parts = dotted.split(".")[1:]
        if parts and parts[0] in homes_of:
            parts = [homes_of[parts[0]], *parts]
        folders.update(parts[:1])
        names.update((parts[0], part.strip("_")) for part in parts[1:])
    said = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return sorted(
        theorem
        for theorem in theorems
        if (theorem.home, theorem.name) in names
        or ("." in theorem.name and theorem.home in folders and theorem.name.split(".")[1] in said)
    )


def _aliases(tree: ast.Module) -> dict[str, str]:
    """What local names stand for: imports from the package, and assignments such as M = mf.memory."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = ast.unparse(node.value)
            if re.fullmatch(r"mf(\.\w+)+", text):
                found[node.targets[0].id] = text.replace("mf", PACKAGE, 1)
    return found


def _spelled(tree: ast.Module, known: dict[str, str]) -> Iterator[str]:
    """Dotted names of the package that a file spells out, with local names replaced by what they stand for."""
    yield from known.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            first, _, rest = text.partition(".")
            if first in known and re.fullmatch(r"[\w.]+", rest):
                yield f"{known[first]}.{rest}"


def _public(root: Path) -> dict[tuple[str, str], str]:
    """(folder, name) -> how it is called: `mf.flow`, `mf.regularity.lipschitz_ball`, `mf.incontext.linear.optimum`."""
    package = root / "src" / PACKAGE
    found: dict[tuple[str, str], str] = {}
    for folder in namespaces(package):
        for node in parse(package / folder / "__init__.py").body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found |= _shown(package, folder, node.module or "", alias.name)
    return found | {(home.split(".")[0], name): f"mf.{name}" for name, (home, _) in homes(package).items()}


def _shown(package: Path, folder: str, module: str, name: str) -> dict[tuple[str, str], str]:
    """A name of a public folder; if it is a module, or a folder in it, the names inside."""
    found = {(folder, name): f"mf.{folder}.{name}"}
    if module == f"{PACKAGE}.{folder}":
        inner = package / folder / f"{name}.py"
        inner = inner if inner.exists() else package / folder / name / "__init__.py"
        for node in parse(inner).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[folder, f"{name}.{node.name}"] = f"mf.{folder}.{name}.{node.name}"
            elif isinstance(node, ast.ImportFrom) and inner.name == "__init__.py":
                found |= {(folder, f"{name}.{a.name}"): f"mf.{folder}.{name}.{a.name}" for a in node.names}
    return found


if __name__ == "__main__":
    if "--write" in sys.argv:
        root = Path(__file__).parent.parent
        (root / PAGE).write_text(written(root, collect(root)), encoding="utf-8")
    else:
        main(rule)
