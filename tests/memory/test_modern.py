"""Modern memories: the update is attention, energies fall, theorems bound what is measured, measures with mass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import DimensionMismatchError, DtypeError, NotFiniteError, OptionError, PatternError
from measureformer.memory import retrieval

M = mf.memory
D = 5


def drawn(seed: int, n: int = 20, m: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.uniform(0.2, 2, n), rng.normal(size=(m, D))


def plain_energy(X: np.ndarray, a: np.ndarray, beta: float, xi: np.ndarray) -> np.ndarray:
    lse = logsumexp(beta * xi @ X.T, b=a / a.sum(), axis=1)
    return -lse / beta + 0.5 * np.sum(xi**2, axis=1) + 0.5 * np.max(np.sum(X**2, axis=1))


class TestUpdate:
    @pytest.mark.parametrize("beta", [0.1, 1.0, 30.0])
    def test_formulas_and_attention(self, beta: float) -> None:
        X, a, xi = drawn(0)
        memory = M.Modern.store(X, beta, weights=a)
        expected = softmax(beta * xi @ X.T + np.log(a), axis=1) @ X
        np.testing.assert_allclose(memory.update(xi), expected, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(M.as_attention(memory)(memory.mu, xi), memory.update(xi), atol=1e-12)
        np.testing.assert_allclose(memory.energy(xi), plain_energy(X, a, beta, xi), rtol=1e-11)
        np.testing.assert_allclose(memory.update(xi[0]), expected[0], rtol=1e-11, atol=1e-12)

    def test_the_energy_of_the_paper_for_equal_patterns(self) -> None:
        # kills: a mass that is not normalised, which would shift the energy by (ln N)/β
        X, _, xi = drawn(1)
        n, beta = len(X), 0.7
        paper = (
            -logsumexp(beta * xi @ X.T, axis=1) / beta
            + 0.5 * np.sum(xi**2, axis=1)
            + np.log(n) / beta
            + 0.5 * np.max(np.sum(X**2, axis=1))
        )
        np.testing.assert_allclose(M.Modern.store(X, beta).energy(xi), paper, rtol=1e-12)
        inside = np.random.default_rng(0).dirichlet(np.ones(n), 10) @ X
        energies = np.asarray(M.Modern.store(X, beta).energy(inside))
        assert ((energies >= 0) & (energies <= 2 * np.max(np.sum(X**2, axis=1)))).all()

    def test_mass_two_is_two_patterns_and_a_factor_is_nothing(self) -> None:
        X, a, xi = drawn(2)
        a[3] = 2 * a[3]
        one = M.Modern.store(X, 1.0, weights=a)
        split = np.concatenate([X, X[3:4]]), np.concatenate([a, a[3:4] / 2])
        split[1][3] /= 2
        for other in (M.Modern.store(split[0], 1.0, weights=split[1]), M.Modern.store(7 * one.mu, 1.0)):
            np.testing.assert_allclose(other.energy(xi), one.energy(xi), rtol=1e-12)
            np.testing.assert_allclose(other.retrieve(xi).state, one.retrieve(xi).state, atol=1e-10)

    @settings(max_examples=15)
    @given(seed=st.integers(0, 10**6), beta=st.sampled_from([0.2, 2.0, 50.0]))
    def test_the_energy_falls_by_half_the_square_of_the_move(self, seed: int, beta: float) -> None:
        # kills: an update at another temperature than the energy, or without the mass
        X, a, xi = drawn(seed)
        found = M.Modern.store(X, beta, weights=a).retrieve(xi, steps=30)
        drop = -np.diff(found.trace.energies, axis=0)
        assert (drop >= 0.5 * found.trace.moves**2 - 1e-11).all()

    def test_gradient_of_the_energy_is_state_minus_update(self) -> None:
        X, a, xi = drawn(3)
        memory = M.Modern.store(X, 1.5, weights=a)
        gradient = jax.grad(lambda x: jnp.sum(memory.energy(x)))(jnp.asarray(xi))
        np.testing.assert_allclose(gradient, xi - np.asarray(memory.update(xi)), atol=1e-10)

    def test_a_query_does_not_depend_on_its_companions(self) -> None:
        X, _, xi = drawn(4)
        memory = M.Modern.store(X, 4.0)
        together = np.asarray(memory.retrieve(xi).state)
        np.testing.assert_allclose(memory.retrieve(xi[2]).state, together[2], atol=1e-10)

    def test_a_new_number_of_patterns_compiles_nothing(self) -> None:
        memory, xi = M.Modern.store(drawn(5)[0], 1.0), drawn(5)[2]
        memory.retrieve(xi)
        other = M.Modern.store(drawn(6, n=27)[0], 2.0)
        assert count_compilations(lambda: other.retrieve(drawn(6, m=12)[2], steps=40)) == 0

    def test_float32_stays(self) -> None:
        X, _, xi = (part.astype(np.float32) for part in drawn(7))
        found = M.Modern.store(X, 2.0).retrieve(xi)
        assert found.state.dtype == np.float32
        assert found.trace.converged.all()


class TestTheorems:
    def test_anchors(self) -> None:
        for beta, K, d, p, c, n in ((1.0, 3.0, 20, 0.001, 3.15461, 7.41), (1.0, 1.0, 75, 0.001, 1.37188, 10.97)):
            found = M.ramsauer20_capacity(beta, K, d, p)
            assert found.c == pytest.approx(c, abs=1e-5)
            assert found.patterns == pytest.approx(n, abs=0.005)
            assert found.holds
        # where e^{a + ln b} overflows
        assert M.ramsauer20_capacity(1.0, 1e100, 2, 0.5).c > 1

    def test_separations_against_all_pairs(self) -> None:
        X, _, _ = drawn(8)
        overlaps = X @ X.T
        expected = np.diag(overlaps) - np.max(np.where(np.eye(len(X), dtype=bool), -np.inf, overlaps), axis=1)
        memory = M.Modern.store(X, 1.0)
        np.testing.assert_allclose(memory.separation(), expected, rtol=1e-12)
        np.testing.assert_allclose(memory.separation([4, 2]), expected[[4, 2]], rtol=1e-12)
        assert M.Modern.store(X[:1], 1.0).separation().tolist() == [np.inf]

    def test_random_patterns_are_stored_and_bounds_hold(self) -> None:
        d, n = 64, 1000
        X = np.random.default_rng(0).normal(size=(n, d))
        X *= (d - 1) ** 0.5 / np.linalg.norm(X, axis=1, keepdims=True)
        memory = M.Modern.store(X, 1.0)
        assert memory.separation().min() > 18.65 + 5
        noise = np.random.default_rng(1).normal(size=(200, d)) * 0.05
        found = memory.retrieve(X[:200] + noise).certificate
        assert found.stored.all()
        assert found.nearest.tolist() == list(range(200))
        assert (found.one_step_error <= found.one_step_bound).all()
        assert (found.distance < found.basin).all()
        assert (found.error <= found.error_bound + 1e-12).all()
        assert (found.basin > 10 * found.radius).all()

    @settings(max_examples=10)
    @given(seed=st.integers(0, 10**6))
    def test_bounds_hold_with_mass_for_any_query(self, seed: int) -> None:
        # kills: N − 1 instead of (A − a_i)/a_i, a factor 2 in the exponent, the basin without the mass
        X, a, _ = drawn(seed)
        rng = np.random.default_rng(seed)
        a[0] = 1e-4
        memory = M.Modern.store(3 * X, 1.0, weights=a)
        queries = 3 * X[:10] + rng.normal(size=(10, D)) * rng.choice([1e-3, 0.1], (10, 1))
        found = memory.retrieve(queries, steps=200).certificate
        assert (found.one_step_error <= found.one_step_bound * (1 + 1e-9) + 1e-12).all()
        assert (found.error <= found.error_bound + 1e-9).all()

    def test_the_basin_is_where_the_map_of_distances_falls(self) -> None:
        beta, separation, radius, odds = 1.3, 20.0, 3.0, 99.0
        outer, inner = (float(part) for part in M.basin(beta, separation, radius, odds))
        bound = lambda r: float(retrieval.ramsauer20_one_step(beta, separation, r, radius, odds))  # noqa: E731
        assert bound(outer) == pytest.approx(outer, rel=1e-9)
        assert bound(inner) == pytest.approx(inner, rel=1e-6)
        assert bound(0.5 * outer) < 0.5 * outer
        assert bound(1.1 * outer) > 1.1 * outer
        assert [float(part) for part in M.basin(beta, 0.1, radius, odds)] == [0.0, np.inf]

    def test_hot_memories_have_one_fixed_point(self) -> None:
        X, _, xi = drawn(9)
        X = X - X.mean(axis=0)
        memory = M.Modern.store(X, 0.5 / M.Modern.store(X, 1.0).spread() ** 2)
        found = memory.retrieve(10 * xi)
        assert np.abs(found.state).max() < 1e-11
        assert found.certificate.single.all()
        assert not M.Modern.store(X, 50.0).retrieve(xi).certificate.single.any()

    def test_clusters_are_metastable(self) -> None:
        X = np.repeat(4 * np.eye(D)[:3], 4, axis=0) + 0.02 * np.random.default_rng(0).normal(size=(12, D))
        X *= 4 / np.linalg.norm(X, axis=1, keepdims=True)
        found = M.Modern.store(X, 2.0).fixed_points()
        assert found.members.tolist() == [4, 4, 4]
        np.testing.assert_allclose(found.points, X.reshape(3, 4, D).mean(axis=1), atol=0.01)
        assert len(M.Modern.store(X, 1e5).fixed_points().points) == 12

    def test_zero_temperature_is_the_nearest_neighbour(self) -> None:
        X, _, xi = drawn(10)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        found = M.Modern.store(X, 1e6).retrieve(xi, steps=1)
        nearest = np.argmin(np.linalg.norm(X[None] - xi[:, None], axis=2), axis=1)
        assert found.certificate.nearest.tolist() == nearest.tolist()
        np.testing.assert_allclose(found.state, X[nearest], atol=1e-6)


class TestHeads:
    def test_a_head_is_a_memory_of_its_keys(self) -> None:
        rng = np.random.default_rng(0)
        X, a, xi = drawn(11)
        mu = mf.Discrete.weighted(X, a)
        Q, K, B = rng.normal(size=(3, D)), rng.normal(size=(3, D)), rng.normal(size=(D, 3))
        G = mf.Attention.head(Q, K, B @ K, scale=0.4)
        head = M.as_memory(G, mu)
        assert head.defect < 1e-12
        np.testing.assert_allclose(head(xi), G(mu, xi), atol=1e-10)
        # values that no key holds
        free = M.as_memory(mf.Attention.head(Q, K, rng.normal(size=(D, D))), mu)
        assert free.defect > 0.1

    def test_back_and_forth(self) -> None:
        X, a, xi = drawn(12)
        memory = M.Modern.store(X, 0.7, weights=a)
        head = M.as_memory(M.as_attention(memory), memory.mu)
        np.testing.assert_allclose(head(xi), memory.update(xi), atol=1e-12)
        np.testing.assert_allclose(head.memory.energy(xi), memory.energy(xi), rtol=1e-12)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no patterns": (lambda: M.Modern.store(np.zeros((0, 3)), 1.0), PatternError, "at least one"),
    "cold": (lambda: M.Modern.store([[1.0]], 0.0), OptionError, "beta = 0"),
    "negative": (lambda: M.Modern.store([[1.0]], -2.0), OptionError, "inverse temperature > 0"),
    "nan": (lambda: M.Modern.store([[np.nan]], 1.0), NotFiniteError, "non-finite"),
    "query": (lambda: M.Modern.store([[1.0]], 1.0).retrieve([1.0, 2.0]), DimensionMismatchError, "dimension 2"),
    "gaussian": (lambda: M.Modern.store(mf.Gaussian([0.0], [[1.0]]), 1.0), DtypeError, "discretize"),
    "weights": (lambda: M.Modern.store(mf.Discrete.dirac([1.0]), 1.0, weights=[1.0]), DtypeError, "beside"),
    "no softmax": (lambda: M.as_memory(mf.Identity(), mf.Discrete.dirac([1.0])), DtypeError, "Identity"),
    "head": (
        lambda: M.as_memory(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), mf.Discrete.dirac([1.0]), head=1),
        OptionError,
        "head = 1",
    ),
    "capacity": (lambda: M.ramsauer20_capacity(1.0, 1.0, 20, 1.5), OptionError, "p = 1.5"),
    "flipped": (lambda: M.demircigil17_capacity(10, 0.7), OptionError, "share"),
    "equal patterns": (lambda: retrieval.ramsauer20_beta(0.0, 10, 1.0), OptionError, "stored at no"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


def test_the_contraction_of_the_theorem_holds() -> None:
    # kills: the wrong sign of the separation, the distance left out of the exponent
    rng, beta, radius = np.random.default_rng(3), 2.0, 3.0
    X = rng.normal(size=(6, 16))
    X *= radius / np.linalg.norm(X, axis=1, keepdims=True)
    gram = X @ X.T
    separation = np.diag(gram) - np.where(np.eye(6) > 0, -np.inf, gram).max(axis=1)

    def update(xi: np.ndarray) -> np.ndarray:
        return softmax(beta * xi @ X.T, axis=1) @ X

    fixed = X
    for _ in range(100):
        fixed = update(fixed)
    for length in (1e-3, 0.1, 0.5):
        step = rng.normal(size=X.shape)
        xi = X + length * step / np.linalg.norm(step, axis=1, keepdims=True)
        farther = np.maximum(length, np.linalg.norm(fixed - X, axis=1))
        bound = retrieval.ramsauer20_contraction(beta, separation, farther, radius, 5.0, 6)
        found = np.linalg.norm(update(xi) - fixed, axis=1) / np.linalg.norm(xi - fixed, axis=1)
        assert (found <= bound).all()
        # the bound is of use: most patterns are drawn in by it
        assert np.median(retrieval.ramsauer20_contraction(beta, separation, 0.0, radius, 5.0, 6)) < 1
