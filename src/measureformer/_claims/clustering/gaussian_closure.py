"""A Gaussian stays Gaussian along the flow of attention; particles agree with the equations for mean and covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer.flows import gaussian_flow
from measureformer.maps import Attention, Residual
from measureformer.measures import Discrete, Gaussian
from measureformer.result import Check, Figure, Outcome, Series

DIM = 2


@dataclass(frozen=True)
class Config:
    particles: int = 512
    repetitions: int = 24
    layers: int = 10
    time: float = 0.3


def _data(key: Any) -> tuple[np.ndarray, ...]:
    """Q, K, V with a non-symmetric KᵀQ, a mean and a covariance of moderate size."""
    draws = generator(key).normal(size=(5, DIM, DIM))
    Q, K, V = draws[:3] / np.linalg.norm(draws[:3], axis=(1, 2), keepdims=True)
    root = 0.7 * draws[3] / np.linalg.norm(draws[3])
    mean = draws[4, 0] / np.linalg.norm(draws[4, 0])
    return 1.5 * Q, 1.5 * K, V, mean, root @ root.T + 0.3 * np.eye(DIM)


def _clouds(key: Any, config: Config) -> np.ndarray:
    """Means and covariances (r, t, d + d²) of clouds of particles, by Heun's method in depth."""
    Q, K, V, mean, cov = _data(key)
    G, noise = Attention.head(Q, K, V), generator(key).normal(size=(config.repetitions, config.particles, DIM))
    half, step = np.linalg.cholesky(cov), config.time / config.layers
    found: list[np.ndarray] = []
    for cloud in noise:
        mu = Discrete.uniform(mean + cloud @ half.T)
        path = [mu]
        for _ in range(config.layers):
            ahead = np.asarray(Residual(G, step).push(mu).points)
            again = np.asarray(G.push(Discrete.uniform(ahead)).points)
            mu = Discrete.uniform(0.5 * (np.asarray(mu.points) + ahead + step * again))
            path.append(mu)
        unbiased = config.particles / (config.particles - 1)
        moments = [np.append(nu.mean(), unbiased * np.asarray(nu.covariance())) for nu in path]
        found.append(np.stack(moments))
    return np.stack(found)


def _moments(key: Any, config: Config, *, transposed: bool) -> np.ndarray:
    Q, K, V, mean, cov = _data(key)
    G = Attention.head(K, Q, V) if transposed else Attention.head(Q, K, V)
    flow = gaussian_flow(G, Gaussian(mean, cov), np.linspace(0, config.time, config.layers + 1))
    covs = np.asarray(flow.covs).reshape(len(flow.covs), -1)
    return np.concatenate([np.asarray(flow.means), covs], axis=1)


def _outcome(clouds: np.ndarray, moments: np.ndarray, figure: Figure | None = None) -> Outcome:
    gaps = clouds[:, -1] - moments[-1]
    # in units of the standard error of the average over clouds
    errors = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    scores = np.abs(gaps.mean(axis=0)) / errors
    checks = (
        Check("gap of the mean in standard errors, largest", float(scores[:DIM].max()), high=5.0),
        Check("gap of the covariance in standard errors, largest", float(scores[DIM:].max()), high=5.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    clouds, moments = _clouds(key, config), _moments(key, config, transposed=False)
    wrong = _moments(key, config, transposed=True)
    times = tuple(np.linspace(0, config.time, config.layers + 1).tolist())
    figure = Figure(
        "Particles and the equations for mean and covariance",
        "depth t",
        "second coordinate of the mean",
        (
            Series("mean of the Gaussian", times, tuple(moments[:, 1].tolist()), "line"),
            Series("particles", times, tuple(clouds[:, :, 1].mean(axis=0).tolist()), "points"),
            Series("control: QᵀK", times, tuple(wrong[:, 1].tolist()), "dashed"),
        ),
        caption=f"{config.repetitions} clouds of {config.particles} particles; random Q, K, V with KᵀQ not symmetric.",
    )
    return _outcome(clouds, moments, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_clouds(key, config), _moments(key, config, transposed=True))


claim = Claim(
    name="castin-2025-gaussian-closure",
    title="Gaussians stay Gaussian",
    statement=(
        "For every Q, K, V and A = KᵀQ, the flow of softmax attention that starts at N(m, Σ) is N(m(t), Σ(t)) with "
        "m' = V(I + ΣA)m and Σ' = VΣAΣ + ΣAᵀΣVᵀ, until it blows up."
    ),
    hypotheses=("one softmax head without mask", "the same Q, K, V at every depth"),
    reference="castin2025",
    run=_run,
    control=_control,
    control_statement="The same equations with QᵀK in place of KᵀQ, for V ≠ I and m ≠ 0.",
    quick=Config(),
    full=Config(particles=4096, repetitions=100, layers=30),
)
