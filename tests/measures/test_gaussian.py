"""Gaussians: moments, tilts against quadrature, affine images, samples, atoms."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

import measureformer as mf
from measure_examples import DIM, aligned, gaussian, tilted_by_quadrature
from measureformer.errors import NoClosedFormError

seeds = st.integers(0, 2**31)
ranks = st.sampled_from([0, 1, 2])
ROUNDING = 1e-13


def drawn(seed: int, rank: int = DIM) -> tuple[np.ndarray, np.ndarray]:
    """A mean and a factor (DIM, rank) of a covariance of this rank, of norm about 1."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=DIM), rng.normal(size=(DIM, rank)) / 2


def law(seed: int, rank: int = DIM) -> mf.Gaussian:
    mean, factor = drawn(seed, rank)
    return mf.Gaussian(mean, factor @ factor.T)


def quadratic(seed: int, factor: np.ndarray) -> np.ndarray:
    """A positive semidefinite H of rank 1 with |factorᵀ H factor| ≤ 1, for which quadrature errs by 3^{−40}."""
    v = np.random.default_rng(seed + 5).normal(size=(DIM, 1))
    return v @ v.T / (1 + np.linalg.norm(v.T @ factor) ** 2)


def test_moments() -> None:
    g = mf.Gaussian([1, 2], [[2, 1], [1, 3]], log_mass=0.5)
    assert (g.dim, float(g.log_mass)) == (2, 0.5)
    assert float(g.mass) == pytest.approx(math.exp(0.5), rel=ROUNDING)
    np.testing.assert_array_equal(g.mean(), [1.0, 2.0])
    np.testing.assert_array_equal(g.covariance(), [[2.0, 1.0], [1.0, 3.0]])
    np.testing.assert_array_equal(g.second_moment(), [[3.0, 3.0], [3.0, 7.0]])
    assert float(g.radius()) == math.inf
    assert float(g.normalized().log_mass) == 0
    root = np.asarray(g.root())
    np.testing.assert_allclose(root @ root, g.cov, atol=ROUNDING)


def test_the_users_arrays_are_not_shared() -> None:
    mean, cov = aligned(2), aligned(2, 2)
    g, mu = mf.Gaussian(mean, cov), mf.GaussianMixture([1.0], mean[None], cov[None])
    mean[:], cov[:] = np.nan, np.nan
    for law in (g, mu):
        np.testing.assert_array_equal(law.mean(), np.ones(2))
        np.testing.assert_array_equal(law.covariance(), np.ones((2, 2)))


@pytest.mark.parametrize("factor", [2, np.float64(2), np.array(2.0), jnp.asarray(2.0)], ids=lambda x: type(x).__name__)
def test_scalar_multiples_change_the_mass_only(factor: Any) -> None:
    g = gaussian(0)
    for product in (factor * g, g * factor, g / (1 / factor)):
        assert isinstance(product, mf.Gaussian)
        assert float(product.mass) == pytest.approx(2 * float(g.mass), rel=ROUNDING)
        np.testing.assert_array_equal(product.cov, g.cov)
        np.testing.assert_array_equal(product.mean(), g.mean())
    assert float((g * 1e-300 / 1e300).log_mass) == pytest.approx(0.5 - 600 * math.log(10), rel=ROUNDING)


@settings(max_examples=25)
@given(seeds, ranks, st.booleans())
def test_tilt_by_quadrature(seed: int, rank: int, with_h: bool) -> None:
    # kills: Σa without the mean, aᵀΣa without its half, H without its half, log det dropped, Σ⁻¹ (singular here),
    # a mass that changes the tilt
    mean, factor = drawn(seed, rank)
    a = np.random.default_rng(seed + 1).normal(size=(3, DIM))
    H = quadratic(seed, factor) if with_h else None
    found = mf.Gaussian(mean, factor @ factor.T, log_mass=2.0).tilt(a, H)
    for row, log_z, center in zip(a, *map(np.asarray, found), strict=True):
        expected = tilted_by_quadrature([(1.0, mean, factor)], row, H)
        # quadrature of order 40 is exact to rounding; the density reaches e^{10}, which sums cancel
        assert float(log_z) == pytest.approx(expected[0], abs=1e-11)
        np.testing.assert_allclose(center, expected[1], atol=1e-11)


tilt_gradient = jax.jit(jax.grad(lambda g, a, H: g.tilt(a, H)[0].sum(), argnums=1))


@settings(max_examples=15)
@given(seeds, ranks)
def test_tilted_mean_is_the_gradient_of_log_z(seed: int, rank: int) -> None:
    # kills: value and mean of different tilts, the derivative of the linear solve cut off
    g, H = law(seed, rank), quadratic(seed, np.eye(DIM))
    a = np.random.default_rng(seed + 1).normal(size=(3, DIM))
    np.testing.assert_allclose(tilt_gradient(g, a, H), g.tilt(a, H)[1], atol=ROUNDING)


