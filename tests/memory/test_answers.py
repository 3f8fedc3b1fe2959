"""Capacity curves, head classes, coverage, trained projections: closed forms, brute force, intervals that cover."""

from __future__ import annotations

import sys
from itertools import combinations
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import binomtest

import measureformer as mf
from measureformer.attention.coverage import fewest
from measureformer.errors import DtypeError, NoClosedFormError, NothingVisibleError, OptionError, ShapeError
from measureformer.memory.capacity import bit_error
from measureformer.memory.capacity_curve import CapacityCurve
from measureformer.numerics.intervals import wilson
from measureformer.numerics.random import generator

M = mf.memory
KEY = jax.random.key(0)


class TestCapacity:
    def test_fixed_patterns_bit_by_bit(self) -> None:
        # the same draws, with every bit's two energies
        d, counts, trials = 10, [2, 5, 9], 4
        X = 2.0 * generator(KEY).integers(0, 2, (trials, 16, d), dtype=np.int8) - 1
        both = X[:, :, None, None, :] * np.where(np.eye(d, dtype=bool), [[[1.0]], [[-1.0]]], 1.0)
        for interaction, F in ((M.Polynomial(2), np.square), (M.Exponential(), np.exp)):
            curve = M.capacity(interaction, d, counts, KEY, trials=trials, criterion="each")
            for n, held in zip(counts, curve.held, strict=True):
                energies = -F(np.einsum("tisld,tjd->tislj", both[:, :n], X[:, :n])).sum(axis=-1)
                rise = energies[:, :, 1] - energies[:, :, 0]
                fixed = (rise >= -1e-9 * np.abs(energies).max()).all(axis=-1)
                assert held == pytest.approx(fixed.mean(), abs=1e-12)

    def test_bit_errors_against_the_normal_law(self) -> None:
        curve = M.capacity(M.Polynomial(2), 200, [40], KEY, trials=20, criterion="each")
        assert abs(curve.bit_errors[0] - bit_error(40, 200)) < 5 * curve.bit_errors_error[0] + 5e-4
        assert float(bit_error(28, 200)) == pytest.approx(3.76e-3, rel=0.02)

    def test_wilson_is_the_one_of_scipy(self) -> None:
        for k, n in ((0, 10), (3, 10), (10, 10), (57, 200)):
            low, high = wilson(k / n, n)
            expected = binomtest(k, n).proportion_ci(method="wilson")
            assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), abs=1e-12)

    def test_crossing(self) -> None:
        shares = [1.0, 0.75, 0.25, 0.0]
        parts = [np.array(shares)] * 3
        curve = CapacityCurve(1, "all", np.array([1, 4, 16, 64]), *parts, *parts[:2])
        assert curve.capacity == pytest.approx(8.0)
        low = CapacityCurve(1, "all", np.array([1, 4]), *[np.array([1.0, 0.9])] * 5)
        assert np.isnan(low.capacity)

    def test_formulas(self) -> None:
        assert M.mceliece87_capacity(200) == pytest.approx(18.9, abs=0.05)
        assert M.mceliece87_capacity(200, every=True) == pytest.approx(9.4, abs=0.05)
        assert M.krotov16_capacity(40, 2) == pytest.approx(5.4, abs=0.05)
        assert M.krotov16_capacity(40, 4) == pytest.approx(578, abs=0.5)
        assert M.demircigil17_capacity(20) == pytest.approx(2**10)
        assert M.birthday_capacity(16) == pytest.approx((2 * np.log(2) * 2**16 / 16) ** 0.5)

    def test_basins(self) -> None:
        X = np.random.default_rng(0).integers(0, 2, (4, 32)) * 2 - 1
        curve = M.basin_curve(M.Classical.store(X), [0, 2, 16], KEY, trials=60)
        assert curve.returned[0] == 1.0
        assert curve.returned[1] > 0.9 > curve.returned[2]
        assert ((curve.low <= curve.returned) & (curve.returned <= curve.high)).all()


