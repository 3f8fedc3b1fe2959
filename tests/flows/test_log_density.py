"""Densities along flows: Gaussians under linear velocities, and the determinant of the derivative of the flow map."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import multivariate_normal

import measureformer as mf
from measureformer import errors

SHARP: dict[str, Any] = {"steps": diffrax.PIDController(rtol=1e-9, atol=1e-9)}
COV = np.array([[1.0, 0.3], [0.3, 0.5]])


def test_a_gaussian_under_a_linear_velocity() -> None:
    # the law at time t is N(0, e^{Mt} Σ e^{Mᵀt}); kills the sign of the divergence, and points that do not move
    M = np.array([[0.4, 1.0], [-0.2, 0.3]])
    traj = mf.flow(mf.Linear(M), mf.Gaussian(np.zeros(2), COV).sample(jax.random.key(0), 9), [0.0, 0.4, 1.0], **SHARP)
    rho = multivariate_normal(np.zeros(2), COV)
    points, logs = traj.log_density(rho.logpdf)
    np.testing.assert_array_equal(points[0], traj.points[0])
    for t, x, log in zip(traj.times, points, logs, strict=True):
        law = multivariate_normal(np.zeros(2), expm(M * t) @ COV @ expm(M * t).T)
        np.testing.assert_allclose(log, law.logpdf(np.asarray(x)), atol=1e-7)
    # ⟨e, Me⟩ with signs e is tr M ± (M_12 + M_21): the estimator is right up to its known noise, and not exact
    _, estimated = traj.log_density(rho.logpdf, key=jax.random.key(1), probes=400)
    error = np.asarray(estimated - logs)[-1]
    assert 0 < np.abs(error).max() < 5 * 0.8 / np.sqrt(400)


def test_attention_agrees_with_the_determinant_of_the_flow_map() -> None:
    rng = np.random.default_rng(0)
    mu, x = mf.Discrete.weighted(rng.normal(size=(7, 2)), rng.uniform(0.2, 1, 7)), rng.normal(size=(3, 2))
    traj = mf.flow(mf.Attention.random(jax.random.key(0), 2), mu, [0.0, 0.8], **SHARP)
    _, logs = traj.log_density(lambda x: np.zeros(len(x)), x)
    phi, h = traj.map(0.8), 1e-4
    # central differences of the map: no derivative of ours
    ends = [np.asarray(phi(mu, x + sign * h * e)) for e in np.eye(2) for sign in (1, -1)]
    jacobian = np.stack([ends[0] - ends[1], ends[2] - ends[3]], axis=-1) / (2 * h)
    np.testing.assert_allclose(logs[-1], -np.log(np.linalg.det(jacobian)), atol=1e-4)


def test_points_without_times_are_refused_on_space_time() -> None:
    traj = mf.flow(mf.Identity(), mf.SpaceTime.sequence([[1.0], [2.0]]), [0.0, 1.0])
    with pytest.raises(errors.TimeError, match="Leave x out"):
        traj.log_density(lambda x: x[:, 0], [[0.0]])
