"""Problems: loss and gradient against formulas and differences, also where attention is saturated; laws; refusals."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

import measureformer as mf
from measureformer import errors
from measureformer.implicit_bias import Problem, random_problems

KEY = jax.random.key(0)


def arrays(seed: int = 0, n: int = 3, T: int = 4, d: int = 5, q: int = 2) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    shapes = ((n, T, d), (n, q), (d,), (d, q))
    X, z, v, W = (rng.normal(size=shape) for shape in shapes)
    return X, z, rng.choice([-1.0, 1.0], n), v, W


def heads(seed: int = 0, d: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "linear": rng.normal(size=d),
        "perceptron": mf.MLP(
            rng.normal(size=(7, d)), rng.normal(size=7), rng.normal(size=(1, 7)), None, activation="tanh"
        ),
        "classes": rng.normal(size=(3, d)),
    }


# --- oracles ---------------------------------------------------------------------------------------------------------


def test_loss_and_attention_are_the_formulas() -> None:
    X, z, y, v, W = arrays()
    problem = Problem(X, z, y, v)
    s = softmax(np.einsum("ntd,dq,nq->nt", X, W, z), axis=1)
    np.testing.assert_allclose(problem.attention(W), s, rtol=1e-13)
    margins = y * np.einsum("nt,ntd,d->n", s, X, v)
    assert problem.loss(W) == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-13)
    assert Problem(X, z, y, v, loss="exponential").loss(W) == pytest.approx(np.exp(-margins).mean(), rel=1e-13)
    assert Problem(X, z, y, v, loss="linear").loss(W) == pytest.approx(-margins.mean(), rel=1e-13)
    assert Problem(X, z, y, v, loss=lambda m: 1 / (1 + jax.numpy.exp(m))).loss(W) == pytest.approx(
        (1 / (1 + np.exp(margins))).mean(), rel=1e-13
    )
    np.testing.assert_allclose(problem.scores(), y[:, None] * (X @ v), rtol=1e-13)


def test_the_logistic_loss_of_classes_is_the_cross_entropy() -> None:
    X, z, _, _, W = arrays()
    C, labels = heads()["classes"], np.array([2, 0, 1])
    s = softmax(np.einsum("ntd,dq,nq->nt", X, W, z), axis=1)
    outputs = np.einsum("nt,ntd,cd->nc", s, X, C)
    wanted = -log_softmax(outputs, axis=1)[np.arange(3), labels].mean()
    assert Problem(X, z, labels, C).loss(W) == pytest.approx(wanted, rel=1e-13)
    assert Problem(X, z, labels, mf.Linear(C)).loss(W) == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("name", ["linear", "perceptron", "classes"])
def test_gradient_against_differences(name: str) -> None:
    X, z, y, _, W = arrays()
    problem = Problem(X, z, np.array([0, 2, 1]) if name == "classes" else y, heads()[name])
    h, numeric = 1e-5, np.zeros_like(W)
    for index in np.ndindex(W.shape):
        E = np.zeros_like(W)
        E[index] = h
        numeric[index] = (problem.loss(W + E) - problem.loss(W - E)) / (2 * h)
    np.testing.assert_allclose(problem.gradient(W), numeric, atol=1e-9)


def test_the_loss_can_be_differentiated_and_batched() -> None:
    X, z, y, v, W = arrays()
    problem = Problem(X, z, y, v)
    np.testing.assert_allclose(jax.grad(problem.loss)(W), problem.gradient(W), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(problem.loss)(np.stack([W, 0 * W])), [problem.loss(W), problem.loss(0 * W)])


def test_gradient_is_the_printed_formula() -> None:
    X, z, y, v, W = arrays()
    s = softmax(np.einsum("ntd,dq,nq->nt", X, W, z), axis=1)
    slopes = -1 / (1 + np.exp(y * np.einsum("nt,ntd,d->n", s, X, v)))
    wanted = sum(
        slopes[i] * y[i] * np.outer(X[i].T @ (np.diag(s[i]) - np.outer(s[i], s[i])) @ X[i] @ v, z[i]) for i in range(3)
    )
    np.testing.assert_allclose(Problem(X, z, y, v).gradient(W), wanted / 3, rtol=1e-11)


@pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
def test_the_gradient_keeps_its_direction_where_attention_is_saturated(size: float) -> None:
    # pairs (t, τ) have no cancellation: Σ s_t s_τ (γ_t − γ_τ)(x_t − x_τ)zᵀ. The plain softmax gives noise beyond 1e-14
    problem = random_problems("random", KEY)
    X, z, y = (np.asarray(a) for a in (problem.X, problem.z, problem.y))
    W = size * problem.svm().W
    values = np.einsum("ntd,dq,nq->nt", X, W, z)
    s = softmax(values, axis=1)
    gamma = np.asarray(problem.scores())
    slopes = -1 / (1 + np.exp((s * gamma).sum(axis=1)))
    pairs = np.einsum("nt,nu,ntu,ntud->nd", s, s, gamma[:, :, None] - gamma[:, None], X[:, :, None] - X[:, None]) / 2
    wanted = np.einsum("n,nd,nq->dq", slopes, pairs, z) / len(y)
    found = np.asarray(problem.gradient(W))
    assert np.linalg.norm(found - wanted) <= 1e-10 * np.linalg.norm(wanted)
    assert np.linalg.norm(wanted) < 1e-100 or size < 300


def test_smoothness_bounds_the_second_derivative_and_descent_at_its_inverse_never_rises() -> None:
    for seed in range(3):
        problem = random_problems("random", jax.random.key(seed), n=2, T=3, d=3)
        bound = problem.smoothness()
        rng = np.random.default_rng(seed)
        A, B = rng.normal(size=(2, 3, 3))
        rise = np.linalg.norm(np.asarray(problem.gradient(A)) - np.asarray(problem.gradient(B)))
        assert rise <= bound * np.linalg.norm(A - B)
        run = problem.descend(mf.implicit_bias.Descent("gd", rate=1 / bound), 50, start=A)
        assert (np.diff(run.loss) <= 0).all()


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_hidden_tokens_and_the_order_of_tokens_do_not_matter(seed: int) -> None:
    X, z, y, v, W = arrays(seed)
    order = np.random.default_rng(seed).permutation(4)
    base = Problem(X[:, :3], z, y, v)
    hidden = Problem(X[:, order], z, y, v, visible=np.broadcast_to(order < 3, (3, 4)))
    assert hidden.loss(W) == pytest.approx(base.loss(W), rel=1e-12)
    np.testing.assert_allclose(hidden.gradient(W), base.gradient(W), atol=1e-13)
    assert (order[hidden.optimal()] == base.optimal()).all()
    np.testing.assert_allclose(hidden.svm().norm, base.svm().norm, rtol=1e-9)


def test_causal_reading_is_the_prefix_with_its_last_token_as_query() -> None:
    X, _, y, v, _ = arrays()
    W = np.random.default_rng(1).normal(size=(5, 5))
    whole = Problem.causal(X, y, v, lengths=[2, 2, 2])
    short = Problem(X[:, :2], X[:, 1], y, v)
    assert whole.loss(W) == pytest.approx(short.loss(W), rel=1e-13)
    assert Problem.causal(X, y, v).loss(W) == pytest.approx(Problem(X, X[:, -1], y, v).loss(W), rel=1e-13)


def test_prompt_tuning_trains_a_vector() -> None:
    X, _, y, v, _ = arrays()
    K, p = np.random.default_rng(1).normal(size=(2, 5)), np.array([0.3, -1.0])
    problem = Problem.prompt(X, y, v, K)
    s = softmax(X @ K.T @ p, axis=1)
    np.testing.assert_allclose(problem.attention(p[:, None]), s, rtol=1e-13)


def test_optimal_tokens_locally_optimal_ones_and_ties() -> None:
    X = np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])
    problem = Problem(X, [[1.0]], [1], [1.0, 0.5])
    assert problem.optimal().tolist() == [0]
    assert problem.is_locally_optimal([0])
    # the third token is separated from both others, which have larger scores and tight margins
    assert not problem.is_locally_optimal([2])
    tied = Problem(X, [[1.0]], [1], [1.0, 1.0])
    assert tied.best_sets().tolist() == [[True, True, False]]
    with pytest.raises(errors.TieError, match="example 0"):
        tied.optimal()
    assert tied.svm(tied.best_sets()).feasible


@pytest.mark.parametrize("name", ["random", "picture", "prompt", "several", "orthonormal"])
def test_generators_are_what_they_say(name: Any) -> None:
    problem = random_problems(name, KEY)
    again, other = random_problems(name, KEY), random_problems(name, jax.random.key(1))
    assert np.array_equal(problem.X, again.X)
    assert not np.array_equal(problem.X, other.X)
    X = np.asarray(problem.X)
    if name in ("random", "several"):
        np.testing.assert_allclose(np.linalg.norm(X, axis=2), 1, rtol=1e-14)
    if name == "prompt":
        assert sorted(np.unique(problem.scores())) == [0.5, 1.0]
        assert problem.shape == (2, 1)
    if name == "several":
        assert (np.asarray(problem.y) < 0).any()
    if name == "orthonormal":
        flat = X.reshape(-1, X.shape[2])
        np.testing.assert_allclose(flat @ flat.T, np.eye(len(flat)), atol=1e-14)
        np.testing.assert_allclose(problem.scores(), np.eye(4)[[0] * 4], atol=1e-14)
        assert problem.infimum() == pytest.approx(np.log1p(np.exp(-1)), rel=1e-14)
    assert len(random_problems(name, KEY, count=3)) == 3


# --- refusals --------------------------------------------------------------------------------------------------------

X, Z, Y, V, W = arrays()
BAD: list[tuple[type[Exception], str, Any]] = [
    (errors.OptionError, "label 0 of example 1", lambda: Problem(X, Z, [1, 0, -1], V)),
    (errors.OptionError, "label 3 of example 2", lambda: Problem(X, Z, [1, 0, 3], heads()["classes"])),
    (errors.ShapeError, "one n", lambda: Problem(X, Z[:2], Y, V)),
    (errors.ShapeError, "3 axes", lambda: Problem(X[0], Z, Y, V)),
    (errors.ShapeError, "nothing empty", lambda: Problem(X[:, :0], Z, Y, V)),
    (errors.DimensionMismatchError, "a head on R", lambda: Problem(X, Z, Y, V[:2])),
    (errors.DtypeError, "a head of type Attention", lambda: Problem(X, Z, Y, mf.Attention.head([[1]], [[1]], [[1]]))),
    (errors.NotFiniteError, "z with 1", lambda: Problem(X, np.where(Z[0, 0] == Z, np.nan, Z), Y, V)),
    (errors.OptionError, "loss = 'hinge'", lambda: Problem(X, Z, Y, V, loss="hinge")),  # type: ignore[arg-type]
    (errors.ShapeError, "a visible token", lambda: Problem(X, Z, Y, V, visible=np.zeros((3, 4), bool))),
    (errors.ShapeError, "a key for each token", lambda: Problem(X, Z, Y, V, keys=X[:, :2])),
    (errors.OptionError, "lengths", lambda: Problem.causal(X, Y, V, lengths=[0, 1, 2])),
    (errors.DimensionMismatchError, "W of shape", lambda: Problem.prompt(X, Y, V, np.ones((2, 4)))),
    (errors.ShapeError, "W of shape", lambda: Problem(X, Z, Y, V).loss(W.T)),
    (errors.OptionError, "tokens", lambda: Problem(X, Z, Y, V).svm([0, 1])),
    (errors.OptionError, "whole numbers from 0 to 3", lambda: Problem(X, Z, Y, V).svm([0, 1, 4])),
    (errors.OptionError, "at least one visible", lambda: Problem(X, Z, Y, V).svm([[0], [], [1]])),
    (errors.OptionError, "norm = 'spectral'", lambda: Problem(X, Z, Y, V).svm(norm="spectral")),  # type: ignore[arg-type]
    (errors.OptionError, "a linear head", lambda: Problem(X, Z, Y, heads()["perceptron"]).infimum()),
    (errors.OptionError, "name = 'G6'", lambda: random_problems("G6", KEY)),  # type: ignore[arg-type]
    (errors.OptionError, "d ≥ nT", lambda: random_problems("orthonormal", KEY, d=10)),
    (errors.OptionError, "d = 3 for 'picture'", lambda: random_problems("picture", KEY, d=3)),
    (errors.DtypeError, "one JAX random key", lambda: random_problems("random", 0)),
]


@pytest.mark.parametrize(("kind", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_refusals(kind: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(kind, match=words):
        call()
