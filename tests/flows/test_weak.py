"""The weak form as a check of trajectories: right ones pass, wrong ones are caught by as much as they are wrong."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from measureformer import errors
from measureformer.flows.flow_map import Depthwise

residual_of = inspect.unwrap(mf.flows.weak_residual)
"""Without the check of its arguments: any object with times and measures stands for a trajectory."""
SHARP: dict[str, Any] = {"steps": diffrax.PIDController(rtol=1e-9, atol=1e-9)}


def cloud(n: int = 9) -> mf.Discrete:
    rng = np.random.default_rng(0)
    return mf.Discrete.weighted(rng.normal(size=(n, 2)), rng.uniform(0.2, 1, n))


def head(factor: float = 1.0) -> mf.Attention:
    rng = np.random.default_rng(1)
    return mf.Attention.head(*rng.normal(size=(2, 2, 2)), factor * rng.normal(size=(2, 2)))


@pytest.fixture(scope="module")
def traj() -> Any:
    return mf.flow(head(), cloud(), np.linspace(0, 1, 17), **SHARP)


def test_a_flow_passes_and_a_velocity_wrong_by_a_percent_does_not(traj: Any) -> None:
    good = mf.flows.weak_residual(traj)
    assert good.quadrature < 1e-3
    assert good.relative < good.quadrature
    # the error is that of the velocity, whichever of the two is wrong
    bad = mf.flows.weak_residual(traj, head(1.01))
    slow = mf.flow(head(0.99), cloud(), np.linspace(0, 1, 17), **SHARP)
    for found in (bad, mf.flows.weak_residual(slow, head())):
        assert 0.004 < found.relative < 0.02
        assert found.relative > 5 * found.quadrature


def test_only_the_stored_measures_are_read(traj: Any) -> None:
    # kills a check that solves again: one token is moved at one time
    points = np.array(traj.points)
    points[8, 3] += 0.1
    broken = SimpleNamespace(
        times=traj.times, velocity=traj.velocity, measures=tuple(cloud().with_points(jnp.asarray(p)) for p in points)
    )
    found = residual_of(broken)
    assert found.relative > 20 * mf.flows.weak_residual(traj).relative
    # the residual of the moved row, and not of the rows before
    assert np.abs(found.residuals[8]).max() > 100 * np.abs(found.residuals[6]).max()


def test_residuals_by_hand() -> None:
    # v = 1 on the line, ψ(x) = x²: ∫ψ dμ_t = t² for a token at t. A token that stands still misses all of it
    G, times = mf.Linear([[0.0]], [1.0]), np.array([0.0, 0.5, 2.0])
    moving, still = (
        SimpleNamespace(times=times, measures=tuple(2.0 * mf.Discrete.dirac([s * t]) for t in times)) for s in (1, 0)
    )
    tests = [lambda x: x[0] ** 2, lambda x: x[0]]
    good, bad = (residual_of(t, G, tests=tests) for t in (moving, still))
    np.testing.assert_allclose(good.residuals, 0, atol=1e-12)
    np.testing.assert_allclose(good.moved, [8.0, 4.0])
    np.testing.assert_allclose(bad.residuals[:, 1], -2 * times)
    assert bad.relative == pytest.approx(1.0)


def test_the_estimated_quadrature_error_is_an_upper_bound(traj: Any) -> None:
    # the trajectory is as good as exact: what is left is quadrature, of order 4 in the number of times
    found = {}
    for stride in (1, 2, 4):
        part = SimpleNamespace(times=traj.times[::stride], velocity=traj.velocity, measures=traj.measures[::stride])
        found[stride] = residual_of(part)
    for residual in found.values():
        assert (np.abs(residual.residuals).max(axis=0) <= residual.errors.max(axis=0) + 1e-8).all()
    assert found[4].relative / found[1].relative > 30


def test_a_residual_network_shows_its_depth() -> None:
    def relative(steps: int) -> float:
        net = mf.flow(head(), cloud(), np.linspace(0, 1, 17), solver="euler", steps=steps)
        return mf.flows.weak_residual(net).relative

    assert 1.8 < relative(2) / relative(4) < 2.2


def test_a_grid_passes_too() -> None:
    G = mf.Attention.head([[1.0]], [[-0.8]], [[1.0]])
    start = lambda x: np.exp(-(x[:, 0] ** 2) / 2)  # noqa: E731
    coarse, fine = (
        mf.flows.weak_residual(mf.flow(G, mf.flows.Density(start, [(-7, 7)], cells=n), np.linspace(0, 1, 9))).relative
        for n in (64, 128)
    )
    assert fine < 0.01
    assert coarse / fine > 3


def test_measures_on_space_time_and_compilation() -> None:
    def run(n: int, times: int) -> Any:
        start = mf.SpaceTime.sequence(np.random.default_rng(n).normal(size=(n, 2)))
        return mf.flow(mf.Causal(head()), start, np.linspace(0, 0.5, times), **SHARP)

    first, second = run(6, 15), run(11, 16)
    assert mf.flows.weak_residual(first).relative < 1e-4
    assert count_compilations(lambda: mf.flows.weak_residual(second)) == 0


def test_refusals(traj: Any) -> None:
    two = SimpleNamespace(times=traj.times[:2], measures=traj.measures[:2], velocity=head())
    with pytest.raises(errors.TimeError, match="at least three"):
        residual_of(two)
    layers = SimpleNamespace(times=traj.times, measures=traj.measures, velocity=Depthwise((head(), head())))
    with pytest.raises(errors.OptionError, match="depends on depth"):
        residual_of(layers)
    with pytest.raises(errors.DtypeError, match="need a trajectory"):
        mf.flows.weak_residual(cloud())
    with pytest.raises(errors.DtypeError, match="tests of type function; need a sequence"):
        mf.flows.weak_residual(traj, tests=lambda x: x[0])
    with pytest.raises(errors.ShapeError, match="one number each"):
        mf.flows.weak_residual(traj, tests=[lambda x: x])
    gaussians = SimpleNamespace(times=[0, 1, 2], measures=(mf.Gaussian(np.zeros(2), np.eye(2)),) * 3)
    with pytest.raises(errors.DtypeError, match="with atoms"):
        residual_of(gaussians, head())
