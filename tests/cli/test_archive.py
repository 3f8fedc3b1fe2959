"""An archive of an atlas: whole, the same each time, checkable, and without what is not of the atlas."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from measureformer import __version__
from measureformer.atlas.registry import versions
from measureformer.atlas.report import write_report
from measureformer.cli.app import app
from measureformer.cli.archive import installed
from planting import a_result


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["archive", *map(str, arguments)], prog_name="measureformer", catch_exceptions=False)


@pytest.fixture
def atlas(tmp_path: Path) -> Path:
    folder = tmp_path / "atlas"
    # without its figure, which takes a second to draw
    result = replace(a_result(), versions=versions(), run=replace(a_result().run, figure=None))
    (folder / "results").mkdir(parents=True)
    (folder / "results" / f"{result.claim}.json").write_text(result.to_json(), encoding="utf-8")
    write_report([result], folder)
    return folder


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_archive_holds_the_atlas_and_its_papers(atlas: Path, tmp_path: Path) -> None:
    done = command(atlas, "--out", tmp_path / "a.zip")
    assert (done.exit_code, done.stderr) == (0, "")
    files = contents(tmp_path / "a.zip")
    ours = {path.relative_to(tmp_path).as_posix() for path in atlas.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith("atlas/")} == ours
    assert files["atlas/index.html"] == (atlas / "index.html").read_bytes()
    assert "1 claims" in done.stdout
    others = {".zenodo.json", "CITATION.cff", "README.txt", "SHA256SUMS", "environment.txt", "refs.bib"}
    assert files.keys() - ours == others


def test_check_sums_are_those_of_all_other_files(atlas: Path, tmp_path: Path) -> None:
    command(atlas, "--out", tmp_path / "a.zip")
    files = contents(tmp_path / "a.zip")
    said = dict(reversed(line.split("  ")) for line in files.pop("SHA256SUMS").decode().splitlines())
    assert said == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def test_the_same_atlas_gives_the_same_bytes(atlas: Path, tmp_path: Path) -> None:
    command(atlas, "--out", tmp_path / "a.zip")
    for path in atlas.rglob("*.json"):
        path.touch()
    command(atlas, "--out", tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_authors_and_versions_are_said_in_both_formats(atlas: Path, tmp_path: Path) -> None:
    command(atlas, "--out", tmp_path / "a.zip", "--author", 'Noether, "Emmy"', "--author", "A group: of people")
    files = contents(tmp_path / "a.zip")
    zenodo, citation = json.loads(files[".zenodo.json"]), yaml.safe_load(files["CITATION.cff"])
    assert [one["name"] for one in zenodo["creators"]] == ['Noether, "Emmy"', "A group: of people"]
    assert citation["authors"] == [
        {"family-names": "Noether", "given-names": '"Emmy"'},
        {"name": "A group: of people"},
    ]
    assert zenodo["version"] == citation["version"] == __version__
    assert zenodo["upload_type"] == citation["type"] == "dataset"
    assert "1 holds" in zenodo["description"]


def test_the_environment_is_what_the_package_needs_and_no_more() -> None:
    found = installed()
    assert found["jax"] == versions()["jax"]
    assert {"jaxlib", "scipy", "typer"} <= found.keys()
    assert not {"pytest", "ruff", "marimo", "torch"} & found.keys()


def test_results_of_other_versions_are_counted(atlas: Path, tmp_path: Path) -> None:
    result = replace(a_result(), versions=versions() | {"jax": "0.0.1"})
    (atlas / "results" / f"{result.claim}.json").write_text(result.to_json(), encoding="utf-8")
    assert "1 of them were measured with other versions" in command(atlas, "--out", tmp_path / "a.zip").stderr


def test_remains_of_interrupted_writes_are_left_out(atlas: Path, tmp_path: Path) -> None:
    (atlas / "results" / ".x.json.0.tmp").write_text("{")
    assert command(atlas, "--out", tmp_path / "a.zip").exit_code == 0
    assert not [name for name in contents(tmp_path / "a.zip") if name.endswith(".tmp")]


def test_what_is_no_atlas_is_refused(atlas: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.zip"
    (tmp_path / "empty").mkdir()
    for folder, words in ((tmp_path / "none", "no folder"), (tmp_path / "empty", "without results")):
        done = command(folder, "--out", out)
        assert done.exit_code == 2
        assert words in done.stderr
    inside = command(atlas, "--out", atlas / "a.zip")
    assert (inside.exit_code, "elsewhere" in inside.stderr) == (2, True)
    (atlas / "secret").symlink_to("/etc/hostname")
    link = command(atlas, "--out", out)
    assert (link.exit_code, "a link" in link.stderr) == (2, True)
    (atlas / "secret").unlink()
    (atlas / "results" / "bad.json").write_text("{}")
    assert command(atlas, "--out", out).exit_code == 2
    assert not out.exists()


def test_an_author_without_a_name_is_refused(atlas: Path, tmp_path: Path) -> None:
    assert command(atlas, "--out", tmp_path / "a.zip", "--author", " ").exit_code == 2
