"""Another distribution adds claims and references: it is built, installed, and found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import measureformer as mf
from measureformer.atlas.errors import ReferenceFormatError
from measureformer.atlas.references import references
from planting import claim_source, plant, write_tree

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "ours"
version = "1.0"

[project.entry-points."measureformer.claims"]
ours = "ours.claims"

[tool.hatch.build.targets.wheel]
packages = ["ours"]
"""
ENTRY = """\
@article{ours2030,
  author = {Ann Author},
  title = {Ours},
  journal = {Journal of Ours},
  year = {2030},
}
"""


def run(folder: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_an_installed_package_adds_claims_with_references_of_its_own(tmp_path: Path) -> None:
    source = claim_source("ours-2030-small").replace("castin2025, Section 3", "ours2030, Section 3")
    write_tree(tmp_path / "project" / "ours", {"claims/novelty/ours_2030_small.py": source, "claims/refs.bib": ENTRY})
    (tmp_path / "project" / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    run(tmp_path / "project", "-m", "hatchling", "build", "-t", "wheel")
    (wheel,) = (tmp_path / "project" / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    run(tmp_path, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(installed), str(wheel))
    assert "ours-2030-small" in run(installed, "-m", "measureformer", "claims")
    assert run(installed, "-c", "import measureformer as mf; print(mf.cite('ours2030'))").startswith("Author (2030).")
    assert "holds" in run(installed, "-m", "measureformer", "check", "ours-2030-small")


def test_a_package_of_claims_may_not_redefine_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu")})
    assert "castin2025" in references()
    (tmp_path / package / "refs.bib").write_text(ENTRY, encoding="utf-8")
    monkeypatch.setattr("measureformer.atlas.references.packages", lambda: (package,))
    assert references()["ours2030"].title == "Ours"
    (tmp_path / package / "refs.bib").write_text(ENTRY.replace("ours2030", "castin2025"), encoding="utf-8")
    with pytest.raises(ReferenceFormatError, match="castin2025"):
        mf.cite("castin2025")
