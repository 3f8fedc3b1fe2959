"""One softmax layer: the Boltzmann operator, memories, the compiler, and what hard attention cannot do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import (
    ConstructionError,
    DimensionMismatchError,
    DomainError,
    NotEquivariantError,
    OptionError,
    ShapeError,
)
from measureformer.sequences import boltzmann, yun
from measureformer.sequences.budget import SEED

LINE = np.array([[1.0], [1.5], [2.0]])


def wave(X: np.ndarray) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * X) + X.mean(axis=(-2, -1), keepdims=True)


def subsets(tokens: np.ndarray, n: int) -> np.ndarray:
    return tokens[np.array(list(itertools.combinations(range(len(tokens)), n)))]


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.sampled_from([2, 3, 6]))
def test_the_boltzmann_operator(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n) * 5
    value = boltzmann.boltz(a)
    assert math.isclose(boltzmann.boltz(a + 3), value + 3, abs_tol=1e-12)
    assert a.mean() - 1e-12 <= value <= a.max()
    ordered = np.sort(a)
    gap = ordered[-1] - ordered[-2]
    assert a.max() - value <= (n - 1) * np.ptp(a) * math.exp(-gap)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.sampled_from([2, 3, 4, 8]))
def test_separated_vectors_stay_apart(seed: int, n: int) -> None:
    # kills: the exponent −r in place of −2r is not refuted by random draws; a missing logarithm at n = 2 is
    rng = np.random.default_rng(seed)
    apart = (2 * math.log(n) + 3) * 1.001
    levels = np.cumsum(apart * (1 + rng.exponential(size=2 * n)))
    levels -= levels.mean()
    a, b = rng.permutation(levels).reshape(2, n)
    shared = int(rng.integers(0, n))
    b[:shared] = a[:shared]
    r = float(np.abs(np.concatenate([a, b])).max())
    gap = boltzmann.log_boltz_gap(a, b)
    assert gap > 2 * math.log(math.log(n)) - 2 * r
    assert math.isclose(boltzmann.kajitsuka24_separation(n, 1.0), math.log(n) ** 2 / math.e**2)
    near = abs(boltzmann.boltz(a) - boltzmann.boltz(b))
    assert near < 1e-9 or math.isclose(math.log(near), gap, abs_tol=1e-3)


def test_separation_of_the_lemma_is_the_measured_one() -> None:
    X = subsets(LINE, 2)
    net = boltzmann.memorize(X, np.arange(6.0).reshape(3, 2, 1), "certified")
    assert net.ranks == (1, 1, 1)
    assert abs(10**net.log_separation / 4.8e-6 - 1) < 0.05
    assert net.log_separation > net.log_bound
    assert abs(net.log_bound + 3069) < 10
    assert math.isclose(net.c, (2 * math.log(2) + 3) / 0.5)
    # in float64 the same number, by brute force
    codes = np.unique(net.code(X))
    assert math.isclose(np.diff(codes).min(), 10**net.log_separation, rel_tol=1e-6)


def test_separation_of_the_theorem_follows_from_the_lemma() -> None:
    # the steps of the proof, one by one: the factor of the logits, the Boltzmann operator, the scale of the output
    n, d, tokens, r_min, r_max, eps = 3, 2, 5, 0.7, 1.9, 0.4
    factor = (tokens + 1) ** 4 * (math.pi * d / 8) * (2 * math.log(n) + 3) / (eps * r_min)
    log_lemma = math.log(math.log(n) ** 2) - 2 * factor * r_max**2
    expected = (math.log(eps / (4 * r_max)) + log_lemma - math.log(factor * r_max)) / math.log(10)
    found = boltzmann.kajitsuka24_log_separation(n, d, tokens, (r_min, r_max, eps))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "n", "digits"),
    [(1 + np.arange(4)[:, None] / 2, 2, -10.8), (1 + np.arange(4)[:, None] / 2, 3, -12.6)],
)
def test_certified_memories_answer(tokens: np.ndarray, n: int, digits: float) -> None:
    X = subsets(tokens, n)
    Y = np.random.default_rng(0).normal(size=(*X.shape[:2], 2))
    net = boltzmann.memorize(X, Y, "certified")
    np.testing.assert_array_equal(net.run(X[:, ::-1]), Y[:, ::-1])
    assert abs(net.log_separation - digits) < 0.3
    assert net.log_separation > net.log_bound
    practical = boltzmann.memorize(X, Y)
    np.testing.assert_allclose(practical.run(X), Y, rtol=0, atol=1e-9)
    # a temperature that is chosen tells contexts apart by many digits more
    assert practical.log_separation > net.log_separation + 4


def test_digits_that_float64_does_not_have() -> None:
    angles = 2 * np.pi * np.arange(5) / 5
    pentagon = 1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    X = subsets(pentagon, 3)
    Y = np.arange(30.0).reshape(10, 3, 1)
    net = boltzmann.memorize(X, Y, "certified")
    assert net.log_separation < -20
    np.testing.assert_array_equal(net.run(X), Y)
    # kills: codes in float64, which are equal for several contexts
    assert len(np.unique(net.code(X))) < 30


def test_memories_are_ordinary_maps() -> None:
    X = subsets(LINE, 2)
    Y = np.arange(6.0).reshape(3, 2, 1)
    net = boltzmann.memorize(X, Y)
    G = net.as_map()
    for x, y in zip(X, Y, strict=True):
        np.testing.assert_allclose(G.tokens(x), y, rtol=0, atol=1e-6)
    with pytest.raises(OptionError, match="more digits"):
        boltzmann.memorize(X, Y, "certified").as_map()


@pytest.mark.parametrize("case", [(1, 2, 4), (1, 2, 16), (2, 2, 4), (1, 3, 8)])
def test_one_layer_is_as_good_as_many(case: tuple[int, int, int]) -> None:
    d, n, D = case
    compilers = boltzmann.compile_one_layer, yun.compile_yun
    one, deep = (compiler(wave, d=d, n=n, delta=1 / D, ramp=1e-4) for compiler in compilers)
    centres = (deep.grid.enumerate() + 0.5) / D
    np.testing.assert_allclose(one.run(centres), wave(centres), rtol=0, atol=1e-9)
    X = np.random.default_rng(SEED).uniform(size=(4000, n, d))
    off_ramps = ~((np.ceil(X * D) / D - X) <= 1e-4).any(axis=(1, 2))
    np.testing.assert_allclose(one.run(X)[off_ramps], deep.run(X)[off_ramps], rtol=0, atol=1e-9)
    assert abs(one.error() / deep.error_budget(2).measured["hard"] - 1) < 0.02


def test_one_layer_is_an_ordinary_map() -> None:
    net = boltzmann.compile_one_layer(wave, d=1, n=2, delta=1 / 4)
    G = net.as_map()
    for x in np.random.default_rng(0).uniform(size=(3, 2, 1)):
        np.testing.assert_allclose(G.tokens(x), net.run(x), rtol=0, atol=1e-6)


def test_hard_attention_cannot() -> None:
    found = boltzmann.hardmax_collision(LINE, 2)
    assert found is not None
    head = mf.HardmaxAttention.head([[1.0]], [[1.0]], [[1.0]])
    first, second = (head(mf.Discrete.uniform(c), found.token) for c in (found.first, found.second))
    assert not np.array_equal(found.first, found.second)
    np.testing.assert_array_equal(first, second)
    soft = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    first, second = (soft(mf.Discrete.uniform(c), found.token) for c in (found.first, found.second))
    assert np.abs(np.asarray(first) - np.asarray(second)).max() > 1e-3
    # two tokens have one context only
    assert boltzmann.hardmax_collision(LINE[:2], 2) is None


def test_bad_input_is_refused() -> None:
    X, Y = subsets(LINE, 2), np.zeros((3, 2, 1))
    with pytest.raises(DomainError, match="sequence 1, in which a token occurs twice"):
        boltzmann.memorize([[[1.0], [2.0]], [[1.0], [1.0]]], np.zeros((2, 2, 1)))
    with pytest.raises(DomainError, match="two targets for one token"):
        boltzmann.memorize([[[1.0], [2.0]], [[2.0], [1.0]]], [[[0.0], [1.0]], [[0.0], [1.0]]])
    with pytest.raises(DomainError, match="a token that is 0"):
        boltzmann.memorize([[[0.0], [2.0]]], [[[0.0], [1.0]]])
    with pytest.raises(DimensionMismatchError, match="One target"):
        boltzmann.memorize(X, Y[:2])
    with pytest.raises(OptionError, match="practical"):
        boltzmann.memorize(X, Y, "fast")  # type: ignore[arg-type]
    with pytest.raises(ConstructionError, match="digits each"):
        boltzmann.memorize([[[1.0], [1.0 + 1e-9]]], [[[0.0], [1.0]]], "certified")
    with pytest.raises(ShapeError):
        boltzmann.memorize(X, Y).run(np.zeros((3, 1)))
    with pytest.raises(NotEquivariantError):
        boltzmann.compile_one_layer(lambda X: np.cumsum(X, axis=-2), d=1, n=2, delta=1 / 4)
    with pytest.raises(OptionError, match="delta/4"):
        boltzmann.compile_one_layer(wave, d=1, n=2, delta=1 / 4, ramp=0.2)
