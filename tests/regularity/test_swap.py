"""The first two tokens of a causal sequence change places: two outputs move, and W_1 in space and time stretches."""

from __future__ import annotations

import math

import numpy as np
import pytest

import measureformer as mf


def swapped(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(n).uniform(-1, 1, size=(n, 1))
    X[:2] = [[-1.0], [1.0]]
    return X, X[[1, 0, *range(2, n)]]


def head(a: float) -> mf.Attention:
    return mf.Attention.head([[a]], [[1.0]], [[1.0]])


@pytest.mark.parametrize("a", [0.0, 1.0, 3.0])
def test_only_the_first_two_outputs_move(a: float) -> None:
    # kills: "every average that follows changes"
    X, Y = swapped(40)
    one = mf.Causal(head(a))
    gap = np.abs(one.tokens(X) - one.tokens(Y))[:, 0]
    assert gap[2:].max() < 1e-14
    q = 1 / (1 + math.exp(2 * a))
    np.testing.assert_allclose(gap[:2], [2, 2 * (1 - 2 * q)], atol=1e-12)
    # a second layer reads two outputs that have moved
    two = one @ mf.Residual(one)
    assert np.abs(two.tokens(X) - two.tokens(Y))[2:].max() > 1e-3


@pytest.mark.parametrize("a", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("n", [20, 60])
def test_the_stretch_of_w1_whatever_the_later_tokens(n: int, a: float) -> None:
    # kills: n|x − y|/2 for every A; a factor 2; the other token's attention
    times = (np.arange(n) + 1.0)[:, None] / n
    clouds = [mf.Discrete.uniform(np.hstack([X, times])) for X in swapped(n)]
    images = [mf.Discrete.uniform(np.hstack([mf.Causal(head(a)).tokens(X), times])) for X in swapped(n)]
    ratio = float(mf.wasserstein(*images, p=1)) / float(mf.wasserstein(*clouds, p=1))
    q = 1 / (1 + math.exp(2 * a))
    assert ratio == pytest.approx(min(math.hypot(1, 2 * n * q), 2 * n * (1 - q)), rel=1e-9)
