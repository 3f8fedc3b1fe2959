"""The package needs what it declares and nothing else: no module of it imports a tool of its developers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Modules of other packages than those given are not to be found; then all of the package is imported.
PROGRAM = """
import importlib, importlib.metadata, json, pkgutil, sys
allowed = set(sys.argv[1].split(","))
homes = importlib.metadata.packages_distributions()

class Wall:
    def find_spec(self, name, path=None, target=None):
        owners = homes.get(name.partition(".")[0])
        if owners and not allowed & {owner.lower().replace("_", "-").replace(".", "-") for owner in owners}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Wall())
import measureformer
missing = {}
for module in pkgutil.walk_packages(measureformer.__path__, "measureformer."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing[module.name] = error.name
print(json.dumps(missing))
"""


def needed(package: str) -> set[str]:
    """The package and what it requires without extras, and what that requires."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        requirements = map(Requirement, metadata.requires(name) or [])
        waiting += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.slow
def test_every_module_but_the_widget_is_imported_without_extras() -> None:
    allowed = needed("measureformer")
    assert not {"marimo", "anywidget", "tokenizers", "gguf", "pytest", "torch"} & allowed
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(sorted(allowed))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    assert missing
    assert set(missing.values()) <= {"anywidget", "marimo"}
    assert all(name.startswith("measureformer.explore.") for name in missing)
