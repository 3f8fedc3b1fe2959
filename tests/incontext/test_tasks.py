"""Tasks and baselines: moments, definitions recomputed by hand, closed forms of errors, and scikit-learn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import baselines, tasks
from measureformer.incontext.tasks import Prompts

KEY = jax.random.key(0)
MANY = 4000


def drawn(task: Any, points: int = 6, batch: int = MANY) -> Prompts:
    return Prompts(*map(np.asarray, task.sample(KEY, batch, points)))


@pytest.mark.parametrize("name", sorted(tasks.NAMED))
def test_labels_have_the_mean_square_that_errors_are_divided_by(name: str) -> None:
    task = tasks.NAMED[name](4)
    prompts = drawn(task)
    square = (prompts.y**2).mean(axis=1)
    noise = float(getattr(task, "noise", None) or 0.0) ** 2
    assert abs(square.mean() - float(task.scale) - noise) <= 5 * square.std() / np.sqrt(MANY)
    # the same key gives the same prompts, another one others
    again = task.sample(KEY, 3, 6)
    np.testing.assert_array_equal(again.y, task.sample(KEY, 3, 6).y)
    assert not np.allclose(again.y, task.sample(jax.random.key(1), 3, 6).y)
    assert task.sample(KEY, 3, 6, dtype=np.float32).y.dtype == np.float32


def test_functions_are_what_they_are_called() -> None:
    x = np.random.default_rng(0).normal(size=(40, 4))
    linear = tasks.linear(4).function(KEY, x)
    w, *_ = np.linalg.lstsq(x, np.asarray(linear), rcond=None)
    np.testing.assert_allclose(x @ w, linear, atol=1e-12)
    few, *_ = np.linalg.lstsq(x, np.asarray(tasks.sparse(4, nonzero=1).function(KEY, x)), rcond=None)
    assert (np.abs(few) > 1e-10).sum() == 1
    squares, *_ = np.linalg.lstsq(x**2, np.asarray(tasks.quadratic(4).function(KEY, x)), rcond=None)
    np.testing.assert_allclose(x**2 @ squares, tasks.quadratic(4).function(KEY, x), atol=1e-12)
    # a tree of depth 2 sees signs alone, and has at most four values
    leaves = np.asarray(tasks.tree(4, depth=2).function(KEY, x))
    np.testing.assert_array_equal(leaves, tasks.tree(4, depth=2).function(KEY, np.sign(x)))
    assert 2 <= len(np.unique(leaves)) <= 4
    # a network without biases is positively homogeneous
    net = tasks.net(4, width=8).function
    np.testing.assert_allclose(net(KEY, 3 * x), 3 * net(KEY, x), rtol=1e-12)
    assert set(np.unique(tasks.classification(4).function(KEY, x))) == {-1.0, 1.0}


def test_a_task_of_ones_own() -> None:
    def sine(key: Any, x: Any) -> Any:
        return jnp.sin(x @ jax.random.normal(key, x.shape[-1:], x.dtype))

    prompts = drawn(tasks.Task(3, sine, scale=0.5), batch=10)
    assert np.abs(prompts.y).max() <= 1
    with pytest.raises(errors.ShapeError, match="one number for each"):
        tasks.Task(3, lambda key, x: x).sample(KEY, 2, 5)
    for bad in ({"noise": -1.0}, {"scale": 0.0}, {"loss": "hinge"}):
        with pytest.raises(errors.OptionError):
            tasks.Task(3, sine, **bad)


@pytest.mark.parametrize(("name", "power"), [("linear", 1), ("quadratic", 2), ("tree", 0)])
def test_errors_on_shifted_prompts_are_over_their_mean_square(name: str, power: int) -> None:
    # over the square of an input's factor they would be wrong by 9 for trees, which see signs alone
    task = tasks.NAMED[name](3)
    variants = tasks.shifted(task)
    for factor in (1 / 3, 1 / 2, 2, 3):
        growth = float(variants[f"inputs × {factor:.3g}"].scale / task.scale)
        assert growth == pytest.approx(factor ** (2 * power), rel=1e-5)
    others = {variant: float(other.scale / task.scale) for variant, other in variants.items() if "×" not in variant}
    if name != "quadratic":
        assert set(others.values()) == {1.0}
        return
    # Σ_j x_j⁴ grows with the eccentricity of the inputs; the estimate, from 8192 prompts, has an error of its own
    for variant in ("skewed inputs", "half subspace"):
        square = (drawn(variants[variant]).answers ** 2).mean(axis=1) / float(task.scale)
        assert others[variant] > 1.1
        assert abs(square.mean() - others[variant]) <= 6 * square.std() / np.sqrt(MANY)


def test_shifted_prompts_are_as_described() -> None:
    variants = tasks.shifted(tasks.linear(4))
    x = drawn(variants["half subspace"], batch=50).x
    assert (np.linalg.matrix_rank(x) == 2).all()
    x = drawn(variants["orthant"], batch=50).x
    assert (np.abs(np.sign(x).sum(axis=1)) == 6).all()
    values = np.linalg.eigvalsh(np.einsum("bni,bnj->ij", *[drawn(variants["skewed inputs"]).x] * 2) / (6 * MANY))
    assert values.sum() == pytest.approx(4, rel=0.1)
    prompts = drawn(variants["orthogonal query"], batch=50)
    for i in range(1, 4):
        inner = np.einsum("bkd,bd->bk", prompts.x[:, :i], prompts.queries[:, i])
        np.testing.assert_allclose(inner, 0, atol=1e-10)
    # whoever has seen nothing in that direction cannot answer: least squares says 0
    np.testing.assert_allclose(baselines.least_squares(prompts)[:, 1:4], 0, atol=1e-9)
    prompts = drawn(variants["repeated query"], batch=50)
    for i in range(1, 6):
        match = (prompts.queries[:, i, None] == prompts.x[:, :i]).all(axis=2)
        assert match.any(axis=1).all()
        np.testing.assert_allclose(prompts.answers[:, i], prompts.y[np.arange(50), match.argmax(axis=1)], atol=1e-12)
    for name, factor in (("inputs × 2", 2), ("labels × 3", 3)):
        assert (drawn(variants[name]).y ** 2).mean() == pytest.approx(4 * factor**2, rel=0.1)
    with pytest.raises(errors.OptionError):
        tasks.shifted(tasks.linear_dynamics(2))


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_least_squares_has_its_closed_form_error(noise: float) -> None:
    d, k = 8, np.arange(20)
    # answers are without noise, of the same functions and inputs
    noisy, clean = drawn(tasks.linear(d, noise=noise), 20, 1500), drawn(tasks.linear(d), 20, 1500)
    np.testing.assert_array_equal(noisy.x, clean.x)
    np.testing.assert_array_equal(noisy.answers, clean.y)
    errors_found = (baselines.least_squares(noisy) - clean.y) ** 2 / d
    law = baselines.least_squares_error(d, k, noise=noise)
    fair = np.abs(k - d) > 4 if noise else k < 20
    gap = np.abs(errors_found.mean(axis=0) - law) / (errors_found.std(axis=0) / np.sqrt(1500) + 1e-12)
    assert gap[fair].max() < 5
    assert np.isinf(law[d]) == (noise > 0)
    # before the first example nothing is infinite, also next to k = d
    assert baselines.least_squares_error(1, [0], noise=noise) == [1.0]
    # the curve of the library is that of these errors: the noise of the question does not count
    curve = mf.incontext.error_curve(baselines.least_squares, tasks.linear(d, noise=noise), KEY, points=4, prompts=1500)
    assert (np.abs(curve.error - law[:4]) < 3 * (curve.high - curve.low)).all()
    if noise:
        # ridge with penalty σ² is the Bayes predictor: no worse anywhere
        bayes = (baselines.ridge(1.0)(noisy) - clean.y) ** 2 / d
        assert (bayes.mean(axis=0) <= errors_found.mean(axis=0) + 0.02).all()
    else:
        averaged = (baselines.averaging(clean) - clean.y) ** 2 / d
        expected = baselines.averaging_error(d, k)
        gap = np.abs(averaged.mean(axis=0) - expected)[1:] / (averaged.std(axis=0)[1:] / np.sqrt(1500))
        assert gap.max() < 5


@pytest.mark.parametrize("k", [4, 7])
def test_least_squares_error_is_a_quadrature_for_one_input_or_one_example(k: int) -> None:
    from scipy.stats import chi2

    # the noise that is fitted has the variance σ²/|x|², where |x|² is χ² with k degrees of freedom
    fitted = 0.25 * chi2(k).expect(lambda square: 1 / square)
    assert baselines.least_squares_error(1, [k], noise=0.5)[0] == pytest.approx(fitted, rel=1e-6)
    assert baselines.least_squares_error(k, [1], noise=0.5)[0] == pytest.approx(1 - 1 / k + fitted / k, rel=1e-6)


def test_baselines_against_other_computations() -> None:
    prompts = drawn(tasks.linear(3, noise=0.5), 6, 4)
    x, y, q = prompts.x[0, :5], prompts.y[0, :5], prompts.queries[0, 5]
    distances = np.linalg.norm(x - q, axis=1)
    assert baselines.nearest(3)(prompts)[0, 5] == pytest.approx(y[np.argsort(distances)[:3]].mean())
    by_hand = np.linalg.solve(x.T @ x + 0.7 * np.eye(3), x.T @ y) @ q
    assert baselines.ridge(0.7)(prompts)[0, 5] == pytest.approx(by_hand)
    # the Lasso's optimality: correlations with the residual are at most α, and ±α where the weight is not 0
    alpha = 0.3
    basis = [
        baselines.lasso(alpha)(Prompts(prompts.x, prompts.y, np.broadcast_to(e, prompts.x.shape), prompts.answers))[
            0, 5
        ]
        for e in np.eye(3)
    ]
    w = np.array(basis)
    slope = x.T @ (y - x @ w) / len(x)
    assert (np.abs(slope) <= alpha + 1e-3).all()
    np.testing.assert_allclose(slope[w != 0], alpha * np.sign(w[w != 0]), atol=2e-3)
    # a tree of unbounded depth repeats its examples, and so does much boosting
    asked = Prompts(prompts.x, prompts.y, np.broadcast_to(prompts.x[:, :1], prompts.x.shape), prompts.answers)
    np.testing.assert_allclose(baselines.greedy_tree()(asked)[:, 1:], np.broadcast_to(prompts.y[:, :1], (4, 5)))
    np.testing.assert_allclose(baselines.boosting(60, rate=0.3)(asked)[:, 5], prompts.y[:, 0], atol=0.05)
    # a network that is trained long fits its example
    one = Prompts(*(entry[:, :2] for entry in asked))
    fitted = baselines.network(KEY, width=16, rate=0.02, steps=300)(one)
    np.testing.assert_allclose(fitted[:, 1], prompts.y[:, 0], atol=0.05)


def test_bad_settings_of_baselines_are_refused() -> None:
    for call in (lambda: baselines.ridge(0.0), lambda: baselines.nearest(0), lambda: tasks.sparse(3, nonzero=4)):
        with pytest.raises(errors.OptionError):
            call()


def test_the_error_of_a_baseline_and_its_interval() -> None:
    curve = mf.incontext.error_curve(baselines.zero, tasks.linear(3), KEY, points=3, prompts=800)
    assert (curve.low < curve.error).all()
    assert (curve.error < curve.high).all()
    # 90 % of intervals hold the truth; that three of three miss it by much would be a wrong width
    assert (np.abs(curve.error - 1) < 3 * (curve.high - curve.low)).all()
    estimate = mf.incontext.epsilon(baselines.zero, tasks.linear(3), KEY, examples=2, prompts=800)
    assert (estimate.value, estimate.low) == (curve.error[-1], curve.low[-1])
    wide = mf.incontext.epsilon(baselines.zero, tasks.linear(3), KEY, examples=2, prompts=800, confidence=0.99)
    assert wide.low < estimate.low
    with pytest.raises(errors.DimensionMismatchError):
        mf.incontext.error_curve(lambda prompts: prompts.y[:, :1], tasks.linear(3), KEY)
    with pytest.raises(errors.OptionError):
        mf.incontext.epsilon(baselines.zero, tasks.linear(3), KEY, confidence=1.0)
    with pytest.raises(errors.DtypeError):
        mf.incontext.error_curve(baselines.zero, "linear", KEY)
