"""A Gaussian stays Gaussian along the flow of attention; particles agree with the equations for mean and covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.maps_quadrature import gauss_hermite
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import flow
from measureformer.maps import Attention, Residual
from measureformer.measures import Gaussian
from measureformer.numerics.arrays import on_device

DIM = 2
FEW = 2
"""Nodes per axis of a law that has the moments of the Gaussian up to order 3, and is none."""


@dataclass(frozen=True)
class Config:
    nodes: int = 16
    layers: int = 12
    time: float = 0.3


def _data(key: Key) -> tuple[np.ndarray, ...]:
    """Q, K, V with KᵀQ = 1.2 times a rotation, far from symmetric; a mean of norm 1 and a covariance."""
    rng = generator(key)
    angle = rng.uniform(0.8, 1.2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    V, root = rng.normal(size=(2, DIM, DIM))
    mean = rng.normal(size=DIM)
    root *= 0.5 / np.linalg.norm(root)
    V = np.eye(DIM) + 0.5 * V / np.linalg.norm(V)
    return 1.2 * turn, np.eye(DIM), V, mean / np.linalg.norm(mean), root @ root.T + 0.3 * np.eye(DIM)


def _cloud(key: Key, config: Config, layers: int, *, nodes: int) -> np.ndarray:
    """Means and covariances (t, d + d²) of weighted particles, the nodes of a quadrature, by Heun's method in depth."""
    Q, K, V, mean, cov = _data(key)
    G, step, mu = Attention.head(Q, K, V), config.time / layers, gauss_hermite(Gaussian(mean, cov), nodes)
    path = [mu]
    for _ in range(layers):
        ahead = Residual(G, step).push(mu)
        again = np.asarray(Residual(G, step).push(ahead).points)
        mu = mu.with_points(on_device(0.5 * (np.asarray(mu.points) + again)))
        path.append(mu)
    return np.stack([np.append(nu.mean(), nu.covariance()) for nu in path])


def _moments(key: Key, config: Config, *, transposed: bool) -> np.ndarray:
    Q, K, V, mean, cov = _data(key)
    G = Attention.head(K, Q, V) if transposed else Attention.head(Q, K, V)
    traj = flow(G, Gaussian(mean, cov), np.linspace(0, config.time, config.layers + 1))
    covs = np.asarray(traj.covs).reshape(len(traj.covs), -1)
    return np.concatenate([np.asarray(traj.means), covs], axis=1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    truth = _moments(key, config, transposed=variant == "transposed")[-1]
    nodes = FEW if variant == "same-moments" else config.nodes
    path = _cloud(key, config, config.layers, nodes=nodes)
    few, many = (np.abs(end - truth) for end in (_cloud(key, config, config.layers // 2, nodes=nodes)[-1], path[-1]))
    mean, cov = (many[part].max() / np.abs(truth[part]).max() for part in (slice(DIM), slice(DIM, None)))
    ratio, wrong = few.max() / many.max(), ("transposed", "same-moments")
    checks = (
        Check("relative gap of the mean", mean, high=2e-3, rejected_by=wrong),
        Check("relative gap of the covariance", cov, high=2e-3, rejected_by=wrong),
        Check("largest gap with half as many layers over that", ratio, 3.0, 5.0, rejected_by=wrong),
    )
    return Outcome(checks, _figure(key, config, path) if variant == "claim" else None)


def _figure(key: Key, config: Config, path: np.ndarray) -> Figure:
    right, wrong = (_moments(key, config, transposed=transposed) for transposed in (False, True))
    times = np.linspace(0, config.time, config.layers + 1)
    series: list[Series] = []
    for name, column in (("mean, coordinate 1", 0), ("covariance, entry (1,1)", DIM)):
        series += [
            Series(f"{name}: equation", times, right[:, column], "line", role="theory"),
            Series(f"{name}: particles", times, path[:, column], "points", role="measured"),
            Series(f"{name}: control, QᵀK", times, wrong[:, column], "dashed", role="control"),
        ]
    caption = f"{config.nodes}² weighted particles in dimension {DIM}; KᵀQ is 1.2 times a rotation, V ≠ I."
    return Figure("Particles and the equations", "depth t", "moments", tuple(series), caption=caption)


claim = Claim(
    name="castin-2025-gaussian-closure",
    title="Gaussians stay Gaussian",
    kind="theorem",
    statement=(
        "For every Q, K, V and A = KᵀQ, the flow of softmax attention that starts at N(m, Σ) is N(m(t), Σ(t)) with "
        "m' = V(I + ΣA)m and Σ' = VΣAΣ + ΣAᵀΣVᵀ, until it blows up."
    ),
    hypotheses=(
        "one softmax head without mask",
        "the same Q, K, V at every depth",
        "tested in the plane, until t = 0.3, before any blow-up",
    ),
    reference="castin2025",
    measure=measure,
    controls={
        "transposed": "The same equations with QᵀK in place of KᵀQ, for V ≠ I and m ≠ 0.",
        "same-moments": "The start is a law of four points with the same moments up to order 3.",
    },
    quick=Config(),
    full=Config(nodes=30, layers=40),
)
