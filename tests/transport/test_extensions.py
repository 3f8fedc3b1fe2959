"""The positive, the conditional and the sliced distance: definitions, closed forms, laws."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from transport_examples import by_linear_programming, cloud, prompt

seeds = st.integers(0, 2**32 - 1)
KEY = jax.random.key(5)


def spacetime(seed: int, counts: tuple[int, ...], dim: int = 2, *, order: int = 0) -> mf.SpaceTime:
    """`counts[k]` atoms at time k, shuffled, with mass 1/len(counts) at every time."""
    rng = np.random.default_rng(seed)
    times = np.repeat(np.arange(len(counts), dtype=float), counts)
    weights = rng.uniform(0.2, 1, len(times))
    weights /= len(counts) * np.bincount(times.astype(int), weights)[times.astype(int)]
    shuffled = np.random.default_rng(order).permutation(len(times))
    points = rng.normal(size=(len(times), dim))
    return mf.SpaceTime.weighted(points[shuffled], times[shuffled], weights[shuffled])


def at(sigma: mf.SpaceTime, time: float) -> mf.Discrete:
    return sigma.rows(np.flatnonzero(np.asarray(sigma.times) == time)).space().normalized()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_positive(p: float) -> None:
    # kills: masses compared after normalising, a power instead of the distance
    mu, nu = 2 * cloud(0, 5, 2), 0.5 * cloud(1, 6, 2)
    expected = by_linear_programming(mu.normalized(), nu.normalized(), p) + 1.5
    assert float(mf.positive_wasserstein(mu, nu, p)) == pytest.approx(expected, rel=1e-7)


def test_positive_of_gaussians() -> None:
    g, h = mf.Gaussian([0.0], [[1.0]]), mf.Gaussian([3.0], [[1.0]], log_mass=np.log(3))
    assert float(mf.positive_wasserstein(g, h, 2)) == pytest.approx(5, rel=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("dim", [1, 2])
def test_conditional_is_an_average_over_times(dim: int, p: float) -> None:
    # kills: times ignored, times weighted alike whatever their mass, the average of W_p instead of its power
    sigma, tau = spacetime(0, (1, 3, 1, 4, 2), dim, order=1), spacetime(1, (2, 1, 1, 3, 4), dim, order=2)
    powers = [float(mf.wasserstein(at(sigma, t), at(tau, t), p)) ** p for t in range(5)]
    expected = np.mean(powers) ** (1 / p)
    assert float(mf.conditional_wasserstein(sigma, tau, p)) == pytest.approx(expected, rel=1e-12)
    assert float(mf.conditional_wasserstein(2 * sigma, 2 * tau, p)) == pytest.approx(2 ** (1 / p) * expected, rel=1e-12)
    assert float(mf.wasserstein(sigma, tau, p)) <= expected + 1e-12


def test_conditional_with_one_token_per_time() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50_000, 3))
    sigma, tau = mf.SpaceTime.sequence(x), mf.SpaceTime.sequence(y)
    expected = np.linalg.norm(x - y) / np.sqrt(50_000)
    assert float(mf.conditional_wasserstein(sigma, tau)) == pytest.approx(expected, rel=1e-12)


def test_conditional_unequal_masses_of_times_and_passive_tokens() -> None:
    sigma = mf.SpaceTime.weighted([[0.0], [9.0], [1.0], [0.0]], [0, 0, 1, 7], [0.75, 0, 0.25, 0])
    tau = mf.SpaceTime.weighted([[2.0], [2.0], [1.0]], [1, 1, 0], [0.125, 0.125, 0.75])
    assert float(mf.conditional_wasserstein(sigma, tau, 1)) == pytest.approx(1, rel=1e-12)


def test_conditional_derivatives() -> None:
    """In the points, and in weights that keep the mass of every time."""
    sigma, tau = spacetime(0, (1, 3, 2)), spacetime(1, (2, 3, 1))
    rng = np.random.default_rng(2)
    times = np.asarray(sigma.times).astype(int)
    weights, dx, dw = np.asarray(sigma.weights), rng.normal(size=(6, 2)), 0.1 * rng.normal(size=6)
    dw -= (np.bincount(times, dw) / np.bincount(times))[times]

    def distance(x: Any, w: Any) -> Any:
        return mf.conditional_wasserstein(mf.SpaceTime.weighted(x, sigma.times, w), tau)

    x, step = np.asarray(sigma.points), 1e-6
    found = jax.jvp(distance, (jnp.asarray(x), jnp.asarray(weights)), (dx, dw))[1]
    ahead, behind = (float(distance(x + s * dx, weights + s * dw)) for s in (step, -step))
    assert float(found) == pytest.approx((ahead - behind) / (2 * step), abs=2e-9)
    only_weights = jax.grad(distance, 1)(x, weights) @ dw
    assert abs(float(only_weights)) > 1e-3


def test_sliced_is_an_average_over_lines() -> None:
    mu, nu = 3 * cloud(0, 8, 3), 3 * cloud(1, 6, 3)
    # one line at a time, drawn as the function draws them
    draws = np.asarray(jax.random.normal(KEY, (64,)))[: 4 * 3].reshape(4, 3)
    lines = draws / np.linalg.norm(draws, axis=1, keepdims=True)
    costs = [
        mf.wasserstein(*(m.push(lambda x, t=t: (np.asarray(x) @ t)[:, None]) for m in (mu, nu)), 3) ** 3 for t in lines
    ]
    found = mf.sliced_wasserstein(mu, nu, 3, key=KEY, projections=4)
    assert float(found) == pytest.approx(float(np.mean(costs)) ** (1 / 3), rel=1e-12)


def test_sliced_distance_of_two_points() -> None:
    """E⟨θ, e⟩² = 1/d: for Dirac measures SW_2 = |x−y|/√d."""
    mu, nu = mf.Discrete.dirac(np.zeros(4)), mf.Discrete.dirac([3.0, 0, 4, 0])
    count = 4096
    found = float(mf.sliced_wasserstein(mu, nu, key=KEY, projections=count)) ** 2
    # ⟨θ, e⟩² has variance 2(d−1)/(d²(d+2))
    error = 25 * np.sqrt(2 * 3 / (16 * 6) / count)
    assert found == pytest.approx(25 / 4, abs=5 * error)
    assert abs(25 / 3 - 25 / 4) > 10 * error


@settings(max_examples=10)
@given(seeds)
def test_sliced_laws(seed: int) -> None:
    sliced = partial(mf.sliced_wasserstein, key=KEY, projections=16)
    mu, nu, third = cloud(seed, 7, 2), cloud(seed + 1, 5, 2), prompt(seed + 2, 6, 2)
    distance = float(sliced(mu, nu))
    assert float(sliced(nu, mu)) == pytest.approx(distance, rel=1e-12)
    assert distance <= float(mf.wasserstein(mu, nu)) + 1e-12
    assert distance <= float(sliced(mu, third)) + float(sliced(third, nu)) + 1e-12
    assert float(sliced(mu, mu.rows(np.arange(7)[::-1]))) < 1e-7
