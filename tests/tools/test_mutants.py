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
    "Cantor measure keeps the middle third",
    "exponent of the Lipschitz bound on a ball",
    "covariance of the Gaussian flow with 2A instead of A + Aᵀ",
    "stationary covariances with the transposed V",
    "derivative along probabilities without its correction",
    "cost of sending an interval to its median",
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


def test_every_mutation_that_was_run_was_noticed(tool: Any) -> None:
    rows = tool.recorded(ROOT / "docs" / "mutants.md")
    assert set(rows) <= {(one.file, one.what) for one in tool.mutants(ROOT)}
    assert all(rows.values())
