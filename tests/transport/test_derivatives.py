"""Derivatives by the envelope theorem: in the points and in the weights, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from transport_examples import cloud, prompt

KEY = jax.random.key(3)
STEP = 1e-6
Distance = Callable[[Any, Any], Any]
DISTANCES: dict[str, tuple[int, Distance]] = {
    **{f"W_{p} in R^{d}": (d, lambda mu, nu, p=p: mf.wasserstein(mu, nu, p)) for d in (1, 2) for p in (1, 1.5, 2, 3)},
    "cost": (2, lambda mu, nu: mf.wasserstein(mu, nu, 3) ** 3),
    "positive": (2, lambda mu, nu: mf.positive_wasserstein(mu, nu, 2)),
    "sliced": (2, lambda mu, nu: mf.sliced_wasserstein(mu, nu, key=KEY, projections=8)),
}


def direction(mu: mf.Discrete, seed: int) -> mf.Discrete:
    rng = np.random.default_rng(seed)
    return mf.Discrete(jnp.asarray(rng.normal(size=mu.points.shape)), jnp.asarray(rng.normal(size=mu.n)))


def along(mu: Any, tangent: Any, step: float) -> Any:
    return jax.tree.map(lambda x, dx: jax.device_put(np.asarray(x) + step * np.asarray(dx)), mu, tangent).normalized()


@pytest.mark.parametrize("name", DISTANCES)
def test_finite_differences(name: str) -> None:
    # kills: the plan differentiated, potentials of another scale or of the other measure, weights without derivative
    dim, distance = DISTANCES[name]
    mu, nu = cloud(0, 7, dim), cloud(1, 5, dim)
    pair = direction(mu, 2), direction(nu, 3)

    def normalized(mu: Any, nu: Any) -> Any:
        return distance(mu.normalized(), nu.normalized())

    value, found = jax.jit(lambda *point: jax.jvp(normalized, point, pair))(mu, nu)
    ahead, behind = (float(distance(along(mu, pair[0], s), along(nu, pair[1], s))) for s in (STEP, -STEP))
    # plans are constant nearby, so the second difference is STEP² and the rounding 1e-16/STEP
    assert float(found) == pytest.approx((ahead - behind) / (2 * STEP), abs=2e-9)
    assert abs(float(found)) > 1e-2
    assert float(value) == pytest.approx(float(distance(mu, nu)), rel=1e-12)
    gradient = jax.jit(jax.grad(normalized, (0, 1)))(mu, nu)
    reverse = sum(float(jnp.vdot(g, t)) for g, t in zip(*map(jax.tree.leaves, (gradient, pair)), strict=True))
    assert reverse == pytest.approx(float(found), abs=1e-11)


@pytest.mark.parametrize("dim", [1, 2])
def test_second_derivatives_and_batches(dim: int) -> None:
    mu, nu = prompt(0, 5, dim), prompt(1, 5, dim)
    cost = jax.jit(lambda x: mf.wasserstein(mf.Discrete.uniform(x), nu) ** 2)
    # the plan is a permutation: the cost is |x − σy|²/n nearby, with Hessian 2/n
    hessian = np.asarray(jax.hessian(cost)(mu.points)).reshape(5 * dim, 5 * dim)
    np.testing.assert_allclose(hessian, 2 / 5 * np.eye(5 * dim), atol=1e-12)
    batch = np.stack([np.asarray(mu.points), np.asarray(mu.points) + 1])
    expected = [float(mf.wasserstein(mf.Discrete.uniform(x), nu) ** 2) for x in batch]
    np.testing.assert_allclose(jax.vmap(cost)(batch), expected, rtol=1e-13)


def test_translation_has_unit_gradient() -> None:
    mu = cloud(0, 6, 2)
    moved = mu.push(lambda x: np.asarray(x) + np.array([3.0, 4.0]))
    gradient = jax.jit(jax.grad(lambda x: mf.wasserstein(mf.Discrete(x, moved.log_weights), mu)))(moved.points)
    np.testing.assert_allclose(gradient, np.asarray(mu.weights)[:, None] * [0.6, 0.8], rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("p", [1, 2])
def test_distance_zero_and_passive_atoms_have_finite_derivatives(dim: int, p: float) -> None:
    mu, nu = cloud(0, 6, dim, passive=True), cloud(1, 4, dim)
    for other in (mu, nu):
        gradient = jax.jit(jax.grad(lambda mu, other=other: mf.wasserstein(mu, other, p)))(mu)
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(gradient))


def test_infinity_follows_the_longest_move() -> None:
    mu, nu = prompt(0, 5, 1), prompt(1, 5, 1)
    gradient = np.asarray(jax.jit(jax.grad(lambda x: mf.wasserstein(mf.Discrete.uniform(x), nu, np.inf)))(mu.points))
    assert np.count_nonzero(gradient) == 1
    assert np.abs(gradient).max() == pytest.approx(1)
