"""Optimization: each method against its own formula, batches against single runs, where it stops, where it goes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import measureformer as mf
from compilations import count_compilations
from measureformer import errors
from measureformer.implicit_bias import Descent, Problem, descend_all, misalignment, random_problems
from measureformer.implicit_bias.descent import Run

KEY = jax.random.key(0)


def small(seed: int = 0) -> Problem:
    return random_problems("random", jax.random.key(seed), n=2, T=3, d=3)


def slope(problem: Problem, W: np.ndarray) -> np.ndarray:
    return np.asarray(problem.gradient(W))


def by_hand(problem: Problem, method: str, W: np.ndarray, steps: int) -> np.ndarray:
    V = np.zeros_like(W)
    for _ in range(steps):
        g = slope(problem, W)
        V = 0.5 * V + g
        W = {
            "gd": lambda W, g: W - 0.3 * g,
            "ngd": lambda W, g: W - 0.3 * g / np.linalg.norm(g),
            "sign": lambda W, g: W - 0.3 * np.sign(g),
            "momentum": lambda W, g, V=V: W - 0.3 * V,
            "polyak": lambda W, g: W - 0.3 * (problem.loss(W) - problem.infimum()) / (2 * (g**2).sum()) * g,
        }[method](W, g)
    return W


@pytest.mark.parametrize("method", ["gd", "ngd", "sign", "momentum", "polyak"])
def test_steps_are_those_of_the_formula(method: Any) -> None:
    problem, start = small(), np.random.default_rng(0).normal(size=(3, 3))
    run = problem.descend(Descent(method, rate=0.3, momentum=0.5), 5, start=start)
    assert run.steps.tolist() == [0, 1, 2, 3, 4, 5]
    for k in (1, 5):
        np.testing.assert_allclose(run.W[k], by_hand(problem, method, start, k), rtol=1e-11, atol=1e-12)
    assert run.loss[3] == pytest.approx(problem.loss(run.W[3]), rel=1e-13)
    np.testing.assert_allclose(run.attention[2], problem.attention(run.W[2]), rtol=1e-12)


def test_adam_is_that_of_optax() -> None:
    problem, W = small(), np.random.default_rng(0).normal(size=(3, 3))
    run = problem.descend(Descent("adam", rate=0.1, momentum=0.8, eps=1e-3), 4, start=W)
    adam = optax.adam(0.1, b1=0.8, b2=0.999, eps=1e-3)
    state = adam.init(W)
    for k in range(4):
        change, state = adam.update(problem.gradient(W), state)
        W = W + np.asarray(change)
        np.testing.assert_allclose(run.W[k + 1], W, rtol=1e-10)


def test_a_product_is_trained_by_the_chain_rule() -> None:
    problem = small()
    rng = np.random.default_rng(0)
    K, Q = rng.normal(size=(2, 3, 2))
    run = problem.descend(Descent("ngd", rate=0.3, rank=2), 1, start=(K, Q))
    g = slope(problem, K @ Q.T)
    # each factor by its own norm
    ahead = K - 0.3 * g @ Q / np.linalg.norm(g @ Q), Q - 0.3 * g.T @ K / np.linalg.norm(g.T @ K)
    assert run.factors is not None
    for part, wanted in zip(run.factors, ahead, strict=True):
        np.testing.assert_allclose(part[1], wanted, rtol=1e-12)
    np.testing.assert_allclose(run.W[1], ahead[0] @ ahead[1].T, rtol=1e-12)


def test_a_batch_is_its_single_runs_and_compiles_once() -> None:
    problems = [small(seed) for seed in range(12)]
    starts = list(np.random.default_rng(0).normal(size=(12, 3, 3)))
    runs = descend_all(problems[:9], "ngd", 30, starts=starts[:9])
    for i in (0, 8):
        alone = problems[i].descend("ngd", 30, start=starts[i])
        np.testing.assert_allclose(runs[i].W, alone.W, atol=1e-9)
    again = lambda: descend_all(problems, Descent("ngd", rate=0.2), 31, starts=starts)  # noqa: E731
    assert count_compilations(again) == 0, "other numbers of problems and steps, another rate"


def test_starts_follow_from_the_key_and_have_the_width_of_a_linear_layer() -> None:
    problem = random_problems("random", KEY)
    one, two = (problem.descend("gd", 1, jax.random.key(seed)).W[0] for seed in (0, 1))
    assert np.array_equal(one, problem.descend("gd", 1, KEY).W[0])
    assert not np.array_equal(one, two)
    assert 0.9 / np.sqrt(10) < np.abs(one).max() <= 1 / np.sqrt(10)
    runs = descend_all([problem, problem], "gd", 1, KEY)
    assert not np.array_equal(runs[0].W[0], runs[1].W[0])


# --- where it stops --------------------------------------------------------------------------------------------------


def test_a_single_token_has_no_gradient() -> None:
    run = Problem(np.ones((1, 1, 2)), [[1.0, 0.0]], [1], [1.0, 0.0]).descend("ngd", 10, KEY)
    assert (run.stopped, run.steps.tolist(), run.W.shape) == ("gradient", [0], (1, 2, 2))
    assert run.selected.tolist() == [[0]]


def test_underflow_ends_a_run_and_its_direction_is_right_to_the_end() -> None:
    problem = random_problems("orthonormal", KEY)
    run = problem.descend(Descent("ngd", rate=10.0), 1000, start=np.zeros(problem.shape))
    assert run.stopped == "gradient"
    # e^{−gap} is below 1e-305 there: ‖W‖ = gap · ‖W_mm‖
    assert 690 < run.norm[-1] / np.sqrt(3) < 745
    assert run.steps[-1] < 200
    assert (np.diff(run.steps) > 0).all()
    # steps of this length go to and fro across the limit
    assert misalignment(run.W[-1], problem.svm().W) < (10 / run.norm[-1]) ** 2


def test_a_mixture_at_its_optimum_ends_a_run_before_rounding_leads_it_on() -> None:
    # margin −x²: best at the mixture of ±1 with equal weights, a finite W; afterwards the gradient is noise
    X = np.array([[[1.0], [-1.0]]])
    square = mf.MLP([[1.0]], None, [[1.0]], None, activation=lambda x: x**2)
    run = Problem(X, [[1.0]], [-1], square).descend(Descent("gd", rate=1.0), 10_000, start=[[1.0]])
    assert run.stopped == "gradient"
    assert run.steps[-1] < 1000
    assert abs(run.W[-1]).max() < 1e-12


def test_a_step_that_is_not_finite_is_not_taken() -> None:
    problem = small()
    run = problem.descend(Descent("gd", rate=1e308), 50, start=np.zeros((3, 3)))
    assert run.stopped == "not finite"
    assert np.isfinite(run.W).all()
    assert np.isfinite(run.loss).all()


def test_a_polyak_step_below_the_given_infimum_is_the_end() -> None:
    problem = small()
    run = problem.descend(Descent("polyak", infimum=problem.loss(np.zeros((3, 3))) + 1), 5, start=np.zeros((3, 3)))
    assert (run.stopped, run.steps.tolist()) == ("infimum", [0])


# --- where it goes ---------------------------------------------------------------------------------------------------


def at(run: Run, step: int) -> np.ndarray:
    return run.W[run.at(step)]


def test_normalised_descent_goes_to_the_svm_of_the_tokens_it_selects() -> None:
    runs = descend_all(random_problems("random", KEY, count=10), "ngd", 1000, jax.random.key(1))
    for run in runs:
        own, nuclear = (misalignment(run.W[-1], run.svm(norm).W) for norm in ("frobenius", "nuclear"))
        assert own < 0.05
        assert own < nuclear
    assert np.mean([misalignment(run.W[-1], run.svm().W) for run in runs]) < 0.02


def test_orthonormal_tokens_fast_and_slow() -> None:
    problem = random_problems("orthonormal", KEY)
    start, W = 0.01 * np.random.default_rng(0).normal(size=problem.shape), problem.svm().W
    fast, slow = (problem.descend(method, 10_000, start=start) for method in ("ngd", "gd"))
    away = {k: misalignment(at(fast, k), W) for k in (100, 1000, 10_000)}
    for k in (1000, 10_000):
        # 1 − cos is as 1/k², and 1/‖W‖²: what the start adds to W stays
        assert away[k] / away[k // 10] == pytest.approx(0.01, rel=0.1)
    assert away[100] < 3e-4 < misalignment(at(slow, 100), W)
    np.testing.assert_allclose(fast.norm[10:] / fast.steps[10:], 0.1, rtol=0.05)
    decades = np.diff([slow.norm[slow.at(k)] for k in (100, 1000, 10_000)])
    assert decades[0] == pytest.approx(decades[1], rel=0.25)
    least = 1 - 3 * np.exp(-fast.margins()[:, :, 1:].min(axis=(1, 2)))
    assert (fast.attention.max(axis=2).min(axis=1) >= least - 1e-12).all()


def test_prompt_norms_are_those_that_were_published() -> None:
    problems = random_problems("prompt", KEY, count=8)
    zeros = [np.zeros((2, 1))] * 8
    assert np.mean([run.norm[-1] for run in descend_all(problems, "ngd", 200, starts=zeros)]) == pytest.approx(
        19.7, abs=0.5
    )
    assert np.mean([run.norm[-1] for run in descend_all(problems, "gd", 200, starts=zeros)]) == pytest.approx(
        3.9, abs=0.5
    )


# --- refusals --------------------------------------------------------------------------------------------------------

BAD: list[tuple[type[Exception], str, Any]] = [
    (errors.OptionError, "method = 'newton'", lambda: small().descend("newton", 1, KEY)),
    (errors.OptionError, "rate = -1", lambda: Descent("gd", rate=-1.0)),
    (errors.OptionError, "momentum = 1", lambda: Descent("momentum", momentum=1.0)),
    (errors.OptionError, "rank = 0", lambda: Descent(rank=0)),
    (errors.OptionError, "steps = 0", lambda: small().descend("gd", 0, KEY)),
    (errors.OptionError, "no key and no start", lambda: small().descend("gd", 1)),
    (errors.ShapeError, "1 of", lambda: small().descend("gd", 1, start=np.zeros((2, 2)))),
    (errors.ShapeError, "at least one", lambda: descend_all([], "gd", 1, KEY)),
    (errors.ShapeError, "2 shapes", lambda: descend_all([small(), random_problems("random", KEY)], "gd", 1, KEY)),
    (errors.OptionError, "a Polyak step", lambda: random_problems("several", KEY).descend("polyak", 1, KEY)),
    (errors.NotFiniteError, "start", lambda: small().descend("gd", 1, start=np.full((3, 3), np.nan))),
]


@pytest.mark.parametrize(("kind", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_refusals(kind: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(kind, match=words):
        call()
