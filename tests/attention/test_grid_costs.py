"""What "auto" makes of the costs of the grid and of streaming."""

from __future__ import annotations

from typing import Any

import numpy as np

import measureformer as mf
from measureformer.attention.grid import Costs
from measureformer.attention.grid.planner import cheaper_plan


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


def test_auto_gives_away_no_accuracy_that_was_not_offered() -> None:
    q, k, v, _ = problem(10000, 1)
    offered = mf.attend(q, k, v, tol=1e-6)
    assert 1e-11 < float(offered.error_bound.max()) <= 1e-6
    assert float(mf.attend(q[:2000], k, v).error_bound.max()) < 1e-11
