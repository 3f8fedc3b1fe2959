"""Tokens and measures, generic weights, the counterexample, obstructions: values by hand, laws, refusals."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import DtypeError, OptionError, ShapeError, TooManyAtomsError

S = mf.structure
KEY = jax.random.key(1)
LINE = mf.Box([-1.0], [1.0])


def centred(X: Any) -> Any:
    return X - X.mean(axis=0)


class TestTokenMaps:
    def test_weights_become_repetitions(self) -> None:
        seen: list[np.ndarray] = []

        def T(X: Any) -> Any:
            seen.append(np.asarray(X))
            return X - X.mean(axis=0)

        f = S.from_token_map(T)
        mu = 2 * mf.Discrete.weighted([[0.0], [1.0], [5.0]], [0.5, 0.25, 0.25])
        nu = f(mu)
        assert sorted(seen[-1][:, 0].tolist()) == [0.0, 0.0, 1.0, 5.0]
        assert nu.same_as(mf.Discrete.weighted([[-1.5], [-0.5], [3.5]], [1.0, 0.5, 0.5]), 1e-12)
        assert f.error(mu) == pytest.approx(0, abs=1e-15)

    def test_irrational_weights_within_the_bound(self) -> None:
        # the centred tokens move with the mean: |mean(prompt) − mean(mu)| ≤ W_1 ≤ the bound
        weights = np.array([1.0, 2**0.5, 3**0.5]) / (1 + 2**0.5 + 3**0.5)
        mu = mf.Discrete.weighted([[0.0], [1.0], [5.0]], weights)
        errors = []
        for longest in (20, 200, 2000):
            f = S.from_token_map(centred, longest=longest)
            moved = np.abs(np.asarray(f(mu).points - (mu.points - mu.mean()))).max()
            assert moved <= f.error(mu) + 1e-15
            errors.append(f.error(mu))
            np.testing.assert_allclose(f(mu).weights, weights, rtol=1e-14)
        assert errors[0] > errors[1] > errors[2] > 0
        assert errors[2] < 1e-4

    @settings(max_examples=30)
    @given(seed=st.integers(0, 10**6), n=st.sampled_from([1, 4, 9]))
    def test_repetitions_are_proportional_and_exact_for_fractions(self, seed: int, n: int) -> None:
        # kills: rounding to nearest without the sum, atoms that vanish
        rng = np.random.default_rng(seed)
        counts = rng.integers(1, 8, n)
        found = S.tokens.repetition(counts / counts.sum(), longest=400)
        assert found.error < 1e-14
        np.testing.assert_allclose(found.counts / found.counts.sum(), counts / counts.sum(), rtol=1e-12)
        assert found.counts.sum() <= counts.sum()
        weights = rng.uniform(1e-6, 1, n)
        found = S.tokens.repetition(weights, longest=50)
        assert found.counts.min() >= 1
        assert found.counts.sum() <= 50
        assert found.error == pytest.approx(
            np.abs(found.counts / found.counts.sum() - weights / weights.sum()).sum() / 2
        )

    def test_there_and_back(self) -> None:
        G = mf.Residual(mf.Attention.head([[1.0]], [[1.0]], [[0.5]]))
        X = np.random.default_rng(0).uniform(-1, 1, (6, 1))
        X[3] = X[0]
        back = S.to_token_map(S.from_token_map(G.tokens))
        np.testing.assert_allclose(back(X), G.tokens(X), atol=1e-12)
        np.testing.assert_array_equal(S.to_token_map(G)(X), G.tokens(X))

    @pytest.mark.parametrize(
        ("T", "kind"),
        [
            (lambda X: X - X.sum(axis=0), "repetition"),
            (lambda X: np.asarray(X) / len(X), "repetition"),
            (lambda X: np.asarray(X) * np.arange(len(X))[:, None], "separated"),
            (lambda X: np.asarray(X) + np.asarray(X)[0], "order"),
        ],
    )
    def test_what_is_no_map_of_measures(self, T: Any, kind: str) -> None:
        found = S.tokens.check_token_map(T, LINE, KEY)
        assert not found.holds
        assert found.witness is not None
        assert found.witness.kind == kind
        assert found.witness.difference > 1e-3

    def test_attention_is_one(self) -> None:
        assert S.tokens.check_token_map(mf.Attention.random(KEY, 1).tokens, LINE, KEY, trials=4).holds

    def test_refusals(self) -> None:
        with pytest.raises(DtypeError, match="T = 3 of type int"):
            S.from_token_map(3)
        with pytest.raises(ShapeError, match="one image per token"):
            S.from_token_map(lambda X: X[:1])(mf.Discrete.uniform([[0.0], [1.0]]))
        with pytest.raises(OptionError, match="not more than tokens"):
            S.tokens.repetition(np.ones(5), longest=4)


class TestGeneric:
    @settings(max_examples=15)
    @given(seed=st.integers(0, 10**6), n=st.sampled_from([2, 6, 10]))
    def test_ties_are_broken_by_little(self, seed: int, n: int) -> None:
        mu = 3 * mf.Discrete.uniform(np.random.default_rng(seed).uniform(-1, 1, (n, 1)))
        nu = S.generic(mu, 1e-3, jax.random.key(seed))
        assert mf.subset_sum_gap(mu.weights) < 1e-14
        assert mf.subset_sum_gap(nu.weights) > 1e-12
        assert float(nu.mass) == pytest.approx(3.0, rel=1e-14)
        assert 0 < float(mf.wasserstein(mu.normalized(), nu.normalized(), 1)) <= 1e-3 * 2 / 2
        np.testing.assert_array_equal(mu.points, nu.points)

    def test_many_atoms_and_refusals(self) -> None:
        many = mf.Discrete.uniform(np.arange(50.0)[:, None])
        assert S.generic(many, 0.1, KEY).n == 50
        with pytest.raises(OptionError, match="eps"):
            S.generic(many, 1.5, KEY)
        with pytest.raises(OptionError, match="cannot be told apart"):
            S.generic(mf.Discrete.uniform(np.arange(18.0)[:, None]), 1e-12, KEY)


class TestCounterexample:
    def test_the_table(self) -> None:
        f = S.counterexample()
        for n, w1_of_images, gap in ((1e2, 6.608e-3, 0.66080), (1e4, 5.196e-5, 0.51960), (1e6, 5.020e-7, 0.50200)):
            h = n**-0.5
            plus, minus = (mf.Discrete.weighted([[s * h], [1.0]], [1 / n, 1 - 1 / n]) for s in (1, -1))
            images = f(plus), f(minus)
            assert float(mf.wasserstein(plus, minus, 1)) == pytest.approx(2 * h / n, rel=1e-9)
            assert float(mf.wasserstein(*images, 1)) == pytest.approx(w1_of_images, rel=1e-4)
            assert float(images[0].points[0, 0] - images[1].points[0, 0]) == pytest.approx(gap, abs=5e-5)

    def test_it_moves_little_mass(self) -> None:
        rng, f = np.random.default_rng(0), S.counterexample()
        for _ in range(20):
            mu = mf.Discrete.weighted(rng.uniform(-1, 1, (5, 1)), rng.uniform(0.01, 1, 5)).normalized()
            near = float(mu.integrate(lambda x: np.maximum(0, 1 - 4 * np.asarray(x)[:, 0] ** 2) ** 2))
            assert float(mf.wasserstein(f(mu), mu, 1)) <= near / 4 + 1e-15

    @pytest.mark.parametrize("n", [10, 100, 1000])
    def test_its_local_ratio_grows_with_n(self, n: int) -> None:
        f, step = S.counterexample(), 1e-7
        images = [f(mf.Discrete.weighted([[x], [1.0]], [1 / n, 1 - 1 / n])) for x in (0.0, step)]
        assert float(mf.wasserstein(*images, 1)) / (step / n) == pytest.approx(1 + n / 4, abs=0.01)

    def test_prompts(self) -> None:
        G = S.counterexample().map
        for n, difference in ((100, 0.5615), (10_000, 0.59005)):
            two = S.prompts(n)
            assert float(mf.wasserstein(*map(mf.Discrete.uniform, two[:2]), 1)) == pytest.approx(two.distance, rel=1e-6)
            assert float(G.tokens(two.alice)[0, 0] - G.tokens(two.elise)[0, 0]) == pytest.approx(difference, abs=5e-5)
            assert (two.alice[1:] == two.elise[1:]).all()
        with pytest.raises(OptionError, match="n ≥ 4"):
            S.prompts(3)
        with pytest.raises(OptionError, match="softening"):
            S.counterexample(softening=-1.0)


class TestObstruction:
    def test_the_two_of_the_literature(self) -> None:
        two = mf.Discrete.uniform([[-1.0], [1.0]])
        first = S.obstruction(mf.Discrete.dirac([0.0]), two)
        assert (first.lower, first.upper) == (1.0, 1.0)
        second = S.obstruction(two, mf.Discrete.weighted([[-1.0], [1.0]], [1.0, 2.0]))
        assert second.lower == pytest.approx(1 / 3, abs=1e-15)
        assert sorted(second.points[:, 0].tolist()) == [-1.0, 1.0]

    @settings(max_examples=5)
    @given(seed=st.integers(0, 10**6))
    def test_on_the_line_against_all_orders_and_a_search(self, seed: int) -> None:
        # brute force: every order of the atoms, medians of the pieces; and no random push-forward comes closer
        rng = np.random.default_rng(seed)
        mu = mf.Discrete.weighted(rng.normal(size=(3, 1)), rng.uniform(0.1, 1, 3)).normalized()
        nu = mf.Discrete.weighted(rng.normal(size=(4, 1)), rng.uniform(0.1, 1, 4)).normalized()
        found = S.obstruction(mu, nu)
        assert found.lower == found.upper
        attained = float(mf.wasserstein(mu.with_points(jax.device_put(found.points)), nu, 1))
        assert attained == pytest.approx(found.upper, abs=1e-12)
        places = np.asarray(nu.points)[:, 0]
        best = min(
            float(mf.wasserstein(mu.with_points(jax.device_put(np.array(y)[:, None])), nu, 1))
            for y in product(places, repeat=3)
        )
        # optimal places are medians of pieces of nu, hence atoms of it
        assert best == pytest.approx(found.lower, abs=1e-12)

    def test_in_the_plane_lower_and_upper_value_enclose_it(self) -> None:
        # one atom: the geometric median of an equilateral triangle is its centre
        corners = np.array([[np.cos(t), np.sin(t)] for t in 2 * np.pi * np.arange(3) / 3])
        found = S.obstruction(mf.Discrete.dirac([5.0, 5.0]), mf.Discrete.uniform(corners))
        assert found.upper == pytest.approx(1.0, abs=1e-9)
        assert 0.5 < found.lower <= found.upper
        np.testing.assert_allclose(found.points, 0, atol=1e-6)
        # what can be reached is reached
        mu = mf.Discrete.weighted([[0.0, 0.0], [1.0, 1.0]], [1.0, 2.0])
        assert S.obstruction(mu, mf.Discrete.weighted([[3.0, 1.0], [4.0, 1.0]], [1.0, 2.0])).upper < 1e-12

    def test_too_many_atoms(self) -> None:
        with pytest.raises(TooManyAtomsError, match="at most 12"):
            S.obstruction(mf.Discrete.uniform(np.arange(13.0)[:, None]), mf.Discrete.dirac([0.0]))
