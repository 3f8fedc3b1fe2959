"""What is shipped: the wheel's contents, and files that must say the same version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def version() -> str:
    # read, not imported: this test is about the file that the build reads
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/measureformer/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    return folder


def sources() -> set[str]:
    """Every file of the package, by its path below src/."""
    files = (path for path in (ROOT / "src/measureformer").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_the_wheel_is_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    about = f"measureformer-{version()}.dist-info"
    assert f"measureformer-{version()}-py3-none-any.whl" == wheel.name
    assert {name for name in names if not name.startswith(f"{about}/")} == sources()
    parts = {"atlas/refs.bib", "py.typed", "pages/style.css", "lens/box/model.safetensors", "lens/box/tokenizer.json"}
    parts |= {"explore/points.js", "explore/points.css", "explore/apps/particles.py"}
    assert {f"measureformer/{part}" for part in parts} <= names
    assert f"{about}/licenses/LICENSE" in names
    said = zipfile.ZipFile(wheel).read(f"{about}/entry_points.txt").decode()
    assert "measureformer = measureformer.__main__:main" in said


@pytest.mark.slow
def test_a_second_build_has_the_same_bytes_and_carries_the_bill_of_materials(built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    (first,), (second,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    assert first.read_bytes() == second.read_bytes()
    bill = json.loads(zipfile.ZipFile(first).read(f"measureformer-{version()}.dist-info/sboms/bill.cdx.json"))
    assert {"jax", "numpy", "jaxlib"} <= {part["name"] for part in bill["components"]}


@pytest.mark.slow
def test_the_sdist_can_be_built_tested_and_cited(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    rest = {"pyproject.toml", "LICENSE", "README.md", "CITATION.cff", "CHANGELOG.md", "Makefile", "constraints.txt"}
    assert rest | {"tests/conftest.py", "tools/venv.sh", "mkdocs.yml", "docs/index.md"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "atlas/", "site/"))]


def test_citation_and_changelog_name_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version()
    assert citation["authors"] == [{"name": "The measureformer developers"}]
    assert f"## [{version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_continuous_integration_runs_the_commands_of_the_readme() -> None:
    ran = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert ran == ["make test", "make check"]
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")
