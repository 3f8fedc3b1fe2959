"""Composition, sums, multiples, residuals, masks: the algebra of maps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf

D = 3
few = settings(max_examples=5)


def layers(seed: int) -> tuple[Any, Any, Any]:
    keys = jax.random.split(jax.random.key(seed), 3)
    first = mf.Residual(mf.Attention.random(keys[0], D, heads=2))
    second = mf.MLP.random(keys[1], D, width=4, activation="tanh")
    return first, second, mf.Residual(mf.L2Attention.random(keys[2], D))


def measure(seed: int, n: int = 12) -> mf.Discrete:
    rng = np.random.default_rng(seed)
    return mf.Discrete.weighted(rng.normal(size=(n, D)), rng.uniform(0.1, 1, n))


def points(seed: int) -> np.ndarray:
    return np.random.default_rng(seed + 1).normal(size=(4, D))


@few
@given(seed=st.integers(0, 10**6))
def test_composition_is_associative_and_functorial(seed: int) -> None:
    # kills: a later layer that reads the original context
    a, b, c = layers(seed % 5)
    mu, x = measure(seed), points(seed)
    left, right = ((c @ b) @ a)(mu, x), (c @ (b @ a))(mu, x)
    np.testing.assert_array_equal(left, right)
    moved = a.push(mu)
    np.testing.assert_allclose((b @ a)(mu, x), b(moved, a(mu, x)), atol=1e-13)
    np.testing.assert_allclose((c @ a)(mu, x), c(moved, a(mu, x)), atol=1e-13)
    assert np.abs(np.asarray((c @ a)(mu, x)) - np.asarray(c(mu, a(mu, x)))).max() > 1e-6
    np.testing.assert_allclose((c @ b @ a).push(mu).points, c.push(b.push(moved)).points, atol=1e-13)
    # a composition inside a skip reads the same pushed context, at atoms and elsewhere
    skip = mf.Residual(c @ a)
    np.testing.assert_allclose(skip(mu, x), x + np.asarray((c @ a)(mu, x)), atol=1e-13)
    np.testing.assert_allclose(skip.push(mu).points, skip(mu, mu.points), atol=1e-13)


def test_identity_is_the_unit() -> None:
    a, _, _ = layers(0)
    mu, x = measure(0), points(0)
    for composed in (mf.Identity() @ a, a @ mf.Identity()):
        np.testing.assert_array_equal(composed(mu, x), a(mu, x))
    assert mf.Identity().push(mu).same_as(mu)


@few
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([-2.0, 0.25]))
def test_sums_multiples_and_residuals(seed: int, factor: float) -> None:
    a, b, _ = layers(seed % 5)
    mu, x = measure(seed), points(seed)
    va, vb = np.asarray(a(mu, x)), np.asarray(b(mu, x))
    np.testing.assert_allclose((a + b)(mu, x), va + vb, atol=1e-13)
    np.testing.assert_allclose((a - b)(mu, x), va - vb, atol=1e-13)
    for scaled in (factor * a, a * factor, np.float64(factor) * a, jax.numpy.asarray(factor) * a):
        np.testing.assert_allclose(scaled(mu, x), factor * va, atol=1e-13)
    np.testing.assert_allclose(mf.Residual(b, step=factor)(mu, x), x + factor * vb, atol=1e-13)
    summed = (a + factor * b).push(mu)
    np.testing.assert_allclose(summed.points, (a + factor * b)(mu, mu.points), atol=1e-13)


def test_a_scalar_does_not_decide_the_precision() -> None:
    single = mf.Linear(np.eye(2, dtype=np.float32))
    mu = mf.Discrete.dirac(np.ones(2, np.float32))
    for G in (0.5 * single, mf.Residual(single, step=0.1), np.float64(2) * single):
        assert G(mu, np.ones(2, np.float32)).dtype == np.float32


@few
@given(seed=st.integers(0, 10**6))
def test_causal_is_a_functor_and_reads_pairs(seed: int) -> None:
    a, b, c = layers(seed % 5)
    rng = np.random.default_rng(seed)
    sigma = mf.SpaceTime.weighted(rng.normal(size=(10, D)), rng.integers(0, 4, 10) / 3, rng.uniform(0.1, 1, 10))
    x, t = points(seed), np.full(4, 0.9)
    whole, parts = mf.Causal(c @ b @ a), mf.Causal(c) @ mf.Causal(b) @ mf.Causal(a)
    np.testing.assert_allclose(whole(sigma, x, t), parts(sigma, x, t), atol=1e-13)
    np.testing.assert_allclose(whole.push(sigma).points, parts.push(sigma).points, atol=1e-13)
    # masking twice is masking once
    np.testing.assert_array_equal(mf.Causal(whole)(sigma, x, t), whole(sigma, x, t))
    # reordering pairs (x_i, t_i) changes nothing, reordering the x_i alone does
    order = rng.permutation(10)
    np.testing.assert_allclose(whole(sigma.rows(order), x, t), whole(sigma, x, t), atol=1e-13)


def test_order_matters_to_a_causal_map_only() -> None:
    a, _, _ = layers(1)
    X = np.random.default_rng(3).normal(size=(6, D))
    plain, masked = np.asarray(a.tokens(X)), np.asarray(mf.Causal(a).tokens(X))
    np.testing.assert_allclose(np.asarray(a.tokens(X[::-1]))[::-1], plain, atol=1e-13)
    assert np.abs(np.asarray(mf.Causal(a).tokens(X[::-1]))[::-1] - masked).max() > 1e-2
    # the last token of a prompt sees all of it
    np.testing.assert_allclose(masked[-1], plain[-1], atol=1e-13)


def test_future_tokens_change_nothing_at_all() -> None:
    net = mf.Transformer.random(jax.random.key(0), dim=D, depth=2, causal=True)
    X = np.random.default_rng(4).normal(size=(12, D))
    changed = X.copy()
    changed[7:] *= -50
    before, after = np.asarray(net.tokens(X)), np.asarray(net.tokens(changed))
    np.testing.assert_array_equal(before[:7], after[:7])
    assert np.abs(before[7:] - after[7:]).max() > 1e-3


def test_unmasked_attention_ignores_time() -> None:
    a, _, _ = layers(2)
    rng = np.random.default_rng(5)
    sigma = mf.SpaceTime.uniform(rng.normal(size=(8, D)), rng.uniform(size=8))
    np.testing.assert_allclose(a(sigma, points(5)), a(sigma.space(), points(5)), atol=1e-14)
    positioned = a @ mf.Positional(lambda t: t[:, None] * np.ones(D))
    np.testing.assert_allclose(
        positioned(sigma, points(5), 0.5),
        a(sigma.space().push(lambda y: y + sigma.times[:, None]), points(5) + 0.5),
        atol=1e-13,
    )


def test_strings_say_the_structure() -> None:
    a, b, _ = layers(0)
    assert str(mf.Causal(b @ a)) == "Causal(MLP ⋄ Residual(Attention[2 heads]))"
    assert str(0.5 * a + b) == "(Scaled(Residual(Attention[2 heads])) + MLP)"


def test_depth_and_layers() -> None:
    a, b, c = layers(0)
    net = mf.Transformer(a, b, c)
    mu, x = measure(1), points(1)
    assert net.depth == 3
    assert net.layers == (a, b, c)
    np.testing.assert_array_equal(net(mu, x), (c @ b @ a)(mu, x))


@pytest.mark.parametrize("depth", [1, 8])
def test_residual_steps_are_explicit_euler(depth: int) -> None:
    # x' = mean − x relaxes each atom towards the mean, which stays where it is: closed form (1 − h)^L
    velocity = mf.Attention.head(np.zeros((D, D)), np.zeros((D, D)), np.eye(D)) - mf.Identity()
    mu, h = measure(2), 0.1
    net = mf.Transformer(*[mf.Residual(velocity, step=h)] * depth)
    mean = np.asarray(mu.mean())
    expected = mean + (1 - h) ** depth * (np.asarray(mu.points) - mean)
    np.testing.assert_allclose(net.push(mu).points, expected, atol=1e-13)
