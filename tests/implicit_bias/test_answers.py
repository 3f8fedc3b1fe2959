"""Paths, decompositions, sparsity, and the margins of layers: oracles, laws, refusals."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import measureformer as mf
from measureformer import errors
from measureformer.implicit_bias import Descent, Problem, decompose, margins_of, misalignment, random_problems
from measureformer.implicit_bias.descent import Run
from measureformer.implicit_bias.sparsity import attention_sparsity, matrix_sizes

KEY = jax.random.key(0)

# --- paths -----------------------------------------------------------------------------------------------------------


def test_the_path_of_the_picture_goes_to_the_svm() -> None:
    problem = random_problems("picture", jax.random.key(1))
    path = problem.path([5.0, 10.0, 20.0, 40.0])
    away = [misalignment(W, problem.svm().W) for W in path.W]
    assert (np.diff(away) < 0).all()
    assert away[-1] < 0.01
    np.testing.assert_allclose(np.linalg.norm(path.W, axis=(1, 2)), path.radii, rtol=1e-12)
    assert (path.residual < 1e-8).all()
    assert (np.diff(path.loss) < 0).all()


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_nothing_in_the_ball_is_lower_nearby(norm: Any) -> None:
    problem = random_problems("random", jax.random.key(2), n=2, T=3, d=3)
    path = problem.path([3.0], norm)
    W, rng = path.W[0], np.random.default_rng(0)
    order: Any = {"frobenius": "fro", "nuclear": "nuc"}[norm]
    assert np.linalg.norm(W, order) <= 3 * (1 + 1e-12)
    assert np.linalg.norm(W, order) == pytest.approx(3, rel=1e-3)
    for _ in range(100):
        other = W + rng.normal(size=W.shape) * 10 ** rng.uniform(-3, 0)
        assert problem.loss(3 * other / np.linalg.norm(other, order)) >= path.loss[0] - 1e-9


def test_against_a_constrained_solver() -> None:
    problem = random_problems("picture", jax.random.key(1))
    rules = {"type": "ineq", "fun": lambda w: 4.0 - w @ w}
    found = minimize(
        lambda w: problem.loss(w.reshape(2, 2)),
        np.zeros(4),
        jac=lambda w: np.asarray(problem.gradient(w.reshape(2, 2))).ravel(),
        constraints=rules,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert problem.path([2.0]).loss[0] == pytest.approx(found.fun, rel=1e-7)


def test_a_minimum_inside_the_ball_is_found() -> None:
    # margin −x² of ±1 and 3: the mixture at 0 has loss log 2, reached at finite W
    square = mf.MLP([[1.0]], None, [[1.0]], None, activation=lambda x: x**2)
    problem = Problem(np.array([[[1.0], [-2.0]]]), [[1.0]], [-1], square)
    path = problem.path([0.1, 5.0])
    assert path.inside.tolist() == [False, True]
    # s·1 − (1 − s)·2 = 0 at s = 2/3: logits 3W apart, log 2
    assert path.W[1, 0, 0] == pytest.approx(np.log(2) / 3, rel=1e-4)
    assert path.loss[1] == pytest.approx(np.log(2), rel=1e-8)


# --- decompositions --------------------------------------------------------------------------------------------------


def test_the_parts_of_a_matrix_that_was_made_of_them_are_found() -> None:
    problem = random_problems("several", KEY, d=8)
    kept = problem.chosen([[0, 2], [1], [3]])
    W_mm = problem.svm(kept).W
    # inside the first set token 2 gets three times the probability of token 0
    d = np.asarray(problem.keys[0, 2] - problem.keys[0, 0])
    row = np.outer(d, problem.z[0])
    W_fin = np.log(3) * row / np.sum(row**2)
    counts = np.array([10.0, 60.0])
    run = Run(problem, Descent(), np.array([1, 2]), W_fin + counts[:, None, None] * W_mm, None, "steps")
    # W_fin tells tokens outside apart too, by less than a margin of 60
    parts = decompose(run)
    assert (parts.kept == kept).all()
    assert parts.decided
    assert parts.grows
    assert parts.mixes
    np.testing.assert_allclose(parts.finite, W_fin, atol=1e-9)
    np.testing.assert_allclose(parts.growth, counts, rtol=1e-9)
    np.testing.assert_allclose(parts.both, 0, atol=1e-14)
    assert (parts.margin_only > 1e-7).all()
    assert parts.single[-1] > 1e-3


def test_undecided_tokens_are_reported_and_follow_their_trend() -> None:
    X = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    problem = Problem(X, [[1.0]], [1], [1.0, 0.0])
    size = np.log(1e4) / 2  # logits 2·size apart: probability 1e-4
    W = np.array([[1.0], [-1.0]])
    falling = Run(problem, Descent(), np.array([1, 10]), np.stack([0.5 * size * W, size * W]), None, "steps")
    rising = Run(problem, Descent(), np.array([1, 10]), np.stack([1.5 * size * W, size * W]), None, "steps")
    for run, kept in ((falling, 1), (rising, 2)):
        parts = decompose(run)
        assert not parts.decided
        assert parts.undecided.tolist() == [[False, True]]
        assert parts.kept.sum() == kept
    assert decompose(falling, kept=1e-5).decided
    # all kept: nothing grows, and there is no W_mm to compare with
    assert not decompose(rising).grows
    assert decompose(rising).margin_only.tolist() == [1.0, 1.0]
    assert decompose(rising).both[-1] < 1e-12


def test_the_finite_part_is_judged_on_steps_that_it_has_not_seen() -> None:
    # kills: W_fin from the end of the run, which would be better than W_mm alone even where the mixture still changes
    X = np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]])
    problem = Problem(X, [[1.0]], [1], [1.0, 0.0])
    finite, growing = np.array([[0.5], [0.0]]), np.array([[0.0], [40.0]])
    run = Run(problem, Descent(), np.array([1, 2]), np.stack([finite + growing, growing - finite]), None, "steps")
    parts = decompose(run)
    assert parts.kept.tolist() == [[True, True, False]]
    np.testing.assert_allclose(parts.finite, finite, atol=1e-9)
    assert parts.both[-1] > parts.margin_only[-1] > 0


# --- sparsity --------------------------------------------------------------------------------------------------------


def test_extremes_of_sparsity() -> None:
    T = 20
    found = attention_sparsity(np.stack([np.full(T, 1 / T), np.eye(T)[3]]))
    for name in ("effective", "participation"):
        np.testing.assert_allclose(getattr(found, name), [T, 1], rtol=1e-12)
    assert found.k90.tolist() == [18, 1]
    np.testing.assert_allclose(found.gini, [0, 1 - 1 / T], atol=1e-12)
    np.testing.assert_allclose(found.entropy, [np.log(T), 0], atol=1e-12)
    assert found.largest.tolist() == [1 / T, 1.0]
    assert found.negligible.tolist() == [0.0, 0.95]


def test_sparsity_by_hand_and_hidden_tokens() -> None:
    s = np.array([0.5, 0.3, 0.15, 0.05])
    found = attention_sparsity(s)
    assert found.k90 == 3
    assert found.participation == pytest.approx(1 / (0.25 + 0.09 + 0.0225 + 0.0025))
    # mean absolute difference over twice the mean
    assert found.gini == pytest.approx(np.abs(s[:, None] - s).sum() / (2 * 4 * s.sum()))
    hidden = attention_sparsity([*s, 0.0, 0.0], [True] * 4 + [False] * 2)
    for name in ("visible", "entropy", "effective", "participation", "k90", "largest", "gini", "negligible"):
        assert getattr(hidden, name) == pytest.approx(float(getattr(found, name)))
    assert attention_sparsity([*s, 0.0, 0.0]).gini > found.gini


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_all_measures_are_monotone_in_the_temperature(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=9)
    beta = np.array([0.0, 0.3, 1.0, 3.0, 10.0])
    weights = np.exp(beta[:, None] * (logits - logits.max()))
    found = attention_sparsity(weights / weights.sum(axis=1, keepdims=True))
    for name in ("entropy", "effective", "participation", "k90"):
        assert (np.diff(getattr(found, name)) <= 1e-12).all()
    for name in ("largest", "gini"):
        assert (np.diff(getattr(found, name)) >= -1e-12).all()


def test_sizes_of_matrices() -> None:
    U = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    found = matrix_sizes(np.stack([U @ np.diag([3.0, 4.0, 0.0, 0.0]) @ U.T, np.zeros((4, 4))]))
    np.testing.assert_allclose(found.frobenius, [5, 0], atol=1e-12)
    np.testing.assert_allclose(found.spectral, [4, 0], atol=1e-12)
    np.testing.assert_allclose(found.nuclear, [7, 0], atol=1e-12)
    np.testing.assert_allclose(found.stable_rank, [25 / 16, 0], atol=1e-12)


# --- margins of layers -----------------------------------------------------------------------------------------------


def test_a_head_made_of_an_svm_is_the_svm() -> None:
    problem = random_problems("random", KEY)
    best = problem.svm()
    # logits ⟨Qz, Kx⟩ with Q = W and K = I; the second head has W transposed, and does not
    Q = np.stack([best.W, best.W.T])
    eye = np.stack([np.eye(10)] * 2)
    G = mf.Attention(2 * Q, eye, eye, eye, scale=3.0)
    first, second = margins_of(G, problem)
    assert (first.selected == problem.optimal()).all()
    assert first.misalignment < 1e-14
    assert first.share == pytest.approx(1, rel=1e-9)
    assert first.margins[~first.svm.chosen].min() == pytest.approx(6, rel=1e-9)
    assert first.margin == pytest.approx(1 / best.norm, rel=1e-9)
    assert second.misalignment > 0.01
    assert 0 <= second.share < 1
    for wrapped in (mf.Residual(G), mf.Causal(mf.Residual(G))):
        assert margins_of(wrapped, (problem.X, problem.z))[0].margin == first.margin


def test_attention_is_that_of_the_layer() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 5, 3))
    G = mf.Attention.random(KEY, 3, heads=2)
    for i in range(2):
        for head, V, W in zip(margins_of(G, X), G.V, G.W, strict=True):
            # one head of the layer, at the last token
            h = int(np.flatnonzero([np.array_equal(V, other) for other in G.V])[0])
            alone = mf.Attention(G.Q[h : h + 1], G.K[h : h + 1], V[None], W[None])
            wanted = alone(mf.Discrete.uniform(X[i]), X[i, -1])
            np.testing.assert_allclose(head.attention[i] @ X[i] @ np.asarray(V).T @ np.asarray(W).T, wanted, rtol=1e-10)


def test_tokens_that_nobody_can_select_are_reported() -> None:
    # the token in the middle is selected only at a tie
    (head,) = margins_of(mf.Attention.head([[0.0]], [[1.0]], [[1.0]]), (np.array([[[0.0], [1.0], [-1.0]]]), [[1.0]]))
    assert not head.svm.feasible
    assert (head.margin, head.misalignment) == (0.0, 1.0)


BAD: list[tuple[type[Exception], str, Any]] = [
    (errors.OptionError, "positive numbers that grow", lambda: random_problems("picture", KEY).path([2.0, 1.0])),
    (errors.OptionError, "positive numbers that grow", lambda: random_problems("picture", KEY).path([])),
    (errors.OptionError, "norm = 'max'", lambda: random_problems("picture", KEY).path([1.0], "max")),  # type: ignore[arg-type]
    (
        errors.OptionError,
        "kept = 2",
        lambda: decompose(random_problems("picture", KEY).descend("gd", 1, KEY), kept=2.0),
    ),
    (errors.OptionError, "probabilities", lambda: attention_sparsity([0.5, 0.6])),
    (errors.OptionError, "probabilities", lambda: attention_sparsity([1.5, -0.5])),
    (errors.NotFiniteError, "s with 1", lambda: attention_sparsity([np.nan, 1.0])),
    (errors.ShapeError, "W of shape", lambda: matrix_sizes([1.0])),
    (errors.ShapeError, "3 axes", lambda: margins_of(mf.Attention.random(KEY, 2), np.ones((2, 2)))),
    (errors.DtypeError, "a model of type MLP", lambda: margins_of(mf.MLP.random(KEY, 2), np.ones((1, 2, 2)))),
    (
        errors.DimensionMismatchError,
        "heads on R",
        lambda: margins_of(mf.Attention.random(KEY, 3), np.ones((1, 2, 2))),
    ),
]


@pytest.mark.parametrize(("kind", "words", "call"), BAD, ids=[f"{i} {words}" for i, (_, words, _) in enumerate(BAD)])
def test_refusals(kind: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(kind, match=words):
        call()
