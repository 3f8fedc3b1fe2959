"""Velocities made of pairs: kernels, alignment, second order; and the constants of stability."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from flow_examples import largest
from measureformer import errors
from measureformer.flows import CuckerSmale, Interaction, SecondOrder, stability


def gaussian_force(x: Any, y: Any) -> Any:
    return (y - x) * jnp.exp(-jnp.sum((x - y) ** 2)) + jnp.sin(x)


@pytest.mark.parametrize("n", [5, 700])
def test_interactions_are_weighted_sums_over_all_pairs(n: int) -> None:
    # 700 tokens are several blocks; kills: fill rows that count, keys and queries exchanged, ignored weights
    rng = np.random.default_rng(0)
    points, weights, x = rng.normal(size=(n, 2)), rng.uniform(size=n), rng.normal(size=(n - 2, 2))
    weights[1] = 0
    gap = points[None] - x[:, None]
    table = gap * np.exp(-(gap**2).sum(-1, keepdims=True)) + np.sin(x)[:, None]
    expected = np.einsum("n,mnd->md", weights, table) / weights.sum()
    mu = mf.Discrete.weighted(points, weights)
    assert largest(Interaction(gaussian_force)(mu, x) - expected) < 1e-13
    assert largest(Interaction(gaussian_force)(7.0 * mu, x) - expected) < 1e-13


def test_blocks_hold_no_table_of_all_pairs() -> None:
    # 100 000 pairs of 100 000 tokens would be 80 GB a coordinate
    points = jax.ShapeDtypeStruct((100_000, 2), np.float64)

    def value(rows: Any) -> Any:
        return Interaction(gaussian_force).at_atoms(mf.Discrete(rows, jnp.zeros(100_000)))

    memory = jax.jit(value).lower(points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 100e6


def test_causal_interactions_see_the_past() -> None:
    sigma = mf.SpaceTime.weighted([[0.0], [4.0], [9.0]], [0.1, 0.2, 0.3], [1.0, 3.0, 5.0])
    towards = mf.Causal(Interaction(lambda x, y: y - x))
    np.testing.assert_allclose(towards(sigma, [[1.0], [1.0]], [0.1, 0.2]), [[-1.0], [2.0]], atol=1e-15)


def test_a_passive_token_at_a_singularity_is_not_felt() -> None:
    # kills: 0 · inf, in the value and in the gradient
    repel = Interaction(lambda x, y: (x - y) / jnp.sum((x - y) ** 2))
    mu = mf.Discrete.weighted([[0.0], [1.0]], [1.0, 0.0])
    assert float(repel(mu, [1.0])[0]) == 1
    slope = jax.grad(lambda x: repel.evaluate(mu, x[None], None)[0, 0])(jnp.array([1.0]))
    assert float(slope[0]) == -1


def test_cucker_smale_is_its_formula() -> None:
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(6, 4)), rng.uniform(0.1, 1, 6)
    weights /= weights.sum()
    x, v = points[:, :2], points[:, 2:]
    phi = 1.5 / (0.7**2 + ((x[:, None] - x[None]) ** 2).sum(-1)) ** 0.4
    force = np.einsum("j,ij,ijd->id", weights, phi, v[None] - v[:, None])
    found = CuckerSmale(1.5, 0.7, 0.4).push(mf.Discrete.weighted(points, weights)).points
    assert largest(found - np.concatenate([v, force], axis=1)) < 1e-14


def test_second_order_with_friction_is_a_damped_oscillator() -> None:
    # x'' = −5x − 2x' from (1, 0): e^{−t} (cos 2t + sin(2t)/2)
    spring = SecondOrder(mf.Linear([[-5.0]]), friction=2.0)
    traj = mf.flow(spring, mf.Discrete.dirac([1.0, 0.0]), [0.0, 1.0], steps=diffrax.PIDController(rtol=1e-9, atol=1e-9))
    assert abs(float(traj.points[-1, 0, 0]) - np.exp(-1) * (np.cos(2) + np.sin(2) / 2)) < 1e-8


def test_second_order_forces_read_positions_only() -> None:
    rng = np.random.default_rng(2)
    G, points = mf.Attention.random(jax.random.key(0), 2), rng.normal(size=(5, 4))
    mu = mf.Discrete.uniform(points)
    expected = np.asarray(G.push(mf.Discrete.uniform(points[:, :2])).points) - 0.3 * points[:, 2:]
    assert largest(SecondOrder(G, friction=0.3).push(mu).points[:, 2:] - expected) < 1e-14
    assert largest(SecondOrder(G, friction=0.3)(mu, points)[:, 2:] - expected) < 1e-14


def test_stability_constants() -> None:
    # heads add up; W V counts, and A = KᵀQ by its norm
    Q, K, V = np.diag([2.0, 1.0]), np.eye(2), np.diag([0.5, 0.1])
    one = mf.Attention.head(Q, K, V)
    two = mf.Attention(*(np.concatenate([np.asarray(a)] * 2) for a in (one.Q, one.K, one.V, one.W)))
    R, s = 0.3 * np.exp(0.5 * 0.2), 2 * (0.3 * np.exp(0.5 * 0.2)) ** 2
    bound = stability(one, 0.3, 0.2)
    assert np.allclose([bound.radius, bound.point, bound.measure], [R, 0.5 * s, 0.5 * (1 + 2 * s) * np.exp(2 * s)])
    assert stability(two, 0.3, 0.2).radius > bound.radius
    L, C = bound.point * 0.2, bound.measure * 0.2
    assert np.isclose(bound.between_measures(2.0), 2 * np.exp(L + C))
    assert np.isclose(bound.between_points(1.0, 2.0), np.exp(L) + 2 * np.exp(L) * (np.exp(C) - 1))
    assert stability(one, 50.0, 5.0).between_measures(1.0) == np.inf
    assert stability(one, 50.0, 5.0).between_points(0.0, 0.0) == 0


REFUSED = {
    "odd dimension": (
        lambda: CuckerSmale(1.0, 1.0, 0.5)(mf.Discrete.dirac([0.0]), [0.0]),
        errors.ShapeError,
        "positions, then velocities",
    ),
    "no radius of interaction": (lambda: CuckerSmale(1.0, 0.0, 0.5), errors.OptionError, "sigma > 0"),
    "a scalar kernel": (
        lambda: Interaction(lambda x, y: jnp.sum(x * y))(mf.Discrete.dirac([0.0]), [0.0]),
        errors.ShapeError,
        "returns one vector",
    ),
    "a Gaussian context": (
        lambda: Interaction(gaussian_force)(mf.Gaussian([0.0], [[1.0]]), [0.0]),
        errors.NoClosedFormError,
        "discretize",
    ),
    "stability of another map": (lambda: stability(mf.Identity(), 1.0, 1.0), errors.DtypeError, "softmax"),
    "stability in no ball": (
        lambda: stability(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), -1.0, 1.0),
        errors.OptionError,
        "radius",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    act, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        act()
