"""A sample of the mutations in tools/mutants.toml is noticed by the tests that `docs/mutants.md` names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# in modules that do not use each other, so that one run of the tests can judge all of them
SAMPLE = (
    "exponent of the capacity of a dense memory",
    "off by one in the number of common tokens",
    "exponent of the Lipschitz bound on a ball",
    "optimum without the term Λ/N",
    "discounted mass is not given back",
    "covariance of the Gaussian flow with 2A instead of A + Aᵀ",
)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module("mutants")
    sys.modules.pop("mutants", None)


def test_a_sample_is_noticed(tool: Any, tmp_path: Path) -> None:
    chosen = [one for one in tool.mutants(ROOT) if one.what in SAMPLE]
    rows = tool.recorded(ROOT / "docs" / "mutants.md")
    named = {f"tests/{rows[one.file, one.what]}" for one in chosen}
    assert len(chosen) == len(named) == len(SAMPLE)
    copy = tool.Copy(tmp_path)
    for one in chosen:
        path = tmp_path / "src" / "measureformer" / one.file
        path.write_text(path.read_text(encoding="utf-8").replace(one.old, one.new), encoding="utf-8")
    _, text = copy.output((*(word for word in tool.PYTEST if word != "-x"), *sorted(named)))
    assert {name.partition("[")[0] for name in tool.FAILED.findall(text)} == named


def test_every_mutation_was_run_and_noticed(tool: Any) -> None:
    rows = tool.recorded(ROOT / "docs" / "mutants.md")
    assert {(one.file, one.what) for one in tool.mutants(ROOT)} == set(rows)
    assert all(rows.values())
