"""The scripts in examples/: short, each with a question, and they run."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
# what is small enough for a test; the others run as they are
ARGUMENTS = {"a_million_tokens": ["20000"]}
# what a correct run must print
PRINTS = {
    "a_million_tokens": "certified error of every value: at most",
    "do_my_tokens_cluster": "β = 1: mean ⟨x_i, x_j⟩ from 0.03 to 1.00, 1 clusters",
    "how_lipschitz_is_a_layer": "layer 4: attained",
    "is_it_a_transformer": "sharpen: not representable",
    "my_own_attention": "the first token sees itself only: True",
    "which_heads_attend_to_a_sink": "strongest sink: layer 4, head 2",
}


def test_every_example_is_listed() -> None:
    assert sorted(PRINTS) == [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_asks_a_question(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= 40
    assert about.splitlines()[0].endswith("?")
    assert f"Run: python examples/{path.name}" in about


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), *ARGUMENTS.get(path.stem, [])])
    runpy.run_path(str(path), run_name="__main__")
    assert PRINTS[path.stem] in capsys.readouterr().out
