"""Convergence studies against exact variances, closed forms of flows, and quantities with other rates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

import measureformer as mf
from measureformer import errors

LINE = mf.Gaussian([1.0], [[4.0]])


def mean(mu: Any) -> Any:
    return mu.mean()


def first(x: Any) -> Any:
    return x[:, 0]


def mean_of(x: Any, y: Any) -> Any:
    return y


def test_the_mean_has_its_known_error_and_order() -> None:
    # E|mean − m|² = tr Σ/N exactly, in d = 5; kills errors that are not squared, and wrong factors in intervals
    cov = np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    law, sizes = mf.Gaussian(np.arange(5.0), cov), (16, 256)
    study = mf.mean_field.mean_field_rate(mean, law, jax.random.key(0), sizes=sizes, repetitions=400)
    assert study.reference == "closed form"
    spread = (study.interval[:, 1] - study.interval[:, 0]) / 4
    assert (np.abs(study.errors - np.sqrt(15 / np.array(sizes))) < 5 * spread).all()
    low, high = study.order_interval
    assert low < -0.5 < high
    assert high - low < 0.1
    assert study.samples.shape == (2, 400)


def test_intervals_cover_what_they_say() -> None:
    # of 60 intervals of 95 %, all but 3 on average contain the truth; fewer than 48 has probability below 1e-7
    inside, exact = 0, np.sqrt(4 / 64)
    for seed in range(60):
        study = mf.mean_field.mean_field_rate(
            mean, LINE, jax.random.key(seed), sizes=(16, 64), repetitions=50, exact=[1.0]
        )
        inside += int(study.interval[1, 0] < exact < study.interval[1, 1])
        inside += int(study.order_interval[0] < -0.5 < study.order_interval[1])
    assert 96 <= inside < 120


def test_a_flow_in_dimension_five_has_the_rate_of_monte_carlo_and_distances_have_not() -> None:
    # φ_T[N(0, Σ)](x) = (I − 2TΣA)^{-1/2} x for V = I and A symmetric
    rng, d, T = np.random.default_rng(0), 5, 0.2
    A = rng.normal(size=(d, d))
    A = (A + A.T) / 6
    law, x = mf.Gaussian(np.zeros(d), np.eye(d)), rng.normal(size=d)
    G = mf.Attention.head(A, np.eye(d), np.eye(d))

    def end(mu: Any) -> Any:
        # x as a passive token among the others
        start = mf.Discrete(jnp.concatenate([mu.points, x[None]]), jnp.append(mu.log_weights, -jnp.inf))
        return mf.flow(G, start, [0, T], solver="rk4", steps=4).points[-1, -1]

    exact = np.linalg.inv(np.real(sqrtm(np.eye(d) - 2 * T * A))) @ x
    key = jax.random.key(0)
    study = mf.mean_field.mean_field_rate(end, law, key, sizes=(32, 256), repetitions=128, exact=exact)
    assert study.order_interval[0] - 0.05 < -0.5 < study.order_interval[1] + 0.05

    def apart(mu: Any) -> Any:
        half = mu.n // 2
        one, two = (mf.Discrete.uniform(rows) for rows in (mu.points[:half], mu.points[half:]))
        return mf.wasserstein(one, two, 1)

    slow = mf.mean_field.mean_field_rate(apart, law, key, sizes=(32, 256), repetitions=16, exact=0.0)
    assert -0.35 < slow.order < -0.15
    assert slow.order_interval[1] > -0.4


def test_without_a_closed_form_a_larger_sample_is_the_reference() -> None:
    G = mf.flows.Interaction(lambda x, y: y * jnp.exp(0.2 * x * y))

    def value(mu: Any) -> Any:
        return G(mu, [1.0])

    study = mf.mean_field.mean_field_rate(value, LINE, jax.random.key(0), sizes=(16, 64), repetitions=100)
    assert study.reference == "sample of 4096 tokens"
    # e^{a m + a²s²/2}(m + a s²) for ∫ y e^{ay}, with a = 0.2, m = 1, s² = 4
    exact = np.exp(0.2 + 0.08) * 1.8
    again = mf.mean_field.mean_field_rate(
        value, LINE, jax.random.key(0), sizes=(16, 64), repetitions=100, exact=[exact]
    )
    np.testing.assert_allclose(study.errors, again.errors, rtol=0.1)


def test_pairs_of_tokens_that_the_mean_carries() -> None:
    # X_i = x_i + c·mean: Cov(X_1, X_2) = ((1 + c)² − 1) σ²/N exactly; kills the bias of centring (few repetitions)
    T = mf.Residual(mf.flows.Interaction(mean_of), 0.5)
    found = mf.mean_field.pair_covariance(T, first, LINE, jax.random.key(0), sizes=(4, 32), repetitions=4000)
    exact = 1.25 * 4 / np.array(found.sizes)
    assert (np.abs(found.covariances - exact) < 5 * found.standard_errors).all()
    assert found.order_interval[0] < -1 < found.order_interval[1]
    few = [
        mf.mean_field.pair_covariance(T, first, LINE, key, sizes=(4, 8), repetitions=3).covariances[0]
        for key in jax.random.split(jax.random.key(1), 60)
    ]
    assert abs(np.mean(few) - 1.25) < 5 * np.std(few) / np.sqrt(60)
    assert np.mean(few) * 2 / 3 < 1.25 - 0.2  # what it would be with the bias


def test_independent_tokens_have_no_covariance() -> None:
    found = mf.mean_field.pair_covariance(
        mf.Linear([[2.0]]), lambda x: jnp.sin(x[:, 0]), LINE, jax.random.key(3), sizes=(8, 32)
    )
    assert (np.abs(found.covariances) < 5 * found.standard_errors).all()


def test_refusals() -> None:
    key = jax.random.key(0)
    with pytest.raises(errors.OptionError, match="increasing"):
        mf.mean_field.mean_field_rate(mean, LINE, key, sizes=(64, 16))
    with pytest.raises(errors.OptionError, match="one has no spread"):
        mf.mean_field.mean_field_rate(mean, LINE, key, repetitions=1)
    with pytest.raises(errors.DtypeError, match=r"jax\.random\.key"):
        mf.mean_field.mean_field_rate(mean, LINE, 0)
    with pytest.raises(errors.DtypeError, match=r"sample\(key, n\)"):
        mf.mean_field.mean_field_rate(mean, np.ones((5, 2)), key)
    with pytest.raises(errors.ShapeError, match="one shape"):
        mf.mean_field.mean_field_rate(mean, LINE, key, exact=0.0)
    with pytest.raises(errors.OptionError, match="does not depend"):
        mf.mean_field.mean_field_rate(lambda mu: jnp.zeros(1), LINE, key, exact=[0.0])
    with pytest.raises(errors.DtypeError, match="an in-context map"):
        mf.mean_field.pair_covariance(np.sin, first, LINE, key)
    with pytest.raises(errors.OptionError, match="two tokens"):
        mf.mean_field.pair_covariance(mf.Identity(), first, LINE, key, sizes=(1, 2))
    with pytest.raises(errors.ShapeError, match="one number for each"):
        mf.mean_field.pair_covariance(mf.Identity(), lambda x: x, LINE, key)
