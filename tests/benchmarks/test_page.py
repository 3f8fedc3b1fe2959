"""Figures of the last full run go into their block of the page, and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from page import write_block


def test_a_block_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- figures: one -->\nold\n<!-- end -->\nb\n<!-- figures: two -->\n<!-- end -->\nc\n")
    write_block("one", r"new \1", page)
    write_block("two", "2", page)
    # kills: a block that reaches to the end of the last one, and a text that is read as a pattern
    text = "a\n<!-- figures: one -->\nnew \\1\n<!-- end -->\nb\n<!-- figures: two -->\n2\n<!-- end -->\nc\n"
    assert page.read_text() == text
    with pytest.raises(SystemExit, match="0 blocks 'figures: three'"):
        write_block("three", "", page)
