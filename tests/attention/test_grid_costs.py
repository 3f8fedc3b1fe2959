"""What things cost: stored whole or not at all, harmless when that cannot be done; and what "auto" makes of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import measureformer as mf
from measureformer.attention.grid import Costs, calibrate, costs
from measureformer.attention.grid.planner import cheaper_plan


def test_costs_survive_a_round_trip_and_nothing_else_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "costs.json"
    assert costs.stored(path) is None
    costs.keep(path, Costs(pair=2.5e-9))
    assert costs.stored(path) == Costs(pair=2.5e-9)
    assert [p.name for p in path.parent.iterdir()] == ["costs.json"]
    whole = asdict(Costs())
    for broken in (
        "",
        "{",
        "[]",
        json.dumps({**whole, "pair": -1.0}),
        json.dumps({**whole, "pair": "x"}),
        '{"pair": 1}',
    ):
        path.write_text(broken)
        assert costs.stored(path) is None


def test_a_cache_folder_that_is_a_file_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    costs.keep(tmp_path / "file" / "costs.json", Costs())
    assert costs.stored(tmp_path / "file" / "costs.json") is None


def test_measured_once_and_read_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(costs.sys, "platform", "linux")
    calls = []
    monkeypatch.setattr(calibrate, "measured", lambda: calls.append(1) or Costs(pair=1e-9))
    for _ in range(2):
        calibrate.calibrated.cache_clear()
        assert calibrate.calibrated() == Costs(pair=1e-9)
    assert calls == [1]
    assert os.listdir(tmp_path / "measureformer") == ["grid-costs.json"]
    calibrate.calibrated.cache_clear()


def problem(n: int, d: int, scale: float = 1.0) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-scale, scale, (n, d))
    return x, x, rng.uniform(-0.5, 0.5, (n, 1)), np.zeros(n)


def test_the_grid_is_chosen_where_it_is_faster_and_only_there() -> None:
    assert cheaper_plan(problem(20000, 1), None, 1e-8, Costs()) is not None
    assert cheaper_plan(problem(500, 1), None, 1e-8, Costs()) is None
    assert cheaper_plan(problem(20000, 1), None, 1e-8, Costs(pair=1e-13)) is None
    # too many nodes, and too small a tolerance
    assert cheaper_plan(problem(3000, 3, 5.0), None, 1e-8, Costs()) is None
    assert cheaper_plan(problem(20000, 1), None, 1e-18, Costs()) is None
    times = (np.arange(20000.0),) * 2
    assert cheaper_plan(problem(20000, 1), times, 1e-8, Costs()) is not None
    assert cheaper_plan(problem(20000, 3), times, 1e-8, Costs()) is None


def test_auto_gives_away_no_accuracy_that_was_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "calibrated", lambda: Costs())
    q, k, v, _ = problem(10000, 1)
    offered = mf.attend(q, k, v, tol=1e-6)
    assert 1e-11 < float(offered.error_bound.max()) <= 1e-6
    assert float(mf.attend(q[:2000], k, v).error_bound.max()) < 1e-11


@pytest.mark.slow
def test_costs_can_be_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "KEYS", 8192)
    found = calibrate.measured()
    assert all(1e-13 < value < 1e-2 for value in asdict(found).values())
    # a product of matrices is cheaper than an exponential
    assert found.product < found.pair
