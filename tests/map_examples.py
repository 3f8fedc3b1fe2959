"""One example of every public map, found by inspection: a new map without an example fails the contract test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import measureformer as mf
from measureformer.maps.base import AbstractInContextMap

DIM = 3
KEY = jax.random.key(7)


class Kernel(AbstractInContextMap):
    """A map as a user would write it: an average with Gaussian weights, which knows nothing of masks and padding."""

    width: float

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        squares = jnp.sum((x[:, None] - mu.points[None]) ** 2, axis=2)
        return jax.nn.softmax(-squares / self.width + mu.log_weights, axis=1) @ mu.points


def _biases(heads: int, head_dim: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    return tuple(rng.normal(size=shape) for shape in [(heads, head_dim)] * 3 + [(DIM,)])


EXAMPLES: dict[str, Callable[[], AbstractInContextMap]] = {
    "AffineAttention": lambda: mf.AffineAttention.random(
        KEY, DIM, heads=2, head_dim=2, biases=_biases(2, 2), scale=0.7
    ),
    "RotaryAttention": lambda: mf.RotaryAttention.random(
        KEY, DIM, heads=2, head_dim=2, biases=_biases(2, 2), frequencies=[0.8], scale=0.7
    ),
    "GatedMLP": lambda: mf.GatedMLP(*np.random.default_rng(4).normal(size=(3, DIM, DIM)), activation="silu"),
    "Attention": lambda: mf.Attention.random(KEY, DIM, heads=2, scale=0.7),
    "DifferentialAttention": lambda: mf.DifferentialAttention.random(
        KEY, DIM, heads=2, head_dim=2, minus=tuple(np.random.default_rng(5).normal(size=(2, 2, 2, DIM))), scale=0.7
    ),
    "SigmoidAttention": lambda: mf.SigmoidAttention.random(KEY, DIM, heads=2, scale=0.7, bias=-0.5),
    "HardmaxAttention": lambda: mf.HardmaxAttention.random(KEY, DIM, heads=2),
    "LinearAttention": lambda: mf.LinearAttention.random(KEY, DIM, heads=2, scale=0.7),
    "L2Attention": lambda: mf.L2Attention.random(KEY, DIM, heads=2, scale=0.7),
    "SinkhornAttention": lambda: mf.SinkhornAttention.random(KEY, DIM, heads=2, scale=0.7),
    "UnnormalizedAttention": lambda: mf.UnnormalizedAttention.random(KEY, DIM, heads=2, scale=0.7),
    "Identity": mf.Identity,
    "Linear": lambda: mf.Linear(np.arange(6.0).reshape(2, DIM), [1.0, 2.0]),
    "MLP": lambda: mf.MLP.random(KEY, DIM, width=5, activation="tanh"),
    "LayerNorm": lambda: mf.LayerNorm([1.0, 2.0, 3.0], [0.0, 1.0, 0.0]),
    "RMSNorm": lambda: mf.RMSNorm([1.0, 2.0, 3.0]),
    "UnitNorm": lambda: mf.UnitNorm([1.0, 2.0, 3.0], [0.0, 1.0, 0.0]),
    "Residual": lambda: mf.Residual(mf.Attention.random(KEY, DIM), step=0.3),
    "Tangent": lambda: mf.Tangent(mf.Attention.random(KEY, DIM)),
    "Rescaled": lambda: mf.Rescaled(mf.Attention.random(KEY, DIM), time=0.5),
    "Causal": lambda: mf.Causal(mf.Residual(mf.Attention.random(KEY, DIM))),
    "Positional": lambda: mf.Positional(lambda t: t[:, None] * jnp.ones(DIM, t.dtype)),
    "Transformer": lambda: mf.Transformer.random(KEY, dim=DIM, depth=1, heads=3),
}
# attention inside a causal mask and inside a composition are other programs: laws are checked on them too
MORE: dict[str, Callable[[], AbstractInContextMap]] = {
    f"Causal({name})": lambda name=name: mf.Causal(EXAMPLES[name]())
    for name in (
        "DifferentialAttention",
        "HardmaxAttention",
        "LinearAttention",
        "L2Attention",
        "RotaryAttention",
        "SigmoidAttention",
        "UnnormalizedAttention",
    )
} | {
    "composition and sum": lambda: 0.5 * (EXAMPLES["MLP"]() @ EXAMPLES["Attention"]()) + EXAMPLES["LayerNorm"](),
    "a user's map": lambda: Kernel(0.7),
    "Causal(a user's map)": lambda: mf.Causal(mf.Residual(Kernel(0.7))),
    "causal transformer": lambda: mf.Transformer.random(KEY, dim=DIM, depth=1, norm="rms", causal=True),
}
ALL = EXAMPLES | MORE


def public_maps() -> set[str]:
    """Names of the concrete maps that `measureformer` offers."""
    found = {name: getattr(mf, name) for name in dir(mf) if not name.startswith("_")}
    return {
        name
        for name, kind in found.items()
        if inspect.isclass(kind) and issubclass(kind, AbstractInContextMap) and not inspect.isabstract(kind)
        if not name.startswith("Abstract")
    }


def context(G: AbstractInContextMap, seed: int, n: int = 8, dtype: Any = np.float64) -> Any:
    """A random weighted measure of the kind that G needs, one atom passive."""
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(n, DIM)).astype(dtype), rng.uniform(0.1, 1, n).astype(dtype)
    weights[n // 2] = 0
    if G.needs_time:
        times = rng.uniform(size=n).astype(dtype)
        times[n // 2] = 1  # a passive token before all mass would see nothing, and be refused
        return mf.SpaceTime.weighted(points, times, weights)
    return mf.Discrete.weighted(points, weights)


def queries(G: AbstractInContextMap, seed: int, m: int = 4, dtype: Any = np.float64) -> tuple[Any, ...]:
    """(x,) or (x, t) with times late enough to see something."""
    rng = np.random.default_rng(seed + 1)
    x = rng.normal(size=(m, DIM)).astype(dtype)
    return (x, rng.uniform(1, 2, m).astype(dtype)) if G.needs_time else (x,)


def late(G: AbstractInContextMap, mu: Any) -> tuple[Any, ...]:
    """Queries for which part of the context is visible and part is not, if G cares."""
    x = np.asarray(mu.points)[:4] + 0.1
    return (x, np.sort(np.asarray(mu.times))[-4:]) if G.needs_time else (x,)
