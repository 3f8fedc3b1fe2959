"""Token mixers as maps, and which of them tell contexts apart."""

from __future__ import annotations

import numpy as np
import pytest

import measureformer as mf
from measureformer.errors import DimensionMismatchError, OptionError, ShapeError, TimeError
from measureformer.sequences import mixers, yun

RNG = np.random.default_rng(5)


def test_mixers_are_their_formulas() -> None:
    n, d = 5, 2
    W, P, kernel, X = RNG.normal(size=(d, d)), RNG.normal(size=(n, n)), RNG.normal(size=(3, d)), RNG.normal(size=(n, d))
    np.testing.assert_allclose(mixers.Bilinear(W, P).tokens(X), P @ X @ W.T, atol=1e-12)
    truth = np.zeros((n, d))
    for k in range(n):
        for s in range(3):
            if 0 <= k + s - 1 < n:
                truth[k] += W @ (kernel[s] * X[k + s - 1])
    np.testing.assert_allclose(mixers.SeparableConv(kernel, W, n=n).tokens(X), truth, atol=1e-12)
    layer = mf.Residual(mixers.Bilinear(W, P))
    np.testing.assert_allclose(layer.tokens(X), X + P @ X @ W.T, atol=1e-12)


def test_mixers_refuse() -> None:
    with pytest.raises(TimeError, match="of 3 tokens"):
        mixers.Bilinear(np.eye(1), np.eye(3)).tokens(np.zeros((2, 1)))
    with pytest.raises(ShapeError, match=r"\(n, n\)"):
        mixers.Bilinear(np.eye(1), np.ones((2, 3)))
    with pytest.raises(DimensionMismatchError, match="w odd"):
        mixers.SeparableConv(np.ones((2, 1)), np.eye(1), n=3)
    with pytest.raises(OptionError, match="n ≤ tokens"):
        mixers.told_apart(lambda X: X, tokens=2, n=3)


def conv(X: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    wide = np.pad(X, ((0, 0), (1, 1), (0, 0)))
    return X + sum(kernel[s] * wide[:, s : s + X.shape[1]] for s in range(3))


def test_which_mixers_are_contextual_mappings() -> None:
    n, tokens = 4, 5
    generic = np.random.default_rng(0).normal(size=(n, n))
    assert mixers.told_apart(lambda X: X + generic @ X, tokens=tokens, n=n).contextual
    # a convolution does not hear of the far end; two or three of them do
    kernel = np.random.default_rng(1).normal(size=(3, 3))
    once = mixers.told_apart(lambda X: conv(X, kernel[0]), tokens=tokens, n=n)
    assert not once.contextual
    assert once.witness is not None
    deep = mixers.told_apart(lambda X: conv(conv(conv(X, kernel[0]), kernel[1]), kernel[2]), tokens=tokens, n=n)
    assert deep.contextual
    # a mean is the same for contexts with the same sum, and no mixing at all tells nothing
    assert not mixers.told_apart(lambda X: X + 0.37 * X.mean(axis=1, keepdims=True), tokens=6, n=3).contextual
    assert not mixers.told_apart(np.sin, tokens=tokens, n=n).contextual
    net = yun.compile_yun(lambda X: X, d=1, n=3, delta=1 / 4)
    assert mixers.told_apart(lambda X: net.context_ids(X)[..., None], tokens=4, n=3, tol=1e-12).contextual
