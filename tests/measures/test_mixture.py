"""Mixtures of Gaussians: sums, moments, tilts, samples, and how many atoms each component gets."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measure_examples import DIM, gaussian, mixture, tilted_by_quadrature

seeds = st.integers(0, 2**31)
ROUNDING = 1e-13


def parts(seed: int, rank: int = DIM) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weights, means and factors of three components; the second has weight zero."""
    rng = np.random.default_rng(seed)
    weights = [rng.uniform(0.5, 3), 0.0, rng.uniform(0.5, 3)]
    return [(w, rng.normal(size=DIM), rng.normal(size=(DIM, rank)) / 2) for w in weights]


def mixed(components: list[tuple[float, np.ndarray, np.ndarray]]) -> mf.GaussianMixture:
    weights, means, factors = zip(*components, strict=True)
    return mf.GaussianMixture(weights, np.stack(means), np.stack([L @ L.T for L in factors]))


def test_sum_of_gaussians_is_a_mixture() -> None:
    g, h = gaussian(0), 2 * gaussian(1)
    for mu in (g + h, mf.GaussianMixture.of(g) + h, g + mf.GaussianMixture.of(h)):
        assert isinstance(mu, mf.GaussianMixture)
        np.testing.assert_allclose(np.exp(mu.log_weights), [g.mass, h.mass], rtol=ROUNDING)
        np.testing.assert_array_equal(mu.means, np.stack([g.mean(), h.mean()]))
        np.testing.assert_array_equal(mu.covs, np.stack([g.cov, h.cov]))
        assert mu.component(1).same_as(h)
    assert (g + h).same_as(h + g)
    assert (g + g).same_as(mf.GaussianMixture.of(2 * g))
    assert (2 * (g + h)).same_as(2 * g + 2 * h)
    assert not (g + h).same_as(g + g)
    assert not (g + h).same_as(g)
    assert not (g + h).same_as((g + h).push_affine(np.eye(DIM), np.full(DIM, 1e-9)))


def test_a_weight_too_small_for_a_number_is_kept() -> None:
    # kills: components rebuilt from weights, which underflow, instead of log-weights
    tiny = mf.GaussianMixture.of(gaussian(0) * 1e-300 * 1e-300)
    assert float(tiny.push_affine(np.eye(DIM), np.zeros(DIM)).log_mass) == pytest.approx(float(tiny.log_mass))
    assert float((tiny + tiny).log_mass) == pytest.approx(float(tiny.log_mass) + math.log(2), rel=ROUNDING)


@settings(max_examples=12)
@given(seeds)
def test_moments_within_and_between(seed: int) -> None:
    # kills: the spread of the means left out, weights ignored, a passive component felt
    components = parts(seed)
    mu, total = mixed(components), sum(w for w, _, _ in components)
    mean = sum(w * m for w, m, _ in components) / total
    second = sum(w * (L @ L.T + np.outer(m, m)) for w, m, L in components) / total
    assert float(mu.mass) == pytest.approx(total, rel=ROUNDING)
    assert float(mu.log_mass) == pytest.approx(math.log(total), abs=ROUNDING)
    np.testing.assert_allclose(mu.mean(), mean, atol=ROUNDING)
    np.testing.assert_allclose(mu.second_moment(), second, atol=ROUNDING)
    np.testing.assert_allclose(mu.covariance(), second - np.outer(mean, mean), atol=ROUNDING)
    assert float(mu.normalized().mass) == pytest.approx(1, abs=ROUNDING)
    centres = mu.components()
    np.testing.assert_allclose(centres.mean(), mean, atol=ROUNDING)
    assert float(mu.radius()) == math.inf


@settings(max_examples=12)
@given(seeds, st.sampled_from([1, 2]), st.booleans())
def test_tilt_by_quadrature(seed: int, rank: int, with_h: bool) -> None:
    # kills: component weights left untilted, the passive component felt, the mass of the mixture felt
    components, rng = parts(seed, rank), np.random.default_rng(seed + 1)
    a, v = rng.normal(size=(3, DIM)), rng.normal(size=(DIM, 1))
    # |factorᵀ H factor| ≤ 1 for every component: quadrature of order 40 then errs by 3^{−40}
    H = v @ v.T / (1 + max(np.linalg.norm(v.T @ L) ** 2 for _, _, L in components)) if with_h else None
    found = mixed(components).tilt(a, H)
    for row, log_z, center in zip(a, *map(np.asarray, found), strict=True):
        expected = tilted_by_quadrature(components, row, H)
        assert float(log_z) == pytest.approx(expected[0], abs=1e-11)
        np.testing.assert_allclose(center, expected[1], atol=1e-11)


@settings(max_examples=12)
@given(seeds)
def test_affine_images_by_their_laplace_transform(seed: int) -> None:
    # kills: B transposed, weights lost, a component pushed by another's covariance
    mu, rng = mixed(parts(seed)), np.random.default_rng(seed + 1)
    B, b, c = rng.normal(size=(3, DIM)), rng.normal(size=3), rng.normal(size=(3, 3))
    image = mu.push_affine(B, b)
    np.testing.assert_array_equal(image.log_weights, mu.log_weights)
    np.testing.assert_allclose(image.tilt(c)[0], c @ b + np.asarray(mu.tilt(c @ B)[0]), atol=10 * ROUNDING)


