"""Maps between measures with known answers: which of them are given by a continuous in-context map, and why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from measureformer.maps import HardmaxAttention, Residual, Transformer
from measureformer.measures import Box, Discrete
from measureformer.measures.domain import FixedTimes
from measureformer.numerics.arrays import on_device

LINE, PLANE = Box([-1.0], [1.0]), Box([-1.0, -1.0], [1.0, 1.0])
Map = Callable[[Discrete], Discrete]


class Animal(NamedTuple):
    """A map, where it lives, and whether it is representable ("") or why not."""

    f: Map
    domain: Any
    reasons: tuple[str, ...]
    """Admissible reasons of a rejection; empty for a representable map."""


def pushed(T: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Map:
    """mu ↦ T(·, weights)♯mu in NumPy: T takes points and normalised weights."""

    def f(mu: Discrete) -> Discrete:
        points, weights = np.asarray(mu.points), np.exp(np.asarray(mu.log_weights))
        return Discrete(on_device(T(points, weights / weights.sum())), mu.log_weights)

    return f


def residual_head(A: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Points and weights ↦ x + Γ(mu, x) for the softmax head with query–key matrix A and V = I, in NumPy."""
    return lambda x, a: x + softmax(x @ A.T @ x.T, a) @ x


def zoo(key: Any) -> dict[str, Animal]:
    """All of them, by name: the first half is representable."""
    A = np.array([[1.0, 0.4], [-0.3, 0.8]])
    sharp = HardmaxAttention.head(np.eye(1), np.eye(1), np.eye(1))
    return {
        "attention": Animal(pushed(residual_head(A)), PLANE, ()),
        "transformer": Animal(Transformer.random(key, dim=2, depth=1, norm="rms").push, PLANE, ()),
        "flow": Animal(flowed(lambda x, a: 0.7 * softmax(x @ A.T @ x.T, a) @ x, 0.5), PLANE, ()),
        "Cucker–Smale": Animal(flowed(alignment, 1.0), PLANE, ()),
        "ReLU": Animal(pushed(lambda x, a: np.maximum(x, 0)), LINE, ()),
        "mean": Animal(pushed(lambda x, a: np.broadcast_to(a @ x, x.shape).copy()), LINE, ()),
        "signed root": Animal(pushed(lambda x, a: np.sign(x) * np.sqrt(np.abs(x))), LINE, ()),
        "softened counterexample": Animal(_near_zero(0.1), LINE, ()),
        "causal, fixed times": Animal(pushed(_causal), FixedTimes(LINE, [0.25, 0.5, 1.0]), ()),
        "counterexample": Animal(_near_zero(0.0), LINE, ("derivative",)),
        "Bayes": Animal(_bayes, LINE, ("support",)),
        "smoothing": Animal(_smoothing, LINE, ("support",)),
        "resampling": Animal(_resampling, LINE, ("support",)),
        "quantiles": Animal(_quantiles, LINE, ("f discontinuous", "support")),
        # where times coincide f jumps, and so does its regular derivative: both conditions fail
        "causal, plain space–time": Animal(
            pushed(_causal), Box([-1.0, 0.0], [1.0, 1.0]), ("f discontinuous", "derivative")
        ),
        "rank": Animal(pushed(_rank), LINE, ("f discontinuous",)),
        "nearest code": Animal(pushed(_nearest), LINE, ("f discontinuous",)),
        "hard attention": Animal(Residual(sharp).push, LINE, ("f discontinuous",)),
    }


def softmax(logits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = weights * np.exp(logits - logits.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def flowed(velocity: Callable[[np.ndarray, np.ndarray], np.ndarray], time: float, steps: int = 8) -> Map:
    """The flow of a velocity by Runge and Kutta's method, as a simulator would write it."""

    def T(x: np.ndarray, a: np.ndarray) -> np.ndarray:
        h = time / steps
        for _ in range(steps):
            k1 = velocity(x, a)
            k2 = velocity(x + h / 2 * k1, a)
            k3 = velocity(x + h / 2 * k2, a)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(x + h * k3, a))
        return x

    return pushed(T)


def alignment(z: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Cucker and Smale's velocities on the line: points (x, v), v' = Σ_j a_j (v_j − v)/(1 + (x_j − x)²)^½."""
    x, v = z.T
    return np.stack([v, ((v - v[:, None]) / np.sqrt(1 + (x - x[:, None]) ** 2)) @ a], axis=1)


def _causal(z: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Masked attention on points (x, t), with a residual; times are carried."""
    x, t = z[:, :1], z[:, 1]
    scores = a * np.exp(1.5 * x @ x.T) * (t <= t[:, None])
    return np.concatenate([x + 0.8 * scores @ x / scores.sum(axis=1, keepdims=True), z[:, 1:]], axis=1)


def _near_zero(softening: float) -> Map:
    """The counterexample, or its control, written out."""

    def T(x: np.ndarray, a: np.ndarray) -> np.ndarray:
        bump = np.maximum(0, 1 - 4 * x**2) ** 2
        s = float(a @ bump[:, 0]) + softening
        return x + bump / 4 * (np.tanh(x / s) if s > 0 else np.sign(x))

    return pushed(T)


def _bayes(mu: Discrete) -> Discrete:
    """e^{−Φ} mu / Z with Φ(x) = x."""
    tilted = mu.with_log_weights(on_device(np.asarray(mu.log_weights) - np.asarray(mu.points)[:, 0]))
    return tilted.normalized()


def _smoothing(mu: Discrete) -> Discrete:
    """Convolution with a Gaussian, by its three-point quadrature."""
    nodes, weights = np.sqrt(3) * 0.1 * np.array([-1, 0, 1]), np.array([1, 4, 1]) / 6
    points, mass = np.asarray(mu.points), np.asarray(mu.weights)
    return Discrete.weighted((points + nodes).reshape(-1, 1), (mass[:, None] * weights).reshape(-1))


def _order(mu: Discrete) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(np.asarray(mu.points)[:, 0], kind="stable")
    return np.asarray(mu.points)[order, 0], np.asarray(mu.probabilities())[order]


def _quantiles(mu: Discrete) -> Discrete:
    """Four atoms at the quantiles 1/8, 3/8, 5/8, 7/8."""
    x, a = _order(mu)
    at = np.minimum(np.searchsorted(np.cumsum(a), np.arange(1, 8, 2) / 8), len(x) - 1)
    return Discrete.uniform(x[at][:, None])


def _resampling(mu: Discrete) -> Discrete:
    """Four atoms, each at the mean of a quarter of the mass from left to right."""
    x, a = _order(mu)
    levels = np.concatenate([[0.0], np.cumsum(a)])
    integral = np.interp(np.arange(5) / 4, levels / levels[-1], np.concatenate([[0.0], np.cumsum(x * a)]))
    return Discrete.uniform(4 * np.diff(integral)[:, None])


def _rank(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """F_mu(x) = mu((−∞, x])."""
    return ((x >= x.T) * a).sum(axis=1)[:, None]


def _nearest(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The nearest of three points, as vector quantisation has it."""
    codes = np.array([-0.7, -0.1, 0.55])
    return codes[np.abs(x - codes).argmin(axis=1)][:, None]
