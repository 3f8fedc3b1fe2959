"""Flows whose attention is computed on a grid: against all pairs, plans that follow the points, saving, refusals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import diffrax
import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import measureformer as mf
from compilations import count_compilations
from measureformer.attention.grid import Costs, follow
from measureformer.errors import MeasureformerError, OptionError, PlanError, ToleranceError, TracedError
from measureformer.flows import follow as _follow
from measureformer.flows import run as _run

TOL = 1e-8
A = np.array([[1.0, 0.5], [-0.3, 0.8]])
# tokens turn, and the cloud keeps its size: plans of one shape, one program
G = mf.Attention.head(A, np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]]))


def cloud(seed: int, n: int = 300) -> Any:
    rng = np.random.default_rng(seed)
    return mf.Discrete.weighted(rng.uniform(-1.2, 1.2, (n, 2)), rng.uniform(0.5, 2, n))


@pytest.fixture(autouse=True)
def _on_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    # sums one by one are so dear that a grid is taken for a few hundred tokens too
    monkeypatch.setattr(follow, "make_plan", partial(follow.make_plan, costs=Costs(pair=1e-3)))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The margin of every plan that is made."""
    made = []
    original = _follow.plans_of_heads
    monkeypatch.setattr(_follow, "plans_of_heads", lambda *args: made.append(args[-1]) or original(*args))
    return made


def attended(logits: Any, values: Any) -> Any:
    """Softmax attention straight from the definition."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights @ values / weights.sum(1, keepdims=True)


def velocity(x: Any, mu: Any, head: Any) -> Any:
    Q, K, V = (np.asarray(matrix)[0] for matrix in (head.Q, head.K, head.V))
    return attended((x @ Q.T) @ (x @ K.T).T + np.asarray(mu.log_weights), x @ V.T)


def test_the_flow_is_that_of_all_pairs(planned: list[float]) -> None:
    # kills: a plan that is not made anew (points have left the cells: the velocity is wrong), errors of bounds
    mu, times = cloud(0), [0.0, 0.1, 0.3]
    ours = mf.flow(G, mu, times, method=mf.Grid(tol=TOL), steps=diffrax.PIDController(rtol=1e-9, atol=1e-9))
    assert ours.error_bound is not None
    assert TOL / 1e3 < ours.error_bound <= TOL
    assert len(planned) > 1
    found = solve_ivp(
        lambda _, x: velocity(x.reshape(-1, 2), mu, G).ravel(),
        (0.0, 0.3),
        np.asarray(mu.points).ravel(),
        t_eval=[0.1, 0.2, 0.3],
        method="DOP853",
        rtol=1e-10,
        atol=1e-10,
    )
    expected = found.y.T.reshape(3, -1, 2)
    np.testing.assert_allclose(ours.points[1:], expected[[0, 2]], atol=1e-8)
    # between the times it is computed on a grid again
    before = len(planned)
    np.testing.assert_allclose(ours.at(0.2).points, expected[1], atol=1e-8)
    assert len(planned) > before


LAYERS = [G, mf.Attention.head(A.T, np.eye(2), np.array([[0.0, 1.0], [-1.0, 0.0]]))]


def equal(seed: int, n: int = 300, save: Any = None) -> Any:
    return mf.flow(LAYERS, cloud(seed, n), [0.0, 0.3, 0.6], solver="euler", steps=6, method=mf.Grid(tol=TOL), save=save)


def test_a_residual_network_on_the_grid_and_planning_again_compiles_nothing(planned: list[float]) -> None:
    # kills: a plan for the layer before, where the layer changes
    found = equal(0)
    mu = cloud(0)
    x = np.asarray(mu.points)
    for i in range(12):
        x = x + 0.05 * velocity(x, mu, LAYERS[i // 6])
    np.testing.assert_allclose(found.points[-1], x, atol=1e-7)
    before = len(planned)
    assert count_compilations(lambda: [equal(seed, 300 - seed) for seed in (1, 2)]) == 0
    assert len(planned) >= before + 4


def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: plans made for the points at which the run was interrupted
    whole = equal(0)
    further, left = _run._further, [7]

    def interrupted(*args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return further(*args)

    monkeypatch.setattr(_run, "CALL", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(_run, "_further", interrupted)
        with pytest.raises(KeyboardInterrupt):
            equal(0, save=tmp_path / "run")
    resumed = equal(0, save=tmp_path / "run")
    np.testing.assert_array_equal(resumed.points, whole.points)
    assert resumed.error_bound == whole.error_bound
    loaded = mf.flows.load_flow(tmp_path / "run", LAYERS)
    np.testing.assert_array_equal(loaded.points, whole.points)
    assert loaded.error_bound == whole.error_bound
    with pytest.raises(MeasureformerError, match="other settings"):
        mf.flow(LAYERS, cloud(0), [0.0, 0.3, 0.6], solver="euler", steps=6, save=tmp_path / "run")


def test_two_attentions_one_after_the_other_and_a_mask() -> None:
    # kills: one plan for both, and plans without times
    x = np.random.default_rng(3).uniform(-1, 1, (200, 1))
    head = mf.Attention.head([[1.5]], [[1.0]], [[1.0]])
    found = mf.flow(
        mf.Causal(head) @ mf.Residual(head),
        mf.SpaceTime.sequence(x),
        [0.0, 0.5],
        solver="euler",
        steps=2,
        method=mf.Grid(tol=TOL),
    )
    hidden = np.where(np.tri(200) > 0, 0, -np.inf)
    for _ in range(2):
        y = x + attended(1.5 * x @ x.T, x)
        x = x + 0.25 * attended(1.5 * y @ y.T + hidden, y)
    np.testing.assert_allclose(found.points[-1], x, atol=1e-7)
    assert 0 < found.error_bound <= TOL


def test_steps_that_are_too_long_for_any_cell_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_follow, "MARGINS", (0.25,))
    with pytest.raises(PlanError, match="steps of 1"):
        mf.flow(1000 * G, cloud(0), [0.0, 1.0], solver="heun", steps=1, method=mf.Grid(tol=TOL))


HIGH = mf.Discrete.uniform(np.eye(4))
REFUSALS: dict[str, tuple[type[Exception], Any, str]] = {
    "tol": (OptionError, lambda: mf.flow(G, cloud(0), [0.0, 1.0], method=mf.Grid(tol=0.0)), "tol = 0.0"),
    "no attention": (
        OptionError,
        lambda: mf.flow(mf.Linear(A), cloud(0), [0.0, 1.0], solver="euler", steps=2, method=mf.Grid(tol=TOL)),
        "without softmax",
    ),
    "dimension": (
        OptionError,
        lambda: mf.flow(
            mf.Attention.head(*[np.eye(4)] * 3), HIGH, [0.0, 1.0], solver="euler", steps=2, method=mf.Grid(tol=TOL)
        ),
        "dimension 4",
    ),
    "impossible": (ToleranceError, lambda: mf.flow(G, cloud(0), [0.0, 1.0], method=mf.Grid(tol=1e-17)), "at least"),
    "trace": (
        TracedError,
        lambda: jax.jit(lambda x: mf.flow(G, mf.Discrete.uniform(x), [0.0, 1.0], method=mf.Grid(tol=TOL)).points)(
            np.eye(2)
        ),
        "flow with save or a grid",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, message = REFUSALS[case]
    with pytest.raises(error, match=message):
        call()
