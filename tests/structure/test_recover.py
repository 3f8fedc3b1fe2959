"""Recovered maps: equal to the map that f was made from, on the support and off it, composed, merged, many at once."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import OptionError, SupportError, TracedError
from measureformer.structure.black_box import BlackBox
from measureformer.structure.weights import binary_marks, carriers, linear_marks

KEY = jax.random.key(3)
A = np.array([[1.0, 0.4], [-0.3, 0.8]])
LAYER = mf.Residual(mf.Attention.head(A, np.eye(2), 0.7 * np.eye(2)))
RELU = mf.MLP(np.eye(2), None, np.eye(2), None)
MAPS = {
    "attention": LAYER,
    "composition": mf.Residual(mf.MLP.random(KEY, 2, width=6, activation="tanh")) @ LAYER,
    "layer norm": mf.LayerNorm([1.0, 2.0], [0.5, 0.0]) @ LAYER,
    "merging": RELU @ LAYER,
    "another dimension": mf.Linear([[1.0, -1.0]]) @ LAYER,
}


def shuffled(G: mf.AbstractInContextMap) -> Any:
    """The push-forward as a black box that gives no order away, and joins what coincides."""

    def f(mu: mf.Discrete) -> mf.Discrete:
        nu = G.push(mu).compact()
        return nu.rows(np.lexsort(np.asarray(nu.points).T))

    return f


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("weights", ["equal", "random"])
def test_recovered_map_is_the_map(name: str, weights: str) -> None:
    # kills: labels by order (the box sorts), by equal weights, marks lost in merged atoms
    G, rng = MAPS[name], np.random.default_rng(0)
    points, mass = rng.uniform(-1, 1, (7, 2)), np.ones(7) if weights == "equal" else rng.uniform(0.2, 1, 7)
    mu = mf.Discrete.weighted(points, mass)
    found = mf.recover(shuffled(G))
    # off the support the error is the reaction to a mass of some 1e-11, merged queries have binary marks up to 1e-6
    x = rng.uniform(-1, 1, (9, 2))
    np.testing.assert_allclose(found(mu, x), G(mu, x), rtol=0, atol=1e-5 if name == "merging" else 1e-9)
    np.testing.assert_allclose(found(mu, points), G(mu, points), rtol=0, atol=1e-14)
    assert found.push(mu).same_as(G.push(mu), 1e-12)


def test_one_evaluation_for_many_queries_and_none_for_the_same() -> None:
    # kills: an evaluation per query, no memory
    box = BlackBox(LAYER)
    mu, x = mf.Discrete.uniform(np.eye(2)), np.random.default_rng(1).uniform(-1, 1, (500, 2))
    found = mf.recover(box)
    value = found(mu, x)
    assert box.calls == 2
    np.testing.assert_array_equal(found(mu, x), value)
    assert box.calls == 2
    np.testing.assert_allclose(value, LAYER(mu, x), rtol=0, atol=1e-7)


def test_the_estimate_of_the_error_holds() -> None:
    rng = np.random.default_rng(2)
    mu, x = mf.Discrete.uniform(rng.uniform(-1, 1, (5, 2))), rng.uniform(-1, 1, (40, 2))
    for eps in (None, 1e-6, 1e-4):
        found = mf.recover(LAYER.push, eps=eps).estimate(mu, x)
        error = np.linalg.norm(np.asarray(found.value) - np.asarray(LAYER(mu, x)), axis=1)
        assert (error <= np.asarray(found.error)).all()
    assert 1e-6 < float(np.asarray(found.error).max()) < 1  # at eps = 1e-4 it is no longer rounding


def test_recovered_maps_compose_add_and_scale() -> None:
    rng = np.random.default_rng(4)
    mu, x = mf.Discrete.weighted(rng.uniform(-1, 1, (4, 2)), [1.0, 2.0, 3.0, 4.0]), rng.uniform(-1, 1, (3, 2))
    found = mf.recover(LAYER.push)
    pairs = [
        (found @ found, LAYER @ LAYER),
        (RELU @ found, RELU @ LAYER),
        (0.5 * found + RELU, 0.5 * LAYER + RELU),
        (mf.Residual(found), mf.Residual(LAYER)),
        (mf.Transformer(found, RELU), mf.Transformer(LAYER, RELU)),
    ]
    for mine, truth in pairs:
        np.testing.assert_allclose(mine(mu, x), truth(mu, x), rtol=0, atol=1e-8)
        np.testing.assert_allclose(mine.push(mu).points, truth.push(mu).points, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.tokens(mu.points), LAYER.tokens(mu.points), atol=1e-12)


def test_a_flow_is_recovered() -> None:
    birds = mf.flows.CuckerSmale(1.0, 1.0, 0.5)
    phi = mf.flow(birds, mf.Discrete.dirac([0.0, 0.0]), [0.0, 1.0], solver="rk4", steps=4).map(1.0)
    rng = np.random.default_rng(5)
    mu, x = mf.Discrete.uniform(rng.normal(size=(6, 2))), rng.normal(size=(3, 2))
    np.testing.assert_allclose(mf.recover(phi.push)(mu, x), phi(mu, x), atol=1e-6)


def test_parametrisation_does_not_matter() -> None:
    # (Q, K) and (MQ, M^{-T}K) give the same layer; multiplying Q on the right does not
    M = np.array([[2.0, 1.0], [0.5, 1.0]])
    rng = np.random.default_rng(6)
    mu, x = mf.Discrete.uniform(rng.normal(size=(5, 2))), rng.normal(size=(4, 2))
    same, other = (
        mf.Attention.head(M @ A, np.linalg.inv(M).T, np.eye(2)),
        mf.Attention.head(A @ M, np.eye(2), np.eye(2)),
    )
    truth = mf.recover(mf.Attention.head(A, np.eye(2), np.eye(2)).push)(mu, x)
    np.testing.assert_allclose(mf.recover(same.push)(mu, x), truth, atol=1e-9)
    assert np.abs(mf.recover(other.push)(mu, x) - truth).max() > 0.1


def test_single_precision_boxes_are_read_with_heavier_marks() -> None:
    rng = np.random.default_rng(7)
    single = mf.Residual(mf.Attention.head(*(m.astype(np.float32) for m in (A, np.eye(2), np.eye(2)))))

    def f(mu: mf.Discrete) -> mf.Discrete:
        rows = jax.tree.map(lambda array: jax.device_put(np.asarray(array, np.float32)), mu)
        return single.push(rows)

    mu, x = mf.Discrete.uniform(rng.uniform(-1, 1, (5, 2))), rng.uniform(-1, 1, (3, 2))
    np.testing.assert_allclose(mf.recover(f)(mu, x), single(mu, x), atol=2e-3)
    np.testing.assert_allclose(mf.recover(f)(mu, mu.points), single(mu, mu.points), atol=1e-5)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), binary=st.booleans())
def test_marks_are_read_back(seed: int, binary: bool) -> None:
    # atoms merge at random: with binary marks every carrier is found, with linear ones those that carry one mark
    rng = np.random.default_rng(seed)
    heavy = rng.uniform(0.1, 1, 6)
    heavy /= heavy.sum()
    count = 12
    marks = binary_marks(count, 2.0**-44) if binary else linear_marks(count, 1e-12)
    out, owner = np.concatenate([heavy, np.zeros(4)]), rng.integers(0, 10, count)
    np.add.at(out, owner, marks)
    order = rng.permutation(np.flatnonzero(out > 0))
    found = carriers(heavy, out[order], marks, 2.0**-52, binary=binary)
    alone = np.bincount(owner, minlength=10)[owner] == 1
    expected = np.array([np.flatnonzero(order == k)[0] for k in owner])
    np.testing.assert_array_equal(found[alone | binary], expected[alone | binary])


def test_refusals() -> None:
    mu = mf.Discrete.uniform(np.eye(2))
    with pytest.raises(OptionError, match="eps"):
        mf.recover(LAYER.push, eps=0.0)
    with pytest.raises(TracedError, match="eagerly"):
        jax.jit(lambda x: mf.recover(LAYER.push)(mu, x))(np.zeros((1, 2)))

    def halves(mu: mf.Discrete) -> mf.Discrete:
        return 0.5 * mu.push(lambda x: x - 0.1) + 0.5 * mu.push(lambda x: x + 0.1)

    with pytest.raises(SupportError, match="not found again"):
        mf.recover(halves)(mu, [0.3, 0.3])
