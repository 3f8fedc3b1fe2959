"""The page on reliability: what it promises is tested where it says so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:tests|benchmarks)/[\w/.<>]+\.(?:py|md))(?:::(\w+))?`")


def test_every_fault_of_the_table_names_a_test_that_exists() -> None:
    _, _, table = PAGE.partition("| fault | promise | test |\n|---|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert len(rows) >= 10
    # kills: a row that promises without a test
    assert [row for row in rows if not any(name for _, name in NAMED.findall(row))] == []


def test_what_the_page_names_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 15
    for file, name in named:
        if "<" in file:
            continue
        assert (ROOT / file).is_file(), file
        if name:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (file, name)