class TestCoverage:
    def test_fewest_by_brute_force(self) -> None:
        rng = np.random.default_rng(0)
        for p in rng.dirichlet(np.full(6, 0.5), 20):
            expected = next(k for k in range(1, 7) if any(sum(c) >= 0.9 - 1e-12 for c in combinations(p, k)))
            assert fewest(p) == expected
        assert fewest(np.full(10, 0.1)) == 9

    @settings(max_examples=20)
    @given(seed=st.integers(0, 10**6), part=st.floats(0.01, 0.99))
    def test_mass_does_not_notice_a_split_atom(self, seed: int, part: float) -> None:
        # kills: whole atoms at the edge, order by weight instead of logit, a mass that is not normalised
        rng = np.random.default_rng(seed)
        k, a, q = rng.normal(size=(7, 2)), rng.uniform(0.1, 3, 7), rng.normal(size=(3, 2))
        one = mf.coverage(q, k, np.log(a))
        split = np.concatenate([a, [a[2] * part]])
        split[2] *= 1 - part
        two = mf.coverage(q, np.concatenate([k, k[2:3]]), np.log(7 * split))
        np.testing.assert_allclose(two.mass, one.mass, rtol=1e-10)

    def test_equal_keys_count_what_the_mass_rounds_up_to(self) -> None:
        rng = np.random.default_rng(1)
        q, k = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 40, 3))
        found = mf.coverage(2 * q, k)
        np.testing.assert_array_equal(np.ceil(40 * found.mass - 1e-9), found.count)
        p = softmax(np.einsum("hmc,hnc->hmn", 2 * q, k), axis=2)
        np.testing.assert_array_equal(found.count, fewest(p))

    def test_masked_and_passive_keys_do_not_count(self) -> None:
        k = np.zeros((4, 1))
        found = mf.coverage(np.zeros((2, 1)), k, np.log([1.0, 1.0, 1.0, 1.0]), times=([0.5, 1.0], [0.1, 0.2, 0.9, 1.0]))
        assert found.count.tolist() == [2, 4]
        np.testing.assert_allclose(found.mass, 0.9)
        with np.errstate(divide="ignore"):
            assert mf.coverage([[0.0]], k, np.log([1.0, 0.0, 0.0, 0.0])).count.tolist() == [1]
        with pytest.raises(NothingVisibleError):
            mf.coverage([[0.0]], k, times=([0.0], [1.0] * 4))

    def test_blocks_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(2)
        q, k = rng.normal(size=(9, 2)), rng.normal(size=(16, 2))
        whole = mf.coverage(q, k)
        monkeypatch.setattr(sys.modules["measureformer.attention.coverage"], "LOGITS", 32)
        np.testing.assert_array_equal(mf.coverage(q, k).mass, whole.mass)


class TestHeadClass:
    def test_classes_of_one_hot_and_uniform_attention(self) -> None:
        mu = mf.Discrete.uniform(np.eye(64))
        for size, expected in ((0.0, "I"), (1000.0, "IV")):
            G = mf.Attention.head(size * np.eye(64), np.eye(64), np.eye(64))
            assert M.head_class(G, mu).classes == (expected,)

    @pytest.mark.parametrize(
        ("k", "expected"), [(257, "I"), (256, "II"), (65, "II"), (64, "III"), (17, "III"), (16, "IV")]
    )
    def test_limits_of_512_tokens(self, k: int, expected: str) -> None:
        # one query sees some tokens evenly and the others not at all; of c tokens 90 % are ⌈0.9 c⌉
        tokens = next(c for c in range(1, 513) if int(np.ceil(0.9 * c - 1e-9)) == k)
        points = np.zeros((512, 1))
        points[:tokens] = 1.0
        G = mf.Attention.head([[1000.0]], [[1.0]], [[1.0]])
        found = M.head_class(G, mf.Discrete.uniform(points), [[1.0]])
        assert found.counts is not None
        assert (found.counts.tolist(), found.classes) == ([[k]], (expected,))

    def test_gaussian_closed_form_against_tokens(self) -> None:
        g = mf.Gaussian([0.5, -1.0], [[1.0, 0.2], [0.2, 0.5]])
        G = mf.Attention.head([[1.0, 0.3], [0.0, 1.0]], [[1.0, 0.0], [0.4, 1.0]], np.eye(2))
        x = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, -1.5]])
        exact = M.head_class(G, g, x)
        tokens = M.head_class(G, g.discretize(20_000), x)
        assert exact.shares[0, 0] == pytest.approx(0.9)
        np.testing.assert_allclose(tokens.shares, exact.shares, atol=0.02)
        assert np.isnan(exact.k90).all()

    def test_wrappers_l2_and_median(self) -> None:
        rng = np.random.default_rng(0)
        points = rng.normal(size=(32, 3))
        mu = mf.Discrete.uniform(points)
        G = mf.Attention.random(KEY, 3, heads=2, head_dim=3)
        plain = M.head_class(G, mu)
        assert M.head_class(mf.Residual(G), mu).share.tolist() == plain.share.tolist()
        logits = np.einsum("hki,hkj,mi,nj->hmn", G.Q, G.K, points, points)
        counts = fewest(softmax(logits, axis=2))
        np.testing.assert_array_equal(plain.counts, counts)
        assert plain.k90.tolist() == [float(np.sort(row)[15]) for row in counts]
        L = mf.L2Attention(G.Q, G.K, G.V, G.W)
        q, k = points @ np.asarray(G.Q[0]).T, points @ np.asarray(G.K[0]).T
        weights = softmax(-np.sum((q[:, None] - k[None]) ** 2, axis=2), axis=1)
        found = M.head_class(L, mu).counts
        assert found is not None
        np.testing.assert_array_equal(found[0], fewest(weights))

    def test_causal_heads_see_the_past_only(self) -> None:
        sigma = mf.SpaceTime.sequence(np.zeros((32, 1)))
        G = mf.Causal(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]))
        found = M.head_class(G, sigma)
        assert found.counts is not None
        assert found.counts[0].tolist() == [int(np.ceil(0.9 * n - 1e-9)) for n in range(1, 33)]


