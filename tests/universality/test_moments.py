"""Separation made constructive: moments from L_1, atoms from moments, and the hypothesis of the masked theorem."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import quad

import measureformer as mf
from measureformer import errors
from measureformer.universality.moments import atoms_of_moments

universality = mf.universality


def line(seed: int, n: int) -> mf.Discrete:
    rng = np.random.default_rng(seed)
    return mf.Discrete.weighted(
        np.linspace(-0.9, 0.9, n)[:, None] + rng.uniform(-0.1, 0.1, (n, 1)), rng.uniform(0.5, 1, n)
    )


def tilted(mu: mf.Discrete, k: int, b: float) -> float:
    """L_k(b), by the definition."""
    y, a = np.asarray(mu.points)[:, 0], np.asarray(mu.weights)
    return float((a * y**k * np.exp(b * y)).sum() / (a * np.exp(b * y)).sum())


def test_the_recursion_of_the_moments() -> None:
    # L_k' = L_{k+1} − L_k L_1, the mean, the variance, and the cumulant generating function
    mu, h = line(0, 5), 1e-4
    first = lambda b: float(universality.tilted_mean(mu, [[b]])[0, 0])  # noqa: E731
    for b in (-0.7, 0.0, 1.3):
        assert first(b) == pytest.approx(tilted(mu, 1, b), abs=1e-14)
        for k in (1, 2, 3):
            slope = (tilted(mu, k, b + h) - tilted(mu, k, b - h)) / (2 * h)
            assert slope == pytest.approx(tilted(mu, k + 1, b) - tilted(mu, k, b) * tilted(mu, 1, b), abs=1e-7)
    assert first(0.0) == pytest.approx(float(mu.mean()[0]), abs=1e-14)
    y, p = np.asarray(mu.points)[:, 0], np.asarray(mu.probabilities())
    assert quad(first, 0, 1.5, epsabs=1e-12)[0] == pytest.approx(np.log(p @ np.exp(1.5 * y)), abs=1e-8)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_moments_follow_from_values_of_one_block(n: int) -> None:
    # kills: the product dropped (cumulants instead of moments), a derivative not divided by the reach
    mu = line(1, n)
    found = universality.moments(lambda b: universality.tilted_mean(mu, b[:, None])[:, 0], 8, reach=0.8)
    p, y = np.asarray(mu.probabilities()), np.asarray(mu.points)[:, 0]
    truth = np.array([p @ y**k for k in range(9)])
    np.testing.assert_allclose(found.values[:7], truth[:7], rtol=0, atol=1e-7)
    assert (np.abs(found.values - truth) <= 100 * found.errors + 1e-9).all()


def test_atoms_follow_from_moments() -> None:
    mu = line(2, 4)
    p, y = np.asarray(mu.probabilities()), np.asarray(mu.points)[:, 0]
    places, weights = atoms_of_moments([p @ y**k for k in range(8)], 4)
    np.testing.assert_allclose(places, np.sort(y), atol=1e-9)
    np.testing.assert_allclose(weights, p[np.argsort(y)], atol=1e-9)


@pytest.mark.parametrize(("dim", "n"), [(1, 3), (2, 4), (3, 3)])
def test_a_measure_is_found_from_its_blocks(dim: int, n: int) -> None:
    rng = np.random.default_rng(dim)
    mu = mf.Discrete.weighted(rng.uniform(-0.6, 0.6, (n, dim)), np.full(n, 1 / n))  # equal weights: nothing to match by
    found = universality.identify(lambda b: universality.tilted_mean(mu, b), dim, n, jax.random.key(3))
    assert found.same_as(mu, 1e-6)


def test_time_lipschitz_constants() -> None:
    rng = np.random.default_rng(4)
    sigma = mf.SpaceTime.weighted(rng.normal(size=(6, 2)), np.sort(rng.uniform(size=6)), rng.uniform(0.2, 1, 6))
    found = universality.time_lipschitz(sigma)
    # neighbours suffice: all pairs give the same constant
    times = np.asarray(sigma.times)
    rates = [
        float(mf.wasserstein(sigma.until(s).normalized(), sigma.until(t).normalized())) / (t - s)
        for i, s in enumerate(times)
        for t in times[i + 1 :]
    ]
    assert found.constant == pytest.approx(max(rates), rel=1e-9)


def test_independent_tokens_have_no_common_constant_and_curves_do() -> None:
    sizes, loose, smooth = (8, 16, 32), [], []
    for n in sizes:
        tokens = np.resize([[1.0], [-1.0]], (n, 1))  # alternating: as rough as can be
        loose.append(universality.time_lipschitz(mf.SpaceTime.sequence(tokens), p=1).constant)
        curve = np.sin(3 * (np.arange(n) + 1) / n)[:, None]  # Lipschitz constant 3
        smooth.append(universality.time_lipschitz(mf.SpaceTime.sequence(curve), p=1).constant)
    # the second token moves half of the mass by 2, in time 1/n
    np.testing.assert_allclose(loose, sizes, rtol=1e-9)
    assert max(smooth) <= 3


def test_refusals() -> None:
    key = jax.random.key(0)
    with pytest.raises(errors.ShapeError, match=r"need \(k, 1\)"):
        universality.tilted_mean(line(0, 2), [1.0])
    with pytest.raises(errors.ShapeError, match="one number for each"):
        universality.moments(lambda b: b[:3], 2)
    with pytest.raises(errors.OptionError, match="reach"):
        universality.moments(np.tanh, 2, reach=0.0)
    with pytest.raises(errors.ShapeError, match="n atoms need 2n"):
        atoms_of_moments([1.0, 0.0], 2)
    with pytest.raises(errors.TooManyAtomsError, match="n = 9"):
        universality.identify(lambda b: b, 1, 9, key)
    with pytest.raises(errors.OptionError, match="radius"):
        universality.identify(lambda b: b, 1, 2, key, radius=0.0)
    with pytest.raises(errors.ShapeError, match="One row per tilt"):
        universality.identify(lambda b: b[:1], 1, 2, key)
    with pytest.raises(errors.DtypeError, match="need a measure with times"):
        universality.time_lipschitz(line(0, 2))
    with pytest.raises(errors.OptionError, match="one time only"):
        universality.time_lipschitz(mf.SpaceTime.uniform([[0.0]], [1.0]))
