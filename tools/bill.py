"""The bill of materials of the wheel, `bill.cdx.json`, in CycloneDX format: every package that an installation brings.

`python tools/bill.py --write` reads what is installed and writes it. `python tools/bill.py [root]` checks, offline,
that the bill and `constraints.txt` name the same versions and that no declared dependency is missing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pin
from _rules import Violation, main

BILL = "bill.cdx.json"
NOT_SHIPPED = ("bench", "parity", "dev")
"""Extras for those who work on the package."""
DO = "run python tools/bill.py --write"


def rule(root: Path) -> Iterator[Violation]:
    path = root / BILL
    if not path.exists():
        yield Violation(path, 1, "the bill of materials is missing", DO)
        return
    listed = {part["name"]: part["version"] for part in json.loads(path.read_text(encoding="utf-8"))["components"]}
    pins = dict(pin.LINE.findall((root / "constraints.txt").read_text(encoding="utf-8")))
    for name, version in listed.items():
        if pins.get(name) != version:
            yield Violation(path, 1, f"{name} {version} is listed and {pins.get(name)} is pinned", DO)
    for name in map(name_of, pin.requirements(root, without=NOT_SHIPPED)):
        if name not in listed:
            yield Violation(path, 1, f"{name} is declared and not listed", DO)


def bill(root: Path) -> dict[str, Any]:
    """The bill, made of what is installed: the dependencies of the extras that users install, and theirs."""
    found: dict[str, dict[str, Any]] = {}
    waiting = pin.requirements(root, without=NOT_SHIPPED)
    while waiting:
        requirement = waiting.pop()
        name = name_of(requirement)
        # markers are for extras and other systems; what they ask for and is not installed here is not listed
        if name in found or not (installed := _installed(name)):
            continue
        found[name] = _component(name, installed)
        waiting += [line for line in installed.requires or () if "extra ==" not in line]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "measureformer"}},
        "components": [found[name] for name in sorted(found)],
    }


def name_of(requirement: str) -> str:
    return pin.normal(re.split(r"[\s\[<>=!~;(]", requirement)[0])


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _component(name: str, installed: metadata.Distribution) -> dict[str, Any]:
    version = installed.version.split("+")[0]
    part: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    if "License-Expression" in installed.metadata:
        part["licenses"] = [{"expression": installed.metadata["License-Expression"]}]
    return part


if __name__ == "__main__":
    if "--write" in sys.argv:
        here = Path(__file__).parent.parent
        (here / BILL).write_text(json.dumps(bill(here), indent=1) + "\n", encoding="utf-8")
    else:
        main(rule)
