"""The index of claims: names, titles and files of all claims, read from their sources without importing any of them.

A claim is a file `<chapter>/<name>.py` below a package of claims, where `<name>` is the claim's name with underscores.
The packages are the one of measureformer and those that other distributions announce through the entry-point group
`measureformer.claims`. There is no list to keep.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from measureformer.atlas.errors import ClaimDefinitionError
from measureformer.atlas.kinds import KINDS, Kind
from measureformer.atlas.names import is_claim_name

PACKAGE = "measureformer.atlas.claims"
GROUP = "measureformer.claims"
"""Entry points of this group name packages of claims: `ours = "our_package.claims"`."""

_LITERALS = {"name": str, "title": str, "kind": str, "statement": str, "hypotheses": tuple, "reference": str}


@dataclass(frozen=True)
class Listed:
    """What the source of a claim says about it, and where that source is."""

    name: str
    title: str
    kind: Kind
    statement: str
    hypotheses: tuple[str, ...]
    reference: str
    summary: str
    chapter: str
    chapter_title: str
    module: str


def packages() -> tuple[str, ...]:
    """Every package of claims: that of measureformer first, then those of other distributions, by name."""
    others = {point.value for point in entry_points(group=GROUP)}
    return (PACKAGE, *sorted(others - {PACKAGE}))


def index() -> dict[str, Listed]:
    """Every claim by name, in order of chapter and name."""
    found: dict[str, Listed] = {}
    for package in packages():
        for folder in sorted(path for path in folder_of(package).iterdir() if (path / "__init__.py").is_file()):
            title = _chapter_title(folder, package)
            for path in sorted(folder.glob("*.py")):
                if path.name != "__init__.py":
                    module = f"{package}.{folder.name}.{path.stem}"
                    said = _read(path, path.stat().st_mtime_ns, module)
                    if said["name"] in found:
                        raise broken(
                            f"the name {said['name']} in {found[said['name']].module} and in {module}",
                            "a name that no other claim has",
                            "Rename one of the two.",
                        )
                    found[said["name"]] = Listed(**said, chapter=folder.name, chapter_title=title, module=module)
    return {one.name: one for one in sorted(found.values(), key=lambda one: (one.chapter, one.name))}


def broken(got: str, need: str, do: str) -> ClaimDefinitionError:
    """The refusal of a claim that is not written as claims are."""
    return ClaimDefinitionError(got=got, need=need, do=do)


def folder_of(package: str) -> Path:
    """Where a package of claims is, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise broken(
            f"{package}, which is no package that can be found",
            f"a package of claims for each entry point of the group {GROUP}",
            "Install it, or remove the distribution that announces it.",
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _chapter_title(folder: Path, package: str) -> str:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    title = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
    if not title:
        raise broken(
            f"the chapter {package}.{folder.name} without a docstring",
            "the chapter's title as the first line of the docstring of its __init__.py",
            "Write it.",
        )
    return title


@lru_cache(maxsize=4096)
def _read(path: Path, _changed: int, module: str) -> dict[str, Any]:
    """The literal arguments of `claim = Claim(...)` in a file and its summary; a file without them is refused."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise broken(
            f"module {module}, which is not Python ({error})", "a module that can be read", "Correct it."
        ) from None
    call = next((node.value for node in tree.body if isinstance(node, ast.Assign) and _defines_claim(node)), None)
    if not isinstance(call, ast.Call):
        raise broken(
            f"module {module} without a claim",
            "a module-level line `claim = Claim(...)`",
            "Define it, or move what claims share out of the folder of a chapter.",
        )
    said = {word.arg: _literal(word.value) for word in call.keywords if word.arg in _LITERALS}
    for word, kind in _LITERALS.items():
        if not isinstance(said.get(word), kind):
            raise broken(
                f"module {module}, whose claim has no literal {word}",
                f"`{word}=` with a {kind.__name__} that can be read without running the module",
                "Write it out.",
            )
    if said["kind"] not in KINDS:
        raise broken(
            f"a claim of the kind {str(said['kind'])[:40]!r} in {module}",
            f"one of {', '.join(map(repr, KINDS))}",
            "Take the weakest kind that a check of it has.",
        )
    name = str(said["name"])
    if not is_claim_name(name) or path.stem != name.replace("-", "_"):
        raise broken(
            f"a claim called {name!r} in {module}",
            "a name of the form author-year-what in lower-case letters, digits and dashes, and a file of that name "
            "with underscores",
            "Rename one of the two.",
        )
    return {**said, "summary": (ast.get_docstring(tree) or "").partition("\n")[0]}


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _defines_claim(node: ast.Assign) -> bool:
    return any(isinstance(t, ast.Name) and t.id == "claim" for t in node.targets)