def noisy_queries() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Patterns, two sets of queries in which two of six coordinates mean nothing, and their targets."""
    rng = np.random.default_rng(0)
    patterns, index = rng.normal(size=(16, 6)), np.arange(320) % 16
    noise = rng.normal(size=(2, 320, 6)) * [0.1, 0.1, 0.1, 0.1, 10.0, 10.0]
    return patterns, patterns[index] + noise[0], patterns[index] + noise[1], index


class TestFit:
    def test_projections_learn_what_to_ignore(self) -> None:
        patterns, train, test, index = noisy_queries()
        fit = M.fit_retrieval(patterns, train, index, steps=300, rate=0.1)
        untrained = np.mean(np.argmax(test @ patterns.T, axis=1) == index)
        assert untrained < 0.3
        assert fit.accuracy(test, index) > 0.8
        # the loss is −log of the softmax weight of the target, of the layer that is returned
        Q, K = (np.asarray(part[0]) for part in (fit.layer.Q, fit.layer.K))
        weights = softmax(test[:3] @ Q.T @ K @ patterns.T, axis=1)
        np.testing.assert_allclose(fit.layer(fit.mu, test[:3]), weights @ patterns, rtol=1e-6, atol=1e-8)
        shares = softmax(train @ Q.T @ K @ patterns.T, axis=1)[np.arange(320), index]
        assert fit.losses[-1] == pytest.approx(-np.mean(np.log(shares)), rel=1e-6)
        assert len(fit.losses) == 301

    def test_stretches_do_not_matter(self) -> None:
        # kills: a last stretch that goes on past the steps that were asked for
        patterns, train, _, index = noisy_queries()
        short, long = (M.fit_retrieval(patterns, train, index, steps=steps) for steps in (130, 200))
        np.testing.assert_allclose(short.losses[:-1], long.losses[:130], rtol=1e-12)
        assert short.losses[-1] == pytest.approx(long.losses[130], rel=1e-9)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "criterion": (lambda: M.capacity(M.Exponential(), 4, [2], KEY, criterion="most"), OptionError, "most"),
    "no interaction": (lambda: M.capacity("classical", 4, [2], KEY), DtypeError, "Polynomial"),
    "errors": (lambda: M.capacity(M.Exponential(), 4, [2], KEY, criterion="errors"), OptionError, "with errors"),
    "counts": (lambda: M.capacity(M.Exponential(), 4, [0], KEY), OptionError, "counts"),
    "key": (lambda: M.capacity(M.Exponential(), 4, [2], 0), DtypeError, "key"),
    "flips": (lambda: M.basin_curve(M.Classical.store([[1, 1]]), [3], KEY), OptionError, "flipped bits"),
    "share": (lambda: mf.coverage([[1.0]], [[1.0]], share=1.0), OptionError, "share"),
    "leading": (lambda: mf.coverage(np.ones((2, 1, 1)), [[1.0]]), ShapeError, "leading"),
    "layer": (lambda: M.head_class(mf.Identity(), mf.Discrete.dirac([1.0])), DtypeError, "softmax"),
    "mixture": (
        lambda: M.head_class(
            mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), mf.GaussianMixture([1.0], [[0.0]], [[[1.0]]]), [[0.0]]
        ),
        NoClosedFormError,
        "discretize",
    ),
    "gaussian": (
        lambda: M.head_class(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), mf.Gaussian([0.0], [[1.0]])),
        OptionError,
        "queries",
    ),
    "targets": (lambda: M.fit_retrieval([[1.0]], [[1.0]], [1]), OptionError, "targets from 1"),
    "target shapes": (lambda: M.fit_retrieval([[1.0]], [[1.0]], [0, 0]), ShapeError, "one whole number"),
    "massless": (
        lambda: M.fit_retrieval(mf.Discrete.weighted([[1.0], [2.0]], [1.0, 0.0]), [[1.0]], [1]),
        OptionError,
        "without mass",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()
