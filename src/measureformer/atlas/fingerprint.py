"""Fingerprint of a result: when it is unchanged, running the claim again would measure the same numbers.

It covers the source of the claim's module and of everything that module imports inside the package, directly or not,
and the inputs of the run. It reads no git state: a commit elsewhere must not invalidate hours of results.

Imports are read from the syntax tree, inside functions too; what is imported under `TYPE_CHECKING` never runs and does
not count. A module loaded by `importlib` under a computed name is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from measureformer.atlas.errors import ClaimDefinitionError

_READ_RESULTS_ONLY = ("atlas", "cli", "explore", "__main__")
"""Parts that no claim can depend on; they do not count when a module imports the package as a whole."""

_WHOLE = "*"
"""Ends a name that stands for a package as a whole, whose names are resolved on first use."""


def source_fingerprint(module: str, inputs: Mapping[str, Any]) -> str:
    """SHA-256 of the sources that `module` depends on and of `inputs`, which must be plain JSON values."""
    digest = hashlib.sha256()
    for name, path in sorted(sources(module).items()):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    digest.update(json.dumps(inputs, sort_keys=True).encode())
    return digest.hexdigest()


def sources(module: str) -> dict[str, Path]:
    """Name and file of every module that importing and running `module` can execute, in its package and in this one."""
    folders = {root: _folder_of(root) for root in (module.partition(".")[0], __name__.partition(".")[0])}
    found: dict[str, Path] = {}
    whole: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        root, _, rest = name.partition(".")
        if root not in folders or name in found:
            continue
        path = _file_of(folders[root], rest)
        if path is None:
            # the top package resolves names on first use: one that is not a module may lead anywhere
            if "." not in rest and not rest.endswith("__") and root not in whole:
                whole.add(root)
                waiting.extend(_whole_package(root, folders[root], module))
            continue
        found[name] = path
        if rest:
            waiting.append(name.rpartition(".")[0])
            # the top package itself imports nothing: being a parent, it adds its own source only
            waiting.extend(_imported(name, path.name == "__init__.py", path.read_bytes()))
    if module not in found:
        raise ClaimDefinitionError(
            got=f"module {module} without a source file",
            need="a module that lies as a file in its package",
            do="Install the package unzipped.",
        )
    return found


def _folder_of(root: str) -> Path:
    spec = importlib.util.find_spec(root)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise ClaimDefinitionError(got=f"{root}, which is no package", need="a package", do="Move the claim into one.")
    return Path(places[0])


def _file_of(folder: Path, rest: str) -> Path | None:
    """The source of the module that is called `rest` below the top package."""
    if not rest:
        return folder / "__init__.py"
    base = folder.joinpath(*rest.split("."))
    return next((path for path in (base / "__init__.py", base.with_name(f"{base.name}.py")) if path.is_file()), None)


def _whole_package(root: str, folder: Path, module: str) -> Iterator[str]:
    """Every module but those that only read results and the other claims, which lie beside `module`'s chapter."""
    claims = folder.joinpath(*module.split(".")[1:-2]) if module.startswith(f"{root}.") else folder
    for path in folder.rglob("*.py"):
        parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
        is_claim = claims != folder and claims in path.parent.parents
        if not is_claim and (not parts or parts[0] not in _READ_RESULTS_ONLY):
            yield ".".join([root, *parts])


@lru_cache(maxsize=1024)
def _imported(name: str, is_package: bool, source: bytes) -> tuple[str, ...]:
    """Names that the source may import, of modules or of things in them; `root.*` for a whole package."""
    found: list[str] = []
    for node in _running(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append(alias.name)
                # `import root.part` binds root, through which everything can be reached
                if "." not in alias.name or not alias.asname:
                    found.append(f"{alias.name.partition('.')[0]}.{_WHOLE}")
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, name, is_package)
            found.append(base)
            found.extend(f"{base}.{alias.name}" for alias in node.names)
    return tuple(found)


def _base_of(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    """The absolute name of the module after `from`, in a module called `name`."""
    if not node.level:
        return node.module or ""
    ups = node.level - (1 if is_package else 0)
    base = name.split(".")[: len(name.split(".")) - ups]
    return ".".join([*base, node.module] if node.module else base)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but the bodies of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _running(other)
            continue
        yield child
        yield from _running(child)
