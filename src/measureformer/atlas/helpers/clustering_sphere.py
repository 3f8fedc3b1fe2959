"""Tokens on the sphere that attract each other with Q = K = V = I: attention with and without its normaliser."""

from __future__ import annotations

from typing import Any

import numpy as np

from measureformer.clustering import sphere_energy
from measureformer.flows import flow
from measureformer.flows.particles import Trajectory
from measureformer.maps import Attention, Tangent, UnnormalizedAttention
from measureformer.measures import Discrete


def sphere_trajectory(
    X: np.ndarray, beta: float, times: Any, *, normalized: bool = True, value: float = 1.0
) -> Trajectory:
    """The flow of `Tangent` of one head with V = value·I from the rows of X, at the default tolerances."""
    kind = Attention if normalized else UnnormalizedAttention
    eye = np.eye(X.shape[1])
    return flow(Tangent(kind.head(eye, eye, value * eye, scale=beta)), Discrete.uniform(X), times)


def energies(traj: Trajectory, beta: float) -> np.ndarray:
    """The energy E_β at the times of the trajectory."""
    return np.array([sphere_energy(points, beta) for points in np.asarray(traj.points)])
