"""Sigmoid and differential attention: against the dense formula, against each other's limits, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import measureformer as mf
from measureformer.errors import DimensionMismatchError, NoClosedFormError, ShapeError

RNG = np.random.default_rng(0)
Q, K, V, Q2, K2 = (RNG.normal(size=(2, 3, 3)) for _ in range(5))
W = RNG.normal(size=(2, 3, 3))
X, A = RNG.normal(size=(7, 3)), RNG.uniform(0.1, 1, 7)
MU, Y = mf.Discrete.weighted(X, A), RNG.normal(size=(4, 3))


def test_sigmoid_attention_is_the_dense_sum() -> None:
    # kills: a sum that is not divided by the mass, a bias that is forgotten
    G = mf.SigmoidAttention(Q, K, V, W, scale=0.5, bias=-0.7)
    logits = 0.5 * np.einsum("mi,hki,hkj,nj->hmn", Y, Q, K, X) - 0.7
    weights = A / A.sum() / (1 + np.exp(-logits))
    np.testing.assert_allclose(G(MU, Y), np.einsum("hmn,nj,hej,hoe->mo", weights, X, V, W), atol=1e-13)


def test_masked_sigmoid_attention_is_that_of_what_is_seen() -> None:
    # kills: sums over the past that are divided by the mass of the past and the future
    G, times = mf.SigmoidAttention(Q, K, V, W), np.linspace(0.2, 1.0, len(X))
    sigma = mf.SpaceTime.weighted(X, times, A)
    for t in times[[0, 2, -1]]:
        masked = mf.Causal(G)(sigma, Y, np.full(len(Y), t))
        np.testing.assert_allclose(masked, G(mf.Discrete.weighted(X[times <= t], A[times <= t]), Y), atol=1e-13)


def test_far_below_zero_the_sigmoid_is_an_exponential() -> None:
    bias = -30.0
    G, U = mf.SigmoidAttention(Q, K, V, W, bias=bias), mf.UnnormalizedAttention(Q, K, V, W)
    np.testing.assert_allclose(np.exp(-bias) * np.asarray(G(MU, Y / 5)), U(MU, Y / 5), rtol=1e-8)


def test_differential_attention_is_a_difference_with_its_closed_form() -> None:
    # kills: queries and keys of the two that are exchanged, a weight that is squared or forgotten
    G = mf.DifferentialAttention(Q, K, V, W, minus=(Q2, K2), weight=0.3, scale=0.5)
    first, second = mf.Attention(Q, K, V, W, scale=0.5), mf.Attention(Q2, K2, V, W, scale=0.5)
    np.testing.assert_allclose(G(MU, Y), (first - 0.3 * second)(MU, Y), atol=1e-13)
    g = mf.Gaussian([1.0, 0.0, -1.0], np.diag([1.0, 0.5, 0.2]))
    np.testing.assert_allclose(G(g, Y), (first - 0.3 * second)(g, Y), atol=1e-12)
    assert G.push(g).same_as((first - 0.3 * second).push(g), 1e-11)


def test_refusals() -> None:
    with pytest.raises(NoClosedFormError, match="discretize"):
        mf.SigmoidAttention(Q, K, V, W)(mf.Gaussian(np.zeros(3), np.eye(3)), Y)
    with pytest.raises(ShapeError, match="bias"):
        mf.SigmoidAttention(Q, K, V, W, bias=[1.0, 2.0])
    with pytest.raises(DimensionMismatchError, match="h, k, d"):
        mf.DifferentialAttention(Q, K, V, W, minus=(Q2[:1], K2[:1]))
