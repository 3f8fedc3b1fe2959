"""Support vector machines of tokens: against a solver for quadratic programs, duality, Farkas, laws."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer import errors
from measureformer.implicit_bias import Problem, misalignment, random_problems
from measureformer.implicit_bias import svm as _svm
from measureformer.implicit_bias.svm import SVM

DUAL: dict[str, Any] = {"frobenius": "fro", "nuclear": 2}
OWN: dict[str, Any] = {"frobenius": "fro", "nuclear": "nuc"}


def adjoint(problem: Problem, found: SVM) -> np.ndarray:
    """Σ λ_it (k_ia − k_it) z_iᵀ, written out."""
    keys, z = np.asarray(problem.keys), np.asarray(problem.z)
    total = np.zeros(problem.shape)
    for i, t in np.ndindex(found.chosen.shape):
        total += found.multipliers[i, t] * np.outer(keys[i, found.chosen[i].argmax()] - keys[i, t], z[i])
    return total


def proved(problem: Problem, found: SVM, *, gap: float) -> None:
    """W is feasible, and the multipliers alone show that no other matrix is much smaller."""
    outside = np.asarray(problem.visible) & ~found.chosen
    assert (problem.margins(found.W, found.chosen)[outside] >= 1 - 1e-9).all()
    assert (found.multipliers[outside] >= 0).all()
    lower = found.multipliers[outside].sum() / np.linalg.norm(adjoint(problem, found), DUAL[found.kind])
    assert lower >= np.linalg.norm(found.W, OWN[found.kind]) * (1 - gap)
    assert found.gap <= gap * found.norm
    assert found.kkt is not None
    assert max(found.kkt) <= 10 * np.sqrt(gap)


def by_a_solver(problem: Problem, chosen: np.ndarray, norm: str) -> float:
    import cvxpy as cp

    W = cp.Variable(problem.shape)
    keys, z = np.asarray(problem.keys), np.asarray(problem.z)
    rules = []
    for i, a in zip(*np.nonzero(chosen), strict=True):
        for t in range(keys.shape[1]):
            lead = (keys[i, a] - keys[i, t]) @ W @ z[i]
            if t != a:
                rules.append(lead == 0 if chosen[i, t] else lead >= 1)
    program = cp.Problem(cp.Minimize(cp.norm(W, OWN[norm])), rules)
    program.solve(solver=cp.CLARABEL)
    return float(program.value)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("sets", [False, True])
def test_against_a_solver_for_convex_programs(norm: Any, sets: bool) -> None:
    problem = random_problems("random", jax.random.key(3), n=3, T=4, d=5)
    chosen = problem.chosen([[0, 2], [1], [3, 1]] if sets else None)
    found = problem.svm(chosen, norm)
    assert found.norm == pytest.approx(by_a_solver(problem, chosen, norm), rel=1e-6)
    proved(problem, found, gap=1e-12 if norm == "frobenius" else 1e-7)
    values = np.einsum("ntk,kq,nq->nt", problem.keys, found.W, problem.z)
    for row, mask in zip(values, chosen, strict=True):
        assert np.ptp(row[mask]) < 1e-9


def test_closed_forms() -> None:
    # one pair of tokens: both norms are least at (x_a − x_t)zᵀ over its squared norm
    X = np.array([[[3.0, 0.0, 1.0], [0.0, 4.0, 1.0]]])
    problem = Problem(X, [[2.0, 0.0]], [1], [1.0, 0.0, 0.0])
    for norm in ("frobenius", "nuclear"):
        found = problem.svm(norm=norm)
        np.testing.assert_allclose(found.W, np.outer([3.0, -4.0, 0.0], [2.0, 0.0]) / 100, atol=1e-8)
    # orthonormal tokens and queries: examples do not interact, each has the norm √(1 − 1/T)
    problem = random_problems("orthonormal", jax.random.key(0))
    assert problem.svm().norm == pytest.approx(np.sqrt(4 * 3 / 4), rel=1e-12)
    assert problem.svm(norm="nuclear").norm == pytest.approx(4 * np.sqrt(3 / 4), rel=1e-7)
    assert problem.svm().rank() == 4


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_least_distance_is_proved_least(seed: int) -> None:
    problem = random_problems("random", jax.random.key(seed), n=4, T=5, d=6)
    tokens = np.random.default_rng(seed).integers(5, size=4)
    found = problem.svm(tokens)
    proved(problem, found, gap=1e-10)
    assert found.support.any()
    assert found.rank() <= 4
    # laws: queries twice as long need half of W; without a token nothing gets harder
    double = Problem(problem.X, 2 * np.asarray(problem.z), problem.y, problem.head)
    assert double.svm(tokens).norm == pytest.approx(found.norm / 2, rel=1e-9)
    hide = np.ones((4, 5), bool)
    hide[0, (tokens[0] + 1) % 5] = False
    fewer = Problem(problem.X, problem.z, problem.y, problem.head, visible=hide)
    assert fewer.svm(tokens).norm <= found.norm * (1 + 1e-9)


def test_optimality_conditions_measure_what_is_violated() -> None:
    # at the optimum all margins with a multiplier are 1, so those of c·W are c, and c − 1 is what they miss
    problem = random_problems("random", jax.random.key(2), n=3, T=4, d=5)
    found, chosen = problem.svm(), problem.chosen()
    parts = _svm.constraints(problem, chosen)
    w, multipliers = (parts.left.T @ found.W @ parts.right).reshape(-1), found.multipliers[parts.places]
    for factor in (0.5, 2.0):
        kkt = _svm._solved(problem, chosen, "frobenius", parts, factor * w, multipliers).kkt
        assert kkt is not None
        assert kkt.primal == pytest.approx(max(1 - factor, 0), abs=1e-9)
        assert kkt.complementarity == pytest.approx(abs(factor - 1), rel=1e-9)
        assert kkt.stationarity < 1e-9


def test_many_dimensions_are_those_that_are_spanned() -> None:
    small = random_problems("random", jax.random.key(0))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 10)))[0]
    large = Problem(
        np.asarray(small.X) @ turn.T, np.asarray(small.z) @ turn.T, small.y, turn @ np.asarray(small.head.matrix[0])
    )
    for norm in ("frobenius", "nuclear"):
        a, b = small.svm(norm=norm), large.svm(norm=norm)
        assert misalignment(turn @ a.W @ turn.T, b.W) < 1e-8
    proved(large, large.svm(), gap=1e-12)


# --- what cannot be separated ----------------------------------------------------------------------------------------


def farkas(problem: Problem, found: SVM) -> None:
    outside = ~found.chosen & np.asarray(problem.visible)
    assert not found.feasible
    assert found.certificate is not None
    assert (found.certificate[outside] >= 0).all()
    assert found.certificate[outside].sum() == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(adjoint(problem, found)) < 1e-12
    assert found.lower > 1e12
    assert found.gap == np.inf
    for name in ("W", "margins", "norm", "direction"):
        with pytest.raises(errors.InfeasibleError, match="no W of norm below"):
            getattr(found, name)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_a_token_between_others_has_a_certificate(norm: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 4, 3))
    X[1, 2] = [0.2, 0.3, 0.5] @ X[1, [0, 1, 3]]
    problem = Problem(X, rng.normal(size=(2, 3)), [1, 1], rng.normal(size=3))
    found = problem.svm([0, 2], norm)
    farkas(problem, found)
    # the weights of the convex combination are the certificate
    np.testing.assert_allclose(found.multipliers[1], [0.2, 0.3, 0.0, 0.5], atol=1e-12)


def test_sets_that_cannot_be_kept_together_have_a_certificate() -> None:
    # 1 and −1 are to have equal logits and lead 0, on a line
    X = np.array([[[1.0], [-1.0], [0.0]]])
    problem = Problem(X, [[1.0]], [1], [1.0])
    farkas(problem, problem.svm([[0, 1]]))
    assert problem.svm([[0, 1, 2]]).norm == 0


def test_identical_tokens_and_a_single_token() -> None:
    X = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    problem = Problem(X, [[1.0]], [1], [1.0, 0.0])
    farkas(problem, problem.svm([0]))
    assert problem.svm([[0, 1]]).norm == pytest.approx(np.sqrt(0.5), rel=1e-12)
    alone = Problem(X[:, :1], [[1.0]], [1], [1.0, 0.0])
    for norm in ("frobenius", "nuclear"):
        found = alone.svm(norm=norm)
        assert found.feasible
        assert (found.norm, found.gap, found.rank(), found.direction.any()) == (0.0, 0.0, 0, False)


def test_misalignment_keeps_its_digits() -> None:
    A = np.eye(3)
    B = A.copy()
    B[0, 1] = 1e-7
    assert misalignment(A, 5 * B) == pytest.approx(1e-14 / 6, rel=1e-6)
    assert misalignment(A, -A) == pytest.approx(2)


def test_nothing_is_solved_or_imported_before_it_is_needed() -> None:
    import subprocess
    import sys

    program = (
        "import sys, measureformer as mf; mf.implicit_bias.Problem; "
        "assert not {'cvxpy', 'clarabel', 'scipy.optimize'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert mf.implicit_bias.svm.SVM is SVM
