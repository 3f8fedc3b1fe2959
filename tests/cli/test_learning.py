"""The commands `incontext` and `text`: they train, go on, evaluate, write, and refuse in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from measureformer.cli.app import app
from measureformer.incontext import tasks
from measureformer.incontext.shifted import ORTHOGONAL


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="measureformer", catch_exceptions=False)


def test_incontext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["--dim", "2", "--points", "3", "--width", "8", "--layers", "1", "--save", str(tmp_path / "run")]
    done = command("incontext", "train", "--steps", "2", "--watch", "1", *sizes)
    assert done.exit_code == 0, done.output
    assert "2 steps of 64 prompts" in done.output
    shown = command(
        "incontext",
        "evaluate",
        str(tmp_path / "run"),
        "--points",
        "3",
        "--prompts",
        "50",
        "--figure",
        str(tmp_path / "curve.svg"),
    )
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.output.splitlines()[1:4]]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    # least squares knows two weights after two examples
    assert float(rows[2][2]) < 1e-9
    assert "ε after 2 examples" in shown.output
    # two examples span the plane: nothing is orthogonal to them; of all variants one, which is quicker
    everything = tasks.shifted
    monkeypatch.setattr(tasks, "shifted", lambda law: {ORTHOGONAL: everything(law)[ORTHOGONAL]})
    shown = command("incontext", "evaluate", str(tmp_path / "run"), "--points", "3", "--prompts", "50", "--shifted")
    (line,) = (line for line in shown.output.splitlines() if line.startswith("orthogonal query"))
    assert line.endswith("after 1 examples")
    assert float(line.split()[2]) > 0.1
    refused = command(
        "incontext", "evaluate", str(tmp_path / "run"), "--points", "3", "--task", "dynamics", "--shifted"
    )
    assert refused.exit_code == 2
    assert refused.output.startswith("measureformer: got a Dynamics")
    assert "least squares" in (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert "local Lipschitz" in (tmp_path / "curve-training.svg").read_text(encoding="utf-8")
    other = command("incontext", "train", "--steps", "3", "--watch", "1", *sizes)
    assert other.exit_code == 2
    assert "steps 2 there, 3 here" in other.output
    for wrong in (["--task", "cubic"], ["--preset", "day"], ["--reading", "tree"]):
        refused = command("incontext", "train", *sizes, *wrong)
        assert refused.exit_code == 2
        assert refused.output.startswith("measureformer: got")
    assert command("incontext", "evaluate", str(tmp_path / "nothing")).exit_code == 2


def test_text(tmp_path: Path) -> None:
    file = tmp_path / "verse.txt"
    file.write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    sizes = ["--width", "8", "--layers", "1", "--context", "8", "--save", str(tmp_path / "text")]
    done = command("text", "train", str(file), "--steps", "2", *sizes)
    assert done.exit_code == 0, done.output
    assert "of a trigram model" in done.output
    written = command("text", "generate", str(tmp_path / "text"), "--prompt", "the ", "--length", "20")
    assert written.exit_code == 0, written.output
    assert written.output.startswith("the ")
    assert len(written.output) == len("the ") + 20 + 1
    # without a prompt, one whose letters it knows: no capitals here
    assert command("text", "generate", str(tmp_path / "text"), "--length", "5").output.startswith("the ")
    file.write_bytes(b"\xff")
    for arguments in (["train", str(file)], ["generate", str(tmp_path)], ["train", str(tmp_path / "no.txt")]):
        refused = command("text", *arguments)
        assert refused.exit_code == 2
        assert refused.output.startswith("measureformer: got")
