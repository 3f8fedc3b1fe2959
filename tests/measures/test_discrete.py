"""Discrete measures: constructors, moments, integrals, push-forwards, the cone."""

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
from measure_examples import DIM, aligned, arrays, discrete, spacetime

EPS = np.finfo(np.float64).eps
seeds = st.integers(0, 2**31)
sizes = st.sampled_from([1, 8, 33])
# weights go through a logarithm of size ≤ 3 and back, then sums of ≤ 33 terms of size ≤ 5: far below 1e-13
ROUNDING = 1e-13


def positive(seed: int, n: int) -> mf.Discrete:
    points, weights = arrays(seed, n)
    return mf.Discrete.weighted(points, weights + 0.05)


def test_constructors() -> None:
    points = [[1, 2], [3, 4], [5, 6]]
    mu, nu, delta = mf.Discrete.uniform(points), mf.Discrete.weighted(points, [1, 0, 2]), mf.Discrete.dirac([1, 2])
    np.testing.assert_array_equal(mu.points, points)
    np.testing.assert_allclose(mu.weights, [1 / 3] * 3, rtol=2 * EPS)
    np.testing.assert_allclose(nu.weights, [1, 0, 2], rtol=2 * EPS)
    assert nu.log_weights.tolist()[1] == -math.inf
    np.testing.assert_array_equal(delta.points, [[1.0, 2.0]])
    assert (mu.n, mu.dim, delta.n, float(delta.mass)) == (3, 2, 1, 1.0)


@pytest.mark.parametrize("make", [mf.Discrete.uniform, lambda x: mf.Discrete.weighted(x, np.ones(len(x)))])
def test_the_users_arrays_are_not_shared(make: Any) -> None:
    points = aligned(64, 2)
    mu, moved = make(points), make(points).push(lambda x: points)
    points[:] = np.nan
    assert (np.asarray(mu.points) == 1).all()
    assert (np.asarray(moved.points) == 1).all()
    weights = aligned(64)
    nu = mf.Discrete.weighted(np.zeros((64, 2)), weights)
    weights[:] = 7
    assert float(nu.mass) == pytest.approx(64, rel=ROUNDING)


@settings(max_examples=40)
@given(seeds, sizes)
def test_moments_agree_with_numpy(seed: int, n: int) -> None:
    # kills: weights ignored, mass not divided out, n−1 in the covariance, passive tokens counted in the radius
    points, weights = arrays(seed, n)
    weights[-1] = 0.7  # a single atom is not passive
    mu = mf.Discrete.weighted(points, weights)
    mean = np.average(points, axis=0, weights=weights)
    spread = points - mean
    assert float(mu.mass) == pytest.approx(math.fsum(weights), rel=ROUNDING)
    assert float(mu.log_mass) == pytest.approx(math.log(math.fsum(weights)), abs=ROUNDING)
    np.testing.assert_allclose(mu.weights, weights, rtol=ROUNDING)
    np.testing.assert_allclose(mu.probabilities(), weights / weights.sum(), rtol=ROUNDING)
    np.testing.assert_allclose(mu.mean(), mean, atol=ROUNDING)
    covariance = np.average(spread[:, :, None] * spread[:, None, :], axis=0, weights=weights)
    np.testing.assert_allclose(mu.covariance(), covariance, atol=ROUNDING)
    np.testing.assert_allclose(
        mu.second_moment(), np.average(points[:, :, None] * points[:, None, :], axis=0, weights=weights), atol=ROUNDING
    )
    assert float(mu.radius()) == pytest.approx(max(math.hypot(*p) for p in points[weights > 0]), rel=ROUNDING)
    values = np.sin(points)
    np.testing.assert_allclose(mu.integrate(np.sin), weights @ values, atol=ROUNDING)
    np.testing.assert_allclose(mu.integrate(lambda x: np.sin(x)[:, 0]), weights @ values[:, 0], atol=ROUNDING)


@settings(max_examples=15)
@given(seeds, sizes)
def test_mass_does_not_matter_to_the_normalised(seed: int, n: int) -> None:
    # kills: a moment that forgets to normalise; weights/sum(weights), which is 0/0 for the tiny measure
    mu = positive(seed, n)
    tiny, huge = mu * 1e-300 * 1e-300, mu * 1e300 * 1e300
    for nu in (3 * mu, tiny, huge):
        # log-weights of size 1400 are rounded to 1400·eps
        np.testing.assert_allclose(nu.mean(), mu.mean(), atol=10 * ROUNDING)
        np.testing.assert_allclose(nu.covariance(), mu.covariance(), atol=10 * ROUNDING)
        np.testing.assert_allclose(nu.normalized().weights, mu.normalized().weights, atol=10 * ROUNDING)
        assert float(nu.normalized().mass) == pytest.approx(1, abs=10 * ROUNDING)
    assert float(tiny.log_mass) == pytest.approx(float(mu.log_mass) - 600 * math.log(10), rel=ROUNDING)
    assert float((3 * mu).mass) == pytest.approx(3 * float(mu.mass), rel=ROUNDING)


FUNCTIONALS = {
    "mass": lambda mu: mu.mass,
    "mean": lambda mu: mu.mean(),
    "covariance": lambda mu: mu.covariance(),
    "second moment": lambda mu: mu.second_moment(),
    "radius": lambda mu: mu.radius(),
    "integral": lambda mu: mu.integrate(lambda x: np.cos(np.asarray(x))),
    "image": lambda mu: mu.push(lambda x: np.asarray(x) ** 2).mean(),
}


