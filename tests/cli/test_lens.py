"""The command `lens`: its report, what an interruption leaves, a folder for each model, its refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lens_reference import folder
from measureformer.cli.app import app
from measureformer.errors import TextError
from measureformer.lens.columns import COLUMNS, Look
from measureformer.lens.figures import DRAWN
from measureformer.storage.safetensors import read_safetensors, to_safetensors
from measureformer.text import read_text

TEXT = " ".join(f"w{i % 37}" for i in range(40))


def test_reports_of_two_models_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("measureformer.lens.figures.DRAWN", {"rank": DRAWN["rank"]})
    for name in ("base", "merged"):
        (tmp_path / name).mkdir()
        where = folder(tmp_path / name, "gpt2")
        if name == "merged":
            tensors, metadata = read_safetensors(where / "model.safetensors")
            changed = next(one for one, array in tensors.items() if array.ndim == 2)
            tensors[changed] = 2 * tensors[changed]
            (where / "model.safetensors").write_bytes(to_safetensors(tensors, metadata))
        # twice, to see that a folder does not change from run to run
        for _ in range(2 if name == "base" else 1):
            result = CliRunner().invoke(app, ["lens", str(where), "--text", str(text), "--tokens", "8", "--quick"])
            assert result.exit_code == 0, result.output
    pages = list(tmp_path.glob("lens/*/lens.json"))
    # kills: one default folder for all
    assert len(pages) == 2
    columns = [json.loads(page.read_text())[0]["layers"] for page in pages]
    assert columns[0] != columns[1]


def test_the_command_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, text = folder(tmp_path, "gpt2"), tmp_path / "text.txt"
    text.write_text(TEXT)
    arguments = ["lens", str(where), "--text", str(text), "--tokens", "20", "--quick", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    # what the reference says of a configuration goes elsewhere
    assert result.stdout.startswith("GPT-2")
    # kills: columns that do not align in a pipe
    table = result.stdout.splitlines()[1:4]
    assert table[0].startswith("layer  norm ")
    assert len({len(line) for line in table}) == 1
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Do tokens cluster?" in page
    assert "How Lipschitz" not in page  # what was not measured is not drawn
    assert "20 tokens" in page
    assert (tmp_path / "out" / "figures" / "rank.svg").is_file()
    numbers = json.loads((tmp_path / "out" / "lens.json").read_text())
    assert len(numbers) == 1
    assert len(numbers[0]["layers"]) == 2
    # the same command against another text, as JSON: the first model's layers are taken from the folder
    monkeypatch.setattr("measureformer.lens.figures.DRAWN", {"rank": DRAWN["rank"], "first": DRAWN["first"]})
    other = tmp_path / "other.txt"
    other.write_text(" ".join(reversed(TEXT.split())))
    result = CliRunner().invoke(app, [*arguments, "--against", str(other), "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)) == 2


def test_no_part_of_a_report_passes_for_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, text = folder(tmp_path, "gpt2"), tmp_path / "text.txt"
    text.write_text(TEXT)

    def fails(look: Look) -> float:
        if look.step.index:
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setitem(COLUMNS, "rank", dataclasses.replace(COLUMNS["rank"], of=fails))
    out = tmp_path / "out"
    arguments = ["lens", str(where), "--text", str(text), "--tokens", "20", "--quick", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 130
    assert (out / "run-0" / "layer-000.json").is_file()
    assert not (out / "index.html").exists()
    assert not (out / "lens.json").exists()


def test_the_command_refuses_in_one_sentence(tmp_path: Path) -> None:
    where = folder(tmp_path, "gpt2")
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    for arguments, words in [
        ([str(tmp_path / "nothing")], "not there"),
        ([str(where), "--text", str(binary)], "not UTF-8"),
        ([str(where), "--text", str(tmp_path / "no.txt")], "No such file"),
    ]:
        result = CliRunner().invoke(app, ["lens", *arguments, "--out", str(tmp_path / "out")])
        assert result.exit_code == 2
        assert words in result.output
    assert not (tmp_path / "out").exists()
    with pytest.raises(TextError, match="empty"):
        read_text(Path(_written(tmp_path / "blank.txt", " \n")))


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
