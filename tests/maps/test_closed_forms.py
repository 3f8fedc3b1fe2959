"""Attention on Gaussians and mixtures against Gauss–Hermite quadrature, singular covariances included."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import NoClosedFormError
from measureformer.maps.heads import AbstractHeads

EXACT = [mf.Attention, mf.LinearAttention, mf.L2Attention, mf.UnnormalizedAttention]


def rule(mean: Any, root: Any, mass: float = 1.0, nodes: int = 30) -> mf.Discrete:
    """Quadrature for N(mean, root·rootᵀ): with a root of fewer columns the law is singular."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * root.shape[1], indexing="ij"), axis=-1).reshape(-1, root.shape[1])
    weights = np.prod(np.stack(np.meshgrid(*[w] * root.shape[1], indexing="ij"), -1), -1).reshape(-1)
    return mf.Discrete.weighted(mean + grid @ root.T, mass * weights / weights.sum())


def setting(seed: int, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = 0.5 * rng.normal(size=(2, rank))
    return rng.normal(size=2), root, 0.6 * rng.normal(size=(3, 2, 2)), rng.normal(size=(5, 2))


@pytest.mark.parametrize("kind", [*EXACT, mf.SinkhornAttention])
@pytest.mark.parametrize("rank", [1, 2])
def test_gaussian_field_is_the_integral(kind: type[AbstractHeads], rank: int) -> None:
    mean, root, (Q, K, V), x = setting(1, rank)
    g, G = mf.Gaussian(mean, root @ root.T), kind.head(Q, K, V, scale=0.8)
    formula = np.asarray(G(g, x))
    np.testing.assert_allclose(formula, G(rule(mean, root), x), atol=1e-8)
    # the transposed convention is visible on every one of them
    assert np.abs(np.asarray(kind.head(K, Q, V, scale=0.8)(g, x)) - formula).max() > 1e-3


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_multi_head_gaussian_field(seed: int) -> None:
    mean, root, _, x = setting(seed, 2)
    draw = np.random.default_rng(seed)
    parts = [0.6 * draw.normal(size=(3, 2, 2)) for _ in range(4)]
    g, G = mf.Gaussian(mean, root @ root.T), mf.Attention(*parts)
    A = np.einsum("hki,hkj->hij", parts[1], parts[0])
    expected = sum(
        W @ V @ (mean[:, None] + root @ root.T @ a @ x.T) for W, V, a in zip(parts[3], parts[2], A, strict=True)
    )
    np.testing.assert_allclose(G(g, x), expected.T, atol=1e-12)


@pytest.mark.parametrize("kind", EXACT)
def test_mixture_field_is_the_integral(kind: type[AbstractHeads]) -> None:
    mean, root, (Q, K, V), x = setting(3, 2)
    other, second, _, _ = setting(4, 2)
    mixture = 0.3 * mf.Gaussian(mean, root @ root.T) + 1.7 * mf.Gaussian(other, second @ second.T)
    G = kind.head(Q, K, V)
    atoms = rule(mean, root, 0.3) + rule(other, second, 1.7)
    np.testing.assert_allclose(G(mixture, x), G(atoms, x), atol=1e-9)
    # one component with all the mass is a Gaussian
    alone = mf.GaussianMixture([2.0], [mean], [root @ root.T])
    np.testing.assert_allclose(G(alone, x), G(mf.Gaussian(mean, root @ root.T), x), atol=1e-13)


@pytest.mark.parametrize("kind", [mf.Attention, mf.LinearAttention, mf.L2Attention, mf.SinkhornAttention])
@pytest.mark.parametrize("rank", [1, 2])
def test_affine_fields_push_gaussians_to_gaussians(kind: type[AbstractHeads], rank: int) -> None:
    mean, root, (Q, K, V), _ = setting(5, rank)
    g = mf.Gaussian(mean, root @ root.T)
    layer = mf.Residual(kind.head(Q, K, V, scale=0.8), step=0.5)
    net = mf.Linear([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]], [1.0, 0.0, 0.0]) @ layer
    pushed, cloud = net.push(g), net.push(rule(mean, root))
    assert isinstance(pushed, mf.Gaussian)
    np.testing.assert_allclose(pushed.mean(), cloud.mean(), atol=1e-8)
    np.testing.assert_allclose(pushed.covariance(), cloud.covariance(), atol=1e-8)
    # and the composition can be evaluated at any point, reading the pushed Gaussian
    twice = layer @ layer
    x = np.array([[0.3, -1.0]])
    np.testing.assert_allclose(twice(g, x), layer(layer.push(g), layer(g, x)), atol=1e-13)


def test_linear_maps_push_mixtures() -> None:
    mean, root, (Q, K, V), _ = setting(6, 2)
    mixture = 0.5 * mf.Gaussian(mean, root @ root.T) + 0.5 * mf.Gaussian(-mean, np.eye(2))
    pushed = mf.Linear(Q, mean).push(mixture)
    expected = 0.5 * mf.Gaussian(Q @ mean + mean, Q @ root @ root.T @ Q.T) + 0.5 * mf.Gaussian(mean - Q @ mean, Q @ Q.T)
    assert pushed.same_as(expected, atol=1e-12)
    assert not pushed.same_as(mixture, atol=1e-3)
    assert isinstance(mf.LinearAttention.head(Q, K, V).push(mixture), mf.GaussianMixture)


def test_gradients_of_closed_forms() -> None:
    mean, _, (Q, K, V), x = setting(7, 2)
    for kind in [*EXACT, mf.SinkhornAttention]:
        G = kind.head(Q, K, V)

        def value(mean: Any, cov: Any, G: AbstractHeads = G) -> Any:
            return jax.numpy.sum(jax.numpy.sin(G(mf.Gaussian(mean, cov), x)))

        gradient = jax.grad(value, (0, 1))(mean, np.eye(2))  # equal eigenvalues: where naive derivatives are NaN
        assert all(np.isfinite(g).all() for g in gradient)
        h = 1e-6
        slope = (value(mean + h * x[0], np.eye(2)) - value(mean - h * x[0], np.eye(2))) / (2 * h)
        assert float(slope) == pytest.approx(float(np.sum(np.asarray(gradient[0]) * x[0])), rel=1e-6, abs=1e-8)


GAUSSIAN = mf.Gaussian([1.0, 0.0], np.eye(2))
MIXTURE = GAUSSIAN + GAUSSIAN
HEAD = np.eye(2)
REFUSED = {
    "hardmax": (mf.HardmaxAttention.head(HEAD, HEAD, HEAD), GAUSSIAN, "call"),
    "Sinkhorn on a mixture": (mf.SinkhornAttention.head(HEAD, HEAD, HEAD), MIXTURE, "call"),
    "push by a perceptron": (mf.MLP.random(jax.random.key(0), 2), GAUSSIAN, "push"),
    "push by unnormalised": (mf.UnnormalizedAttention.head(HEAD, HEAD, HEAD), GAUSSIAN, "push"),
    "push of a mixture": (mf.Attention.head(HEAD, HEAD, HEAD), MIXTURE, "push"),
    "composition after a norm": (mf.Attention.head(HEAD, HEAD, HEAD) @ mf.RMSNorm([1.0, 1.0]), GAUSSIAN, "call"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_no_closed_form_is_refused_and_discretize_named(case: str) -> None:
    G, mu, how = REFUSED[case]
    with pytest.raises(NoClosedFormError, match="discretize"):
        G.push(mu) if how == "push" else G(mu, [0.0, 1.0])
    # and what is named works
    assert np.isfinite(np.asarray(G(mu.discretize(32), [0.5, 1.0]))).all()