@settings(max_examples=12)
@given(seeds)
def test_order_and_splitting_of_components(seed: int) -> None:
    # kills: components compared in order, weights ignored
    weights, means, factors = zip(*parts(seed), strict=True)
    covs = np.stack([L @ L.T for L in factors])
    mu = mf.GaussianMixture(weights, means, covs)
    split = mf.GaussianMixture(
        [weights[2], 0.3 * weights[0], 0.7 * weights[0]], np.stack(means)[[2, 0, 0]], covs[[2, 0, 0]]
    )
    assert mu.same_as(split)
    np.testing.assert_allclose(split.covariance(), mu.covariance(), atol=ROUNDING)
    a = np.ones((1, DIM))
    np.testing.assert_allclose(split.tilt(a)[1], mu.tilt(a)[1], atol=10 * ROUNDING)
    heavier = mf.GaussianMixture([weights[0] + 1e-9, *weights[1:]], means, covs)
    wider = mf.GaussianMixture(weights, means, covs + 1e-9 * np.eye(DIM))
    assert not mu.same_as(heavier)
    assert not mu.same_as(wider)


COUNT = 20_000


def test_sample_follows_the_law() -> None:
    """Share, means and variances of the components within 5 standard errors; equal shares are more than 10 away."""
    # components so far apart that each draw tells its own, the middle one passive
    means, spread = np.array([[-100.0], [0.0], [100.0]]), np.array([1.0, 1.0, 3.0])
    mu = mf.GaussianMixture([1, 0, 3], means, (spread**2)[:, None, None])
    nu = mu.sample(jax.random.key(0), COUNT)
    assert (nu.n, nu.dim) == (COUNT, 1)
    assert float(nu.mass) == pytest.approx(1, rel=ROUNDING)
    sample = np.asarray(nu.points)[:, 0]
    right = sample > 0
    assert np.abs(sample).min() > 50
    for share, close in ((0.75, True), (0.5, False)):
        deviation = abs(right.mean() - share) / (share * (1 - share) / COUNT) ** 0.5
        assert deviation < 5 if close else deviation > 10
    for chosen, c in ((right, 2), (~right, 0)):
        z = (sample[chosen] - means[c, 0]) / spread[c]
        assert abs(z.mean()) < 5 / len(z) ** 0.5
        # the variance of z² is 2
        assert abs((z**2).mean() - 1) < 5 * (2 / len(z)) ** 0.5
        assert abs((z**2).mean() * 9 - 1) > 10 * (2 / len(z)) ** 0.5


def test_sample_is_determined_by_its_key() -> None:
    mu = mixture(0)
    first = np.asarray(mu.sample(jax.random.key(0), 50).points)
    np.testing.assert_array_equal(mu.sample(jax.random.key(0), 50).points, first)
    np.testing.assert_array_equal(np.asarray(mu.sample(jax.random.key(0), 60).points)[:50], first)
    assert not np.isin(mu.sample(jax.random.key(1), 50).points, first).any()


def far_apart(weights: Any) -> mf.GaussianMixture:
    """On the line, components 10 apart with standard deviation at most 1: an atom tells its component."""
    count = len(weights)
    return mf.GaussianMixture(weights, 10.0 * np.arange(count)[:, None], np.full((count, 1, 1), 0.01))


@settings(max_examples=25)
@given(seeds, st.sampled_from([6, 25, 200]))
def test_discretize_shares_out_the_atoms(seed: int, n: int) -> None:
    # kills: n missed by rounding, a light component left without atoms, equal weights for all atoms
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=6) ** 3
    weights[rng.integers(6)] = 0
    mu = far_apart(weights).discretize(n)
    assert mu.n == n
    component = np.rint(np.asarray(mu.points)[:, 0] / 10).astype(int)
    masses = np.bincount(component, np.asarray(mu.weights), minlength=6)
    np.testing.assert_allclose(masses, weights, rtol=ROUNDING)
    counts, shares = np.bincount(component, minlength=6), n * weights / weights.sum()
    assert (counts[weights > 0] > 0).all()
    # nobody gets an atom more than its share, or than the one atom that it must have
    assert (counts < np.maximum(shares, 1) + 1).all()
    if (shares[weights > 0] >= 1).all():
        assert (np.abs(counts - shares) < 1).all()


def test_one_heavy_and_many_light_components() -> None:
    # kills: a refusal although every component could have an atom
    for n in (20, 21, 25, 39):
        mu = far_apart([0.905] + [0.005] * 19).discretize(n)
        assert mu.n == n
        assert float(mu.mass) == pytest.approx(1, rel=ROUNDING)


def test_discretize_is_deterministic_and_converges() -> None:
    mu = mixture(0)
    np.testing.assert_array_equal(mu.discretize(100).points, mu.discretize(100).points)

    def error(n: int) -> float:
        atoms = mu.discretize(n)
        pairs = [(atoms.mean(), mu.mean()), (atoms.covariance(), mu.covariance())]
        return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs)

    # 256 times as many atoms: 1/n with a logarithm gains a factor of at least 40, independent draws gain 16
    assert error(64) < 0.3
    assert error(64 * 256) < error(64) / 40