@settings(max_examples=10)
@given(seeds)
def test_functionals_see_measures_not_lists(seed: int) -> None:
    # kills: weights ignored (which splitting every atom alike would not notice), the order read, passive tokens felt
    rng, mu = np.random.default_rng(seed), positive(seed, 8)
    points, weights = np.asarray(mu.points), np.asarray(mu.weights)
    share = rng.uniform(0.1, 0.9)
    split = np.append(weights, (1 - share) * weights[0])
    split[0] *= share
    order = rng.permutation(8)
    same = [
        mf.Discrete.weighted(np.concatenate([points, points[:1]]), split),
        mf.Discrete.weighted(points[order], weights[order]),
        mf.Discrete.weighted(np.concatenate([points, 100 + points[:1]]), np.append(weights, 0)),
    ]
    # control: twice as far out, with the second half of the split atom left out
    other = mf.Discrete.weighted(2 * points, split[:-1])
    for name, functional in FUNCTIONALS.items():
        for nu in same:
            np.testing.assert_allclose(functional(nu), functional(mu), atol=1e-12, rtol=0, err_msg=name)
        assert np.abs(np.asarray(functional(other)) - np.asarray(functional(mu))).max() > 1e-6, name
    assert all(nu.same_as(mu) for nu in same)
    assert not other.same_as(mu)


@settings(max_examples=20)
@given(seeds)
def test_push_forward_is_functorial(seed: int) -> None:
    # kills: the second map applied first, weights moved with the order of the images
    mu = discrete(seed)
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(DIM, 3)), rng.normal(size=(3, 1))

    def T(x: Any) -> Any:
        return np.sin(np.asarray(x) @ A)

    def S(y: Any) -> Any:
        return np.asarray(y) @ B + 1

    at_once, in_turn = mu.push(lambda x: S(T(x))), mu.push(T).push(S)
    assert in_turn.dim == 1
    np.testing.assert_array_equal(in_turn.points, at_once.points)
    np.testing.assert_array_equal(in_turn.log_weights, mu.log_weights)
    # change of variables: ∫ h d(T♯mu) = ∫ h∘T dmu
    np.testing.assert_allclose(mu.push(T).integrate(np.cos), mu.integrate(lambda x: np.cos(T(x))), atol=ROUNDING)


def test_integrals_ignore_passive_tokens_whatever_the_value_there() -> None:
    mu = mf.Discrete.weighted([[0.0], [2.0]], [0, 3])
    with np.errstate(divide="ignore"):
        assert float(mu.integrate(lambda x: 1 / np.asarray(x)[:, 0])) == pytest.approx(1.5, rel=ROUNDING)
    # under a trace too
    traced = jax.jit(lambda mu: mu.integrate(lambda x: jnp.stack([1 / x[:, 0], x[:, 0]], axis=1)))(mu)
    np.testing.assert_allclose(traced, [1.5, 6.0], rtol=ROUNDING)
    assert float(mu.integrate(lambda x: [True, True])) == pytest.approx(3, rel=ROUNDING)
    assert mu.integrate(lambda x: np.ones((2, 4))).shape == (4,)


SCALARS = {"int": 2, "NumPy scalar": np.float64(2), "NumPy array": np.array(2.0), "JAX array": jnp.asarray(2.0)}


@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.parametrize("make", [discrete, spacetime], ids=["Discrete", "SpaceTime"])
def test_scalar_multiples(kind: str, make: Any) -> None:
    # kills: NumPy multiplying entry by entry, a factor applied to points
    factor, mu = SCALARS[kind], make(0)
    for product in (factor * mu, mu * factor, mu / (1 / factor)):
        assert type(product) is type(mu)
        np.testing.assert_array_equal(product.points, mu.points)
        np.testing.assert_allclose(product.weights, 2 * np.asarray(mu.weights), rtol=ROUNDING)
    np.testing.assert_allclose((mu / factor).weights, np.asarray(mu.weights) / 2, rtol=ROUNDING)


def test_the_factor_is_not_rounded_to_its_own_precision() -> None:
    # kills: the logarithm of a float32 factor taken in float32
    factor = np.float32(0.1)
    assert float((factor * mf.Discrete.dirac([0.0])).mass) == pytest.approx(float(factor), rel=ROUNDING)


@settings(max_examples=10)
@given(seeds)
def test_measures_form_a_cone(seed: int) -> None:
    # kills: a sum that normalises, drops the second weights or scales one summand only
    mu, nu = discrete(seed), discrete(seed + 1, n=33)
    total = mu + nu
    assert total.n == 41
    for h in (np.cos, lambda x: np.asarray(x) ** 2):
        np.testing.assert_allclose(
            total.integrate(h), np.asarray(mu.integrate(h)) + np.asarray(nu.integrate(h)), atol=ROUNDING
        )
    assert total.same_as(nu + mu)
    assert (2 * total).same_as(2 * mu + 2 * nu)
    assert (mu + mu).same_as(2 * mu)
    assert ((mu + nu) + mu).same_as(mu + (nu + mu))
    assert not total.same_as(mu + mu)


def test_a_small_atom_is_kept() -> None:
    mu = discrete(0)
    marked = mu + 1e-6 * mf.Discrete.dirac(np.zeros(DIM))
    assert marked.weights.tolist()[-1] == pytest.approx(1e-6, rel=ROUNDING)
    assert marked.n == mu.n + 1


@pytest.mark.parametrize("other", [1.0, "mu", None, [1.0]])
def test_only_measures_of_one_kind_are_added(other: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        discrete(0) + other
    with pytest.raises(TypeError, match="unsupported operand"):
        discrete(0) + spacetime(0)
    with pytest.raises(TypeError, match="unsupported operand"):
        discrete(0) * discrete(0)
    with pytest.raises(TypeError, match="unsupported operand"):
        discrete(0) / discrete(0)
