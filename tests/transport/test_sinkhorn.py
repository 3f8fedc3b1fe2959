"""Entropic transport: brute force, limits of the regularisation, the divergence and its derivatives."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from transport_examples import cloud, cost_matrix, prompt

seeds = st.integers(0, 2**32 - 1)
entropic: Any = importlib.import_module("measureformer.transport.sinkhorn")


def brute_force(mu: Any, nu: Any, eps: float) -> tuple[float, np.ndarray]:
    """The cost and the plan, by scaling rows and columns of the dense kernel in turn."""
    cost, a, b = cost_matrix(mu, nu, 2), np.asarray(mu.weights), np.asarray(nu.weights)
    plan = np.exp(-cost / eps)
    for _ in range(20_000):
        plan *= (a / plan.sum(1))[:, None]
        plan *= b / plan.sum(0)
    return float((plan * cost).sum() + eps * (plan * np.log(plan / (a[:, None] * b))).sum()), plan


@pytest.mark.parametrize("eps", [0.3, 2.0])
def test_brute_force(eps: float) -> None:
    # kills: eps on the wrong side, the entropy relative to counting measure, squares left out of a soft minimum
    mu, nu = cloud(0, 7, 2), cloud(1, 5, 2)
    expected, plan = brute_force(mu, nu, eps)
    out = mf.sinkhorn(mu, nu, eps=eps, tol=1e-12)
    assert bool(out.converged)
    assert float(out.cost) == pytest.approx(expected, rel=1e-10)
    f, g = map(np.asarray, out.potentials)
    weights = np.asarray(mu.weights)[:, None] * np.asarray(nu.weights)
    np.testing.assert_allclose(np.exp((f[:, None] + g - cost_matrix(mu, nu, 2)) / eps) * weights, plan, atol=1e-10)
    own = [brute_force(m, m, eps)[0] for m in (mu, nu)]
    assert float(out.divergence) == pytest.approx(expected - sum(own) / 2, abs=1e-9)
    doubled = mf.sinkhorn(2 * mu, 2 * nu, eps=eps, tol=1e-12)
    assert float(doubled.divergence) == pytest.approx(2 * float(out.divergence), rel=1e-10)


def test_limits() -> None:
    mu, nu = prompt(0, 6, 2), prompt(1, 6, 2)
    square = float(mf.wasserstein(mu, nu) ** 2)
    small = mf.sinkhorn(mu, nu, eps=0.01)
    # 0 ≤ KL ≤ log n for the optimal permutation
    assert square - 1e-9 <= float(small.cost) <= square + 0.01 * np.log(6) + 1e-9
    assert float(small.divergence) == pytest.approx(square, abs=0.01 * np.log(6))
    # for large eps the plan is the product, and the divergence the squared distance of the means
    means = float(jnp.sum((mu.mean() - nu.mean()) ** 2))
    assert float(mf.sinkhorn(mu, nu, eps=1e5).divergence) == pytest.approx(means, rel=1e-3)


@settings(max_examples=15)
@given(seeds, st.sampled_from([0.1, 1.0, 10.0]))
def test_divergence_is_positive_and_separates(seed: int, eps: float) -> None:
    # kills: the entropic cost without its debiasing, whose minimum is not at mu = nu
    mu, nu = cloud(seed, 7, 2), cloud(seed + 1, 7, 2)
    out = mf.sinkhorn(mu, nu, eps=eps)
    assert float(out.divergence) > 1e-3
    same = mf.sinkhorn(mu, mu, eps=eps)
    assert bool(same.converged)
    assert float(same.divergence) < 1e-8
    assert float(same.cost) > 1e-3
    # a small move costs little: the divergence is at most of the order of its square
    moved = mu.push(lambda x: np.asarray(x) + 1e-3)
    assert 0 <= float(mf.sinkhorn(mu, moved, eps=eps).divergence) < 1e-5


def test_the_cost_alone_solves_one_problem() -> None:
    # kills: own problems solved with the first, or forgotten by a copy
    out = mf.sinkhorn(cloud(0, 7, 2), cloud(1, 5, 2), eps=0.5)
    assert bool(out.converged)
    assert "own" not in vars(out)
    assert float(out.divergence) > 0
    assert bool(out.own.converged)
    mean = float(np.asarray(out.own.costs).mean())
    assert float(out.divergence) == pytest.approx(float(out.cost) - mean, rel=1e-12)


def test_stored_and_streamed_kernels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: a stored kernel that is used after the potentials have left it, weights counted twice or not at all
    cases = [
        (cloud(0, 30, 2, passive=True), cloud(1, 25, 2).push(lambda y, far=far: np.asarray(y) + far), eps)
        for far in (0.0, 40.0)
        for eps in (0.003, 0.3, 30.0)
    ]
    stored = [mf.sinkhorn(mu, nu, eps=eps, tol=1e-10) for mu, nu, eps in cases]
    monkeypatch.setattr(entropic, "STORED", 0)
    for (mu, nu, eps), one in zip(cases, stored, strict=True):
        # another tolerance, for another program
        other = mf.sinkhorn(mu, nu, eps=eps, tol=1.1e-10)
        assert bool(one.converged)
        assert bool(other.converged)
        assert float(one.cost) == pytest.approx(float(other.cost), rel=1e-8)
        for f, g in zip(one.potentials, other.potentials, strict=True):
            np.testing.assert_allclose(f, g, atol=1e-5 * eps * max(1, np.abs(f).max()))


def test_unconverged_is_said() -> None:
    mu, nu = cloud(0, 7, 2), cloud(1, 5, 2)
    out = mf.sinkhorn(mu, nu, eps=0.05, max_iterations=3)
    assert not bool(out.converged)
    assert float(out.residual) > 1e-6
    assert float(out.iterations) == 3
    assert float(out.divergence) >= 0


def test_derivatives() -> None:
    """Against differences, in the points and weights of both measures and in eps."""
    mu, nu = cloud(0, 6, 2), cloud(1, 5, 2)
    rng = np.random.default_rng(0)
    tangents = jax.tree.map(lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape)), (mu, nu))

    def divergence(pair: Any, eps: Any) -> Any:
        return mf.sinkhorn(pair[0].normalized(), pair[1].normalized(), eps=eps, tol=1e-13).divergence

    step = 1e-5
    moved = [
        float(
            divergence(
                jax.tree.map(lambda x, dx, s=s: jax.device_put(np.asarray(x + s * dx)), (mu, nu), tangents), 1 + s
            )
        )
        for s in (step, -step)
    ]
    gradient, in_eps = jax.grad(divergence, (0, 1))((mu, nu), 1.0)
    found = sum(float(jnp.vdot(g, t)) for g, t in zip(*map(jax.tree.leaves, (gradient, tangents)), strict=True))
    # step² times a third derivative of order 10, and the tolerance over the step
    assert found + float(in_eps) == pytest.approx((moved[0] - moved[1]) / (2 * step), abs=1e-7)
    assert abs(found) > 1e-2


def test_a_new_size_compiles_nothing() -> None:
    mf.sinkhorn(prompt(0, 50, 2), prompt(1, 60, 2), eps=1.0)
    for n in (49, 57, 64):
        pair = prompt(0, n, 2), prompt(1, n - 1, 2)
        assert count_compilations(lambda pair=pair: mf.sinkhorn(*pair, eps=0.7)) == 0


@pytest.mark.filterwarnings("ignore")  # of POT, which looks for array libraries when it is imported
def test_another_library() -> None:
    from ot.bregman import sinkhorn_log

    def cost_of(mu: Any, nu: Any) -> float:
        cost, a, b = cost_matrix(mu, nu, 2), np.asarray(mu.weights), np.asarray(nu.weights)
        plan = sinkhorn_log(a, b, cost, reg=0.5, numItermax=100_000, stopThr=1e-13)
        return float((plan * cost).sum() + 0.5 * (plan * np.log(plan / (a[:, None] * b))).sum())

    mu, nu = cloud(0, 7, 2), cloud(1, 5, 2)
    out = mf.sinkhorn(mu, nu, eps=0.5, tol=1e-12)
    assert float(out.cost) == pytest.approx(cost_of(mu, nu), rel=1e-9)
    expected = cost_of(mu, nu) - (cost_of(mu, mu) + cost_of(nu, nu)) / 2
    assert float(out.divergence) == pytest.approx(expected, rel=1e-7)
