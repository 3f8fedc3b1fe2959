"""Densities of push-forwards against Gaussians, densities along flows, and quadrature; maps that fold are refused."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import measureformer as mf
from measureformer import errors
from measureformer.flows.push_density import refuse_folds

MEAN, COV = np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 0.5]])
LAW = multivariate_normal(MEAN, COV)
POINTS = np.random.default_rng(0).normal(size=(5, 2))


def test_an_affine_map_pushes_gaussians_to_gaussians() -> None:
    # B is not symmetric and turns the plane over: kills Bᵀ, a forgotten absolute value, and the inverse determinant
    B, b = np.array([[0.5, 1.2], [1.0, -0.3]]), np.array([1.0, -2.0])
    found = mf.flows.push_density(mf.Linear(B, b), LAW.logpdf, mf.Discrete.dirac([0.0, 0.0]), POINTS)
    exact = multivariate_normal(B @ MEAN + b, B @ COV @ B.T)
    np.testing.assert_allclose(found.log_density, exact.logpdf(POINTS), atol=1e-10)
    np.testing.assert_allclose(found.preimages, np.linalg.solve(B, (POINTS - b).T).T, atol=1e-12)


def test_residual_attention_on_its_own_gaussian() -> None:
    # x ↦ x + τV(m + ΣAx) is affine, and the push-forward known in closed form
    layer, law = mf.Residual(mf.Attention.random(jax.random.key(0), 2), 0.4), mf.Gaussian(MEAN, COV)
    found = mf.flows.push_density(layer, LAW.logpdf, law, POINTS)
    pushed = layer.push(law)
    exact = multivariate_normal(np.asarray(pushed.mean()), np.asarray(pushed.covariance()))
    np.testing.assert_allclose(found.log_density, exact.logpdf(POINTS), atol=1e-9)
    assert float(found.residuals.max()) < 1e-12


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_the_density_of_a_residual_layer_integrates_to_one(seed: int) -> None:
    # among tokens the layer is not affine; the trapezoidal rule on a box is exact to rounding for such densities
    rng = np.random.default_rng(seed)
    mu = mf.Discrete.weighted(rng.normal(size=(6, 1)), rng.uniform(0.2, 1, 6))
    layer = mf.Residual(mf.Attention.head([[0.7]], [[0.8]], [[0.9]]), 0.5)
    y = np.linspace(-12, 12, 300)[:, None]
    found = mf.flows.push_density(layer, lambda x: multivariate_normal(0, 1).logpdf(np.asarray(x)[:, 0]), mu, y)
    assert np.exp(found.log_density).sum() * 24 / 299 == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(layer(mu, found.preimages), y, atol=1e-8)


def test_it_agrees_with_densities_along_flows() -> None:
    rng = np.random.default_rng(0)
    mu = mf.Discrete.weighted(rng.normal(size=(7, 2)), rng.uniform(0.2, 1, 7))
    G = mf.Attention.random(jax.random.key(0), 2)
    traj = mf.flow(G, mu, [0.0, 0.8], steps=diffrax.PIDController(rtol=1e-7, atol=1e-7))
    points, logs = traj.log_density(LAW.logpdf, POINTS)
    found = mf.flows.push_density(traj.map(0.8), LAW.logpdf, mu, points[-1])
    np.testing.assert_allclose(found.preimages, POINTS, atol=1e-7)
    np.testing.assert_allclose(found.log_density, logs[-1], atol=1e-6)


def cubic(c: float) -> Any:
    return mf.flows.Interaction(lambda x, y: x**3 - c * x)


def test_maps_that_are_not_diffeomorphisms_are_refused() -> None:
    mu, log = mf.Discrete.uniform([[-1.0], [1.2]]), lambda x: jnp.zeros(len(x))
    with pytest.raises(errors.NotInvertibleError, match="no preimage"):
        mf.flows.push_density(mf.flows.Interaction(lambda x, y: jnp.exp(x)), log, mu, [[-1.0]])
    with pytest.raises(errors.NotInvertibleError, match="no preimage"):
        mf.flows.push_density(mf.Linear([[0.0]]), log, mu, [[1.0]])
    with pytest.raises(errors.NotInvertibleError, match="two points"):
        mf.flows.push_density(cubic(2.0), log, mu, [[0.2]])
    # where Newton's method finds one preimage of each point, the signs of the determinants tell
    with pytest.raises(errors.NotInvertibleError, match=r"sign -1 at the preimage of y\[1\]"):
        refuse_folds(np.array([1.0, -1.0]))
    # the same cubic without a fold is accepted
    found = mf.flows.push_density(cubic(-1.0), log, mu, [[0.2], [10.0]])
    np.testing.assert_allclose(found.preimages[1], 2.0, atol=1e-9)
    np.testing.assert_allclose(found.log_density[1], -np.log(13.0), atol=1e-9)


def test_other_refusals() -> None:
    mu = mf.Discrete.dirac([0.0, 0.0])
    with pytest.raises(errors.DimensionMismatchError, match=r"R\^2 to R\^1"):
        mf.flows.push_density(mf.Linear([[1.0, 1.0]]), LAW.logpdf, mu, POINTS)
    with pytest.raises(errors.DtypeError, match="an in-context map"):
        mf.flows.push_density(np.sin, LAW.logpdf, mu, POINTS)
    with pytest.raises(errors.NotFiniteError, match="y with"):
        mf.flows.push_density(mf.Identity(), LAW.logpdf, mu, np.full((1, 2), np.nan))
