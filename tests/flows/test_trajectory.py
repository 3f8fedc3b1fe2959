"""What `mf.flow` returns reads the same whatever moves: times, measures, `at`, and `map` or its refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.flows.trajectory import AbstractTrajectory

TIMES = [0.0, 0.5, 2.0]
SHRINK = mf.Linear([[-1.0]])
"""x' = −x: means times e^{−t}, covariances times e^{−2t}."""


def bump(x: np.ndarray) -> np.ndarray:
    return np.exp(-((x[:, 0] - 1) ** 2) / 2) / np.sqrt(2 * np.pi)


MOVING: dict[str, Callable[[], Any]] = {
    "atoms": lambda: mf.Discrete.weighted([[0.0], [2.0]], [0.5, 0.5]),
    "Gaussian": lambda: mf.Gaussian([1.0], [[1.0]]),
    "density": lambda: mf.flows.Density(bump, [(-8.0, 8.0)], cells=400),
}


@pytest.fixture(scope="module")
def trajectories() -> dict[str, Any]:
    return {kind: mf.flow(SHRINK, made(), TIMES) for kind, made in MOVING.items()}


@pytest.mark.parametrize("kind", MOVING)
def test_every_trajectory_has_times_and_measures_at_them_and_in_between(
    kind: str, trajectories: dict[str, Any]
) -> None:
    traj = trajectories[kind]
    assert isinstance(traj, AbstractTrajectory)
    assert np.asarray(traj.times).tolist() == TIMES
    assert len(traj.measures) == len(TIMES)
    for i, t in enumerate(TIMES):
        assert traj.at(t).same_as(traj.measures[i])
    for t in (0.25, 1.7):
        tol = 2e-3 if kind == "density" else 1e-5  # O(h²) on cells
        np.testing.assert_allclose(traj.at(t).mean(), [np.exp(-t)], atol=tol)
        np.testing.assert_allclose(traj.at(t).covariance(), [[np.exp(-2 * t)]], atol=tol)


@pytest.mark.parametrize("kind", MOVING)
def test_times_outside_of_the_interval_are_refused(kind: str, trajectories: dict[str, Any]) -> None:
    for t in (-0.1, 2.1):
        with pytest.raises(errors.TimeError, match="on a trajectory from 0 to 2; need a time in this interval"):
            trajectories[kind].at(t)


def test_only_atoms_have_a_map(trajectories: dict[str, Any]) -> None:
    atoms = trajectories["atoms"]
    np.testing.assert_allclose(atoms.map(1.0)(MOVING["atoms"](), [3.0]), [3 * np.exp(-1)], atol=1e-5)
    for kind, name in (("Gaussian", "Gaussian"), ("density", "Density")):
        with pytest.raises(errors.NoClosedFormError, match=f"moves a {name}; need a flow of atoms.*Take atoms first"):
            trajectories[kind].map(1.0)


def test_a_gaussian_between_times_is_moved_by_the_layer_of_that_time() -> None:
    # the second layer begins in the middle of all times: kills a flow that ends at the time that is asked for
    layers = [mf.Linear([[-1.0]]), mf.Linear([[0.5]])]
    traj = mf.flow(layers, MOVING["Gaussian"](), TIMES)
    np.testing.assert_allclose(traj.at(0.8).mean(), [np.exp(-0.8)], rtol=1e-8)
    np.testing.assert_allclose(traj.at(1.6).mean(), [np.exp(-1 + 0.3)], rtol=1e-8)


def test_a_gaussian_has_no_measure_after_its_blow_up() -> None:
    # Σ(t) = 1/(1 − 2t)
    traj = mf.flow(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), mf.Gaussian([0.0], [[1.0]], log_mass=1.0), [0, 0.4, 1])
    assert traj.blow_up == pytest.approx(0.5)
    np.testing.assert_allclose(traj.at(0.25).covariance(), [[2.0]], rtol=1e-9)
    assert float(traj.at(0.25).log_mass) == 1.0
    with pytest.raises(errors.TimeError, match=r"from 0 to 0\.4"):
        traj.at(0.6)


def test_the_last_time_of_a_gaussian_in_single_precision_is_one_of_its_times() -> None:
    # 0.7 rounds down: kills a comparison in double precision
    single = mf.Gaussian(np.ones(1, np.float32), np.eye(1, dtype=np.float32))
    traj = mf.flow(mf.Linear(np.array([[-1.0]], np.float32)), single, [0.0, 0.7])
    assert traj.times.dtype == np.float32
    assert traj.at(0.7).same_as(traj.measures[-1])
