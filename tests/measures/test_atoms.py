"""What changes the list of atoms and not the measure: compact, padded, same_as; and what draws from it: sample."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measure_examples import arrays, discrete, spacetime
from measureformer.measures import atomic
from measureformer.numerics.buckets import bucket

seeds = st.integers(0, 2**31)
kinds = pytest.mark.parametrize("kind", ["Discrete", "SpaceTime"])
# a logarithm of size ≤ 3 and its exponential, sums of a few terms
ROUNDING = 1e-14


def made(kind: str, points: Any, weights: Any, times: Any) -> Any:
    if kind == "Discrete":
        return mf.Discrete.weighted(points, weights)
    return mf.SpaceTime.weighted(points, times, weights)


def keys(mu: Any) -> list[tuple[float, ...]]:
    """The place of every atom, time included, as exact numbers."""
    places = [mu.points] if isinstance(mu, mf.Discrete) else [mu.points, np.asarray(mu.times)[:, None]]
    return [tuple(float(x) for x in row) for row in np.concatenate(places, axis=1)]


def tied(kind: str, seed: int) -> Any:
    """Many atoms on few places, signed zeros among them, a third without mass."""
    rng = np.random.default_rng(seed)
    points = rng.choice([-0.0, 0.0, 1.0], size=(24, 2))
    return made(kind, points, arrays(seed, 24)[1], rng.choice([-0.0, 0.0, 1.0], size=24))


@kinds
@settings(max_examples=25)
@given(seed=seeds)
def test_compact_adds_the_masses_of_each_place(kind: str, seed: int) -> None:
    # kills: merging without adding, zero mass kept, the order of sorting, −0.0 and 0.0 told apart, times ignored
    mu = tied(kind, seed)
    masses: dict[tuple[float, ...], float] = defaultdict(float)
    for place, weight in zip(keys(mu), np.asarray(mu.weights).tolist(), strict=True):
        if weight > 0:
            masses[place] += weight  # in Python too, −0.0 == 0.0
    small = mu.compact()
    assert keys(small) == list(masses)
    np.testing.assert_allclose(small.weights, list(masses.values()), rtol=ROUNDING)
    assert type(small) is type(mu)
    again = small.compact()
    assert keys(again) == keys(small)
    np.testing.assert_array_equal(again.log_weights, small.log_weights)


def test_compact_where_weights_underflow() -> None:
    # kills: masses added as numbers, or relative to the largest of all instead of the largest of the group
    mu = mf.Discrete(jnp.asarray([[0.0], [1.0], [0.0]]), jnp.asarray([-1e4, 0.0, -1e4]))
    np.testing.assert_allclose(mu.compact().log_weights, [-1e4 + math.log(2), 0.0], rtol=1e-15)


@kinds
@pytest.mark.parametrize("size", [None, 24, 40])
def test_padded_is_the_same_measure(kind: str, size: int | None) -> None:
    # kills: pad rows at the origin, pad rows with mass
    mu = tied(kind, 0)
    padded = mu.padded(size)
    assert padded.n == (bucket(mu.n) if size is None else size)
    assert keys(padded)[: mu.n] == keys(mu)
    assert set(keys(padded)[mu.n :]) <= {keys(mu)[0]}
    assert (np.asarray(padded.weights)[mu.n :] == 0).all()
    np.testing.assert_array_equal(np.asarray(padded.log_weights)[: mu.n], mu.log_weights)
    assert padded.same_as(mu)
    np.testing.assert_allclose(padded.mean(), mu.mean(), atol=ROUNDING)


@kinds
@settings(max_examples=8)
@given(seed=seeds)
def test_same_as_sees_measures_not_lists(kind: str, seed: int) -> None:
    # kills: arrays compared in order, weights ignored, passive tokens counted, one measure contained in the other
    rng = np.random.default_rng(seed)
    points, weights = arrays(seed, 9)
    times, weights = rng.uniform(size=9), weights + 0.05
    mu = made(kind, points, weights, times)
    order, share = rng.permutation(10), rng.uniform(0.1, 0.9)
    split = np.append(weights, (1 - share) * weights[0])
    split[0] *= share
    all_points, all_times = np.concatenate([points, points[:1]]), np.append(times, times[0])
    nu = made(kind, all_points[order], split[order], all_times[order])
    passive = made(kind, np.concatenate([points, 9 + points]), np.append(weights, 0 * weights), np.tile(times, 2))
    for other in (nu, passive, mu.padded(), mu.compact()):
        assert mu.same_as(other)
        assert other.same_as(mu)
    heavier, further, swapped = weights.copy(), points.copy(), weights.copy()
    heavier[0] += 1e-9
    further[0, 0] += 1e-9
    swapped[[0, 1]] = swapped[[1, 0]]
    different = [
        made(kind, points, heavier, times),
        made(kind, further, weights, times),
        made(kind, points, swapped, times),
        made(kind, points[1:], weights[1:], times[1:]),
        mu * (1 + 1e-9),
    ]
    if kind == "SpaceTime":
        different += [made(kind, points, weights, times + 1e-9), mu.space()]
    for other in different:
        assert not mu.same_as(other)
        assert not other.same_as(mu)


@kinds
def test_same_as_with_a_tolerance(kind: str) -> None:
    # kills: the tolerance applied to the points only, or to the masses only, or a factor in it
    points, weights = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 2.0, 1.0])
    times = np.array([0.0, 0.0, 1.0])
    mu = made(kind, points, weights, times)
    moved, split = points + 0.6e-3, np.array([1.0, 2.0 * (1 + 1e-3), 1.0])
    # the shift has norm 0.85e-3, the change of mass is 2e-3 of a total of 4
    assert mu.same_as(made(kind, moved, weights, times), 1e-3)
    assert not mu.same_as(made(kind, moved, weights, times), 0.8e-3)
    assert mu.same_as(made(kind, points, split, times), 0.6e-3)
    assert not mu.same_as(made(kind, points, split, times), 0.4e-3)


def test_same_as_tells_kinds_and_dimensions_apart() -> None:
    assert not discrete(0).same_as(spacetime(0))
    assert not discrete(0).same_as(mf.Discrete.dirac([0.0]))
    assert not mf.Gaussian([0.0], [[1.0]]).same_as(mf.Discrete.dirac([0.0]))


COUNT = 20_000


@kinds
def test_sample_follows_the_weights(kind: str) -> None:
    """Frequencies within 5 standard errors; those of equal weights are more than 10 away."""
    points, weights = np.arange(14.0).reshape(7, 2), np.array([0, 4, 1, 0, 0, 2, 0])
    mu = made(kind, points, weights, np.arange(7) / 10)
    nu = mu.sample(jax.random.key(0), COUNT)
    assert (nu.n, nu.dim, type(nu)) == (COUNT, 2, type(mu))
    np.testing.assert_allclose(nu.weights, 1 / COUNT, rtol=ROUNDING)
    drawn = (np.asarray(nu.points)[:, 0] / 2).astype(int)
    np.testing.assert_array_equal(nu.points, points[drawn])
    if kind == "SpaceTime":
        np.testing.assert_array_equal(nu.times, drawn / 10)
    counts = np.bincount(drawn, minlength=7)
    assert (counts[weights == 0] == 0).all()
    for law, close in ((weights / 7, True), ((weights > 0) / 3, False)):
        active = law > 0
        error = (law[active] * (1 - law[active]) / COUNT) ** 0.5
        deviations = np.abs(counts[active] / COUNT - law[active]) / error
        assert deviations.max() < 5 if close else deviations.max() > 10
    # draws are independent: neighbours agree with probability Σ p²
    agree, p = drawn[::2] == drawn[1::2], (weights / 7) @ (weights / 7)
    assert abs(agree.mean() - p) < 5 * (p * (1 - p) / (COUNT / 2)) ** 0.5


def test_sample_is_determined_by_its_key() -> None:
    mu = discrete(0)
    first = mu.sample(jax.random.key(0), 50)
    np.testing.assert_array_equal(mu.sample(jax.random.key(0), 50).points, first.points)
    assert not np.array_equal(mu.sample(jax.random.key(1), 50).points, first.points)
    np.testing.assert_array_equal(np.asarray(mu.sample(jax.random.key(0), 60).points)[:50], first.points)
    np.testing.assert_array_equal(jax.jit(lambda key: mu.sample(key, 50).points)(jax.random.key(0)), first.points)


def test_sampling_is_scale_free() -> None:
    mu = discrete(0)
    tiny = mu * 1e-300 * 1e-300
    np.testing.assert_array_equal(tiny.sample(jax.random.key(0), 50).points, mu.sample(jax.random.key(0), 50).points)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("trace", [lambda f: f, jax.jit], ids=["concrete", "jit"])
def test_no_draw_hits_a_passive_token(dtype: Any, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uniform numbers are chosen by hand: 0, the largest below 1, and every value of the distribution function.

    Kills: a number that float32 rounds to 1 and that lies beyond the last atom; sums taken in pairs under `jit`, by
    which a passive token gets a sliver of mass; a search from the wrong side.
    """
    points = np.arange(1000, dtype=dtype)[:, None]
    weights = np.random.default_rng(0).uniform(size=1000).astype(dtype)
    weights[np.random.default_rng(1).uniform(size=1000) < 0.5] = 0
    weights[[0, -1]] = 0
    mu = mf.Discrete.weighted(points, weights)
    sums = [np.cumsum(np.asarray(mu.probabilities(), np.float64)), np.asarray(jnp.cumsum(mu.probabilities()))]
    chosen = np.concatenate([[0.0, 1 - 2.0**-53], *(c[:-1] / c[-1] for c in sums)])
    chosen = chosen[chosen < 1]
    monkeypatch.setattr(atomic, "uniform", lambda key, n: chosen)
    drawn = np.asarray(trace(lambda mu: mu.sample(jax.random.key(0), len(chosen)).points)(mu))[:, 0].astype(int)
    assert (weights[drawn] > 0).all()
    assert drawn[0] == np.flatnonzero(weights)[0]
    assert drawn[1] == np.flatnonzero(weights)[-1]
