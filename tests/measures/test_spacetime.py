"""Space–time measures, and what causal layers see of them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measure_examples import aligned, spacetime
from measureformer.measures.spacetime import Prefixes

seeds = st.integers(0, 2**31)
ROUNDING = 1e-13


def test_constructors() -> None:
    points = [[1.0], [2.0], [4.0]]
    sigma = mf.SpaceTime.uniform(points, [0.3, 0.1, 0.2])
    np.testing.assert_array_equal(sigma.times, [0.3, 0.1, 0.2])
    np.testing.assert_allclose(sigma.weights, [1 / 3] * 3, rtol=ROUNDING)
    np.testing.assert_allclose(mf.SpaceTime.weighted(points, [3, 1, 2], [0, 1, 5]).weights, [0, 1, 5], rtol=ROUNDING)
    # kills: times from 0 to (n−1)/n, at which the last token would not be at time 1
    np.testing.assert_array_equal(mf.SpaceTime.sequence(points).times, [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(mf.SpaceTime.sequence(points).weights, [1 / 3] * 3, rtol=ROUNDING)
    assert mf.SpaceTime.sequence(np.ones((3, 1), np.float32)).times.dtype == np.float32


def test_the_users_arrays_are_not_shared() -> None:
    points, times, weights = aligned(64, 2), aligned(64), aligned(64)
    sigma = mf.SpaceTime.weighted(points, times, weights)
    for array in (points, times, weights):
        array[:] = np.nan
    assert (np.asarray(sigma.points) == 1).all()
    assert (np.asarray(sigma.times) == 1).all()
    assert float(sigma.mass) == pytest.approx(64, rel=ROUNDING)


@settings(max_examples=25)
@given(seeds)
def test_until_restricts_to_the_past(seed: int) -> None:
    # kills: times < t, atoms sorted by time, the restriction normalised
    sigma = spacetime(seed, 33)
    times, weights = np.asarray(sigma.times), np.asarray(sigma.weights)
    for t in np.unique(times[weights > 0])[:3]:
        for later in (t, t + 1e-9):
            seen = sigma.until(later)
            assert isinstance(seen, mf.Discrete)
            np.testing.assert_array_equal(seen.points, np.asarray(sigma.points)[times <= t])
            np.testing.assert_allclose(seen.weights, weights[times <= t], rtol=ROUNDING)
    assert sigma.until(times.max()).same_as(sigma.space())


def test_until_rounds_the_time_like_the_atoms() -> None:
    # kills: 0.1 in float64 compared with 0.1 in float32, which is larger
    sigma = mf.SpaceTime.uniform(np.ones((2, 1), np.float32), [0.1, 0.2])
    for t in (0.1, np.float64(0.1), np.float32(0.1), jnp.asarray(0.1), np.array(0.1)):
        assert sigma.until(t).n == 1
    assert mf.SpaceTime.uniform([[0.0]], [1]).until(1).n == 1


def test_space_forgets_time() -> None:
    sigma = spacetime(0)
    space = sigma.space()
    assert isinstance(space, mf.Discrete)
    np.testing.assert_array_equal(space.points, sigma.points)
    np.testing.assert_array_equal(space.log_weights, sigma.log_weights)
    for name in ("mean", "covariance", "radius", "second_moment"):
        np.testing.assert_array_equal(getattr(space, name)(), getattr(sigma, name)())


@settings(max_examples=15)
@given(seeds)
def test_time_is_carried_and_integrated(seed: int) -> None:
    # kills: times sorted, changed or lost by a push; the times of the first summand used twice
    sigma, tau = spacetime(seed), spacetime(seed + 1, 33)
    moved = sigma.push(lambda x, t: np.asarray(x) * np.asarray(t)[:, None])
    np.testing.assert_array_equal(moved.times, sigma.times)
    np.testing.assert_array_equal(moved.log_weights, sigma.log_weights)
    np.testing.assert_array_equal(moved.points, np.asarray(sigma.points) * np.asarray(sigma.times)[:, None])

    def f(x: Any, t: Any) -> Any:
        return np.sin(np.asarray(x)) * np.exp(np.asarray(t))[:, None]

    expected = sum(
        w * f(x[None], t[None])[0]
        for x, t, w in zip(*(np.asarray(entry) for entry in (sigma.points, sigma.times, sigma.weights)), strict=True)
    )
    np.testing.assert_allclose(sigma.integrate(f), expected, atol=ROUNDING)
    np.testing.assert_allclose(
        (sigma + tau).integrate(f), np.asarray(sigma.integrate(f)) + np.asarray(tau.integrate(f)), atol=ROUNDING
    )
    assert (sigma + tau).same_as(tau + sigma)


def test_pairs_matter_not_their_order() -> None:
    # kills: points and times compared separately
    points, times = np.array([[0.0], [1.0]]), np.array([0.1, 0.2])
    sigma = mf.SpaceTime.uniform(points, times)
    assert sigma.same_as(mf.SpaceTime.uniform(points[::-1], times[::-1]))
    assert not sigma.same_as(mf.SpaceTime.uniform(points[::-1], times))


visible_mass = jax.jit(lambda sigma, t: Prefixes(sigma).log_mass_until(t))


@settings(max_examples=25)
@given(seeds)
def test_visible_mass_by_brute_force(seed: int) -> None:
    # kills: a strict inequality, masses not sorted with the times, passive tokens that open the context
    sigma = spacetime(seed, 33)
    times, weights = np.asarray(sigma.times), np.asarray(sigma.weights)
    queries = np.random.default_rng(seed).choice(np.concatenate([times, times - 1e-9, [-1.0, 2.0]]), 12)
    expected = [math.log(total) if (total := weights[times <= t].sum()) > 0 else -math.inf for t in queries]
    np.testing.assert_allclose(visible_mass(sigma, queries), expected, atol=ROUNDING)


def test_prefixes_are_the_measure_itself() -> None:
    sigma = spacetime(0)
    seen = Prefixes(sigma)
    assert (seen.n, seen.dim) == (sigma.n, sigma.dim)
    np.testing.assert_array_equal(seen.times, sigma.times)
    np.testing.assert_array_equal(seen.mean(), sigma.mean())
    for changed, expected in (
        (seen.padded(), sigma.padded()),
        (seen.rows(np.array([4, 1])), sigma.rows(np.array([4, 1]))),
        (seen.compact(), sigma.compact()),
        (2 * seen, 2 * sigma),
    ):
        assert isinstance(changed, Prefixes)
        for left, right in zip(jax.tree.leaves(changed), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(left, right)
