"""What is shipped: the wheel's contents, and files that must say the same version."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def version() -> str:
    # read, not imported: this test is about the file that the build reads
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/measureformer/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_wheel_holds_the_bibliography_and_the_marker_of_types(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(tmp_path), str(ROOT)], check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"measureformer-{version()}-" in wheel.name
    assert {"measureformer/refs.bib", "measureformer/py.typed", "measureformer/__init__.py"} <= set(names)
    assert {"measureformer/explore/points.js", "measureformer/explore/apps/particles.py"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"measureformer", f"measureformer-{version()}.dist-info"}


def test_citation_and_changelog_name_the_version() -> None:
    assert f"version: {version()}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_continuous_integration_runs_the_commands_of_the_readme() -> None:
    ran = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert ran == ["make test", "make check"]
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")