@settings(max_examples=25)
@given(seeds, ranks)
def test_affine_images_by_their_laplace_transform(seed: int, rank: int) -> None:
    # log ∫ e^{⟨c,z⟩} d(T♯mu) = ⟨c, b⟩ + log ∫ e^{⟨Bᵀc, y⟩} dmu; kills: B transposed, b pushed through B, mass lost
    g, rng = 3 * law(seed, rank), np.random.default_rng(seed + 1)
    B, b, c = rng.normal(size=(3, DIM)), rng.normal(size=3), rng.normal(size=(3, 3))
    image = g.push_affine(B, b)
    assert image.dim == 3
    assert float(image.mass) == pytest.approx(3, rel=ROUNDING)
    np.testing.assert_allclose(image.tilt(c)[0], c @ b + np.asarray(g.tilt(c @ B)[0]), atol=10 * ROUNDING)
    back = rng.normal(size=(1, 3))
    assert image.push_affine(back, b[:1]).same_as(g.push_affine(back @ B, back @ b + b[:1]), 10 * ROUNDING)


COUNT = 20_000


def deviations(sample: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> float:
    """Largest distance of sample mean and covariance from these, in standard errors of a Gaussian sample."""
    variances = np.diag(cov)
    of_mean = np.abs(sample.mean(0) - mean) / (variances / len(sample)) ** 0.5
    spread = np.einsum("ni,nj->ij", sample - mean, sample - mean) / len(sample)
    of_cov = np.abs(spread - cov) / ((np.outer(variances, variances) + cov**2) / len(sample)) ** 0.5
    return float(max(of_mean.max(), of_cov.max()))


def test_sample_follows_the_law() -> None:
    """Moments within 5 standard errors; those of the covariance used as its own root are more than 10 away."""
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    nu = mf.Gaussian(mean, cov, log_mass=1.0).sample(jax.random.key(0), COUNT)
    assert (nu.n, nu.dim) == (COUNT, 2)
    assert float(nu.mass) == pytest.approx(1, rel=ROUNDING)
    sample = np.asarray(nu.points)
    assert deviations(sample, mean, cov) < 5
    assert deviations(sample, mean, cov @ cov) > 10
    assert deviations(sample, -mean, cov) > 10


def test_sample_of_a_singular_law_stays_on_its_line() -> None:
    g = mf.Gaussian([1.0, 1.0], [[1.0, 2.0], [2.0, 4.0]])
    sample = np.asarray(g.sample(jax.random.key(0), 100).points) - 1
    # the kernel gets a root of at most (4·eps)^{1/2}
    assert np.abs(sample @ [2.0, -1.0]).max() < 1e-6
    assert np.ptp(sample @ [1.0, 2.0]) > 1


def test_sample_is_determined_by_its_key() -> None:
    g = gaussian(0)
    first = np.asarray(g.sample(jax.random.key(0), 50).points)
    np.testing.assert_array_equal(np.asarray(g.sample(jax.random.key(0), 60).points)[:50], first)
    assert not np.isin(g.sample(jax.random.key(1), 50).points, first).any()


@pytest.mark.parametrize("n", [1, 5, 64, 1000])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_discretize_gives_n_equal_atoms_and_always_the_same(n: int, dim: int) -> None:
    g = mf.Gaussian(np.arange(dim), np.eye(dim), log_mass=0.5)
    mu = g.discretize(n)
    assert (mu.n, mu.dim) == (n, dim)
    np.testing.assert_allclose(mu.weights, math.exp(0.5) / n, rtol=ROUNDING)
    np.testing.assert_array_equal(g.discretize(n).points, mu.points)
    assert len(np.unique(mu.points, axis=0)) == n


def test_discretize_on_the_line_takes_quantiles() -> None:
    atoms = mf.Gaussian([1.0], [[4.0]]).discretize(8).points
    np.testing.assert_allclose(atoms[:, 0], 1 + 2 * ndtri((np.arange(8) + 0.5) / 8), atol=ROUNDING)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [1, 2])
def test_discretize_converges(seed: int, rank: int) -> None:
    """Errors of the moments fall almost like 1/n; those of independent draws, n^{−1/2}, would not.

    256 times as many atoms: 1/n with a logarithm gains a factor of at least 40, n^{−1/2} gains 16.
    """
    g, a = law(seed, rank), np.array([[0.5, -0.3]])

    def errors(n: int) -> list[float]:
        mu = g.discretize(n)
        exponential = float(mu.integrate(lambda y: np.exp(np.asarray(y) @ a[0])))
        return [
            float(np.abs(np.asarray(mu.mean()) - np.asarray(g.mean())).max()),
            float(np.abs(np.asarray(mu.covariance()) - np.asarray(g.covariance())).max()),
            abs(exponential / math.exp(g.tilt(a)[0].tolist()[0]) - 1),
        ]

    coarse, fine = errors(64), errors(64 * 256)
    assert max(coarse) < 0.2
    assert max(fine) < max(coarse) / 40


def test_same_as() -> None:
    g = gaussian(0)
    mean, cov = np.asarray(g.mean()), np.asarray(g.cov)
    assert g.same_as(gaussian(0))
    assert g.same_as(mf.Gaussian(mean + 1e-7, cov, log_mass=0.5), 1e-6)
    different = [2 * g, mf.Gaussian(mean + 1e-9, cov, log_mass=0.5), mf.Gaussian(mean, cov * (1 + 1e-9), log_mass=0.5)]
    for other in [*different, mf.Gaussian([0.0], [[1.0]]), mf.GaussianMixture.of(g)]:
        assert not g.same_as(other)


@pytest.mark.parametrize("name", ["integrate", "push"])
def test_general_functions_have_no_closed_form(name: str) -> None:
    with pytest.raises(NoClosedFormError, match=rf"{name}.* on a Gaussian; .*mu.discretize\(n\).{name}\("):
        getattr(gaussian(0), name)(np.sin)
