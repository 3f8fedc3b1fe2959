"""The whole closure of what is installed with the package is pinned, at the version that is installed."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def declared() -> Iterator[Requirement]:
    """Everything that pyproject.toml asks for, extras included; the installed metadata may be older than the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for listed in (project["dependencies"], *project["optional-dependencies"].values()):
        # an extra may name other extras of the package, which are listed themselves
        yield from (one for one in map(Requirement, listed) if one.name != "measureformer")


def installed_closure(requirements: Iterator[Requirement]) -> dict[str, str]:
    """Name -> version of every installed distribution that the requirements bring, directly or not."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    open_ends = list(requirements)
    while open_ends:
        requirement = open_ends.pop()
        try:
            distribution = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        name = canonicalize_name(requirement.name)
        found[name] = distribution.version
        for extra in ["", *requirement.extras]:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            further = map(Requirement, distribution.requires or [])
            open_ends += [r for r in further if r.marker is None or r.marker.evaluate({"extra": extra})]
    return found


def test_every_installed_dependency_is_pinned_at_its_version() -> None:
    pinned = pins()
    wrong = {
        f"{name}: installed {version}, pinned {pinned.get(name, 'not at all')}"
        for name, version in installed_closure(declared()).items()
        if pinned.get(name) != Version(version).public
    }
    assert wrong == set(), "run `make pin`, then `make test`"


def imported(folder: str) -> dict[str, Path]:
    """Packages that the files in a folder import, and one of the files that does."""
    found: dict[str, Path] = {}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {name.partition(".")[0]: path for name in names if name}
    return found


@pytest.mark.parametrize("folder", ["src", "tests", "tools"])
def test_what_is_imported_is_declared(folder: str) -> None:
    known = {"measureformer", *sys.stdlib_module_names, *(path.stem for path in ROOT.glob("*/*.py"))}
    brings = metadata.packages_distributions()
    wanted = {canonicalize_name(one.name) for one in declared()}
    undeclared = {
        f"{name}, in {path.relative_to(ROOT)}"
        for name, path in imported(folder).items()
        # torch and its like are declared, and need not be installed
        if name not in known and not wanted & {canonicalize_name(one) for one in brings.get(name, [name])}
    }
    assert undeclared == set(), "declare it in pyproject.toml, in the extra that needs it"


def test_the_walk_reaches_what_is_brought_indirectly() -> None:
    closure = installed_closure(iter([Requirement("jax"), Requirement("mkdocstrings[python]"), Requirement("no-such")]))
    assert {"jax", "jaxlib", "mkdocstrings-python"} <= closure.keys()
    assert "no-such" not in closure


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    spec = importlib.util.spec_from_file_location("_bounds", ROOT / "tools" / "_bounds.py")
    assert spec is not None
    assert spec.loader is not None
    bounds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bounds)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = {Requirement(one).name: Requirement(one) for one in bounds.lowest(project)}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["explore"]]
    assert "measureformer" not in lowest
    for requirement in (one for one in map(Requirement, wanted) if one.name != "measureformer"):
        assert str(lowest[requirement.name].specifier) == str(requirement.specifier).replace(">=", "==")
    extras = {"lens": [], "explore": []}
    with pytest.raises(SystemExit, match="numpy"):
        bounds.lowest({"dependencies": ["numpy"], "optional-dependencies": extras})


def test_names_and_versions_only() -> None:
    names = list(pins())
    assert names == sorted(names)
    assert all(name == canonicalize_name(name) for name in names)
    assert pins()["torch"] == "2.13.0"
