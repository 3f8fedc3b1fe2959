"""One example of every kind of measure, and every public function of each: a new function without an entry fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np

import measureformer as mf
from measureformer.measures import GaussianMixture, SpaceTime
from measureformer.measures.spacetime import Prefixes

DIM = 2
KEY = jax.random.key(11)
Run = Callable[[Any], Any]


def arrays(seed: int, n: int = 8, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, DIM) and weights (n,), of which every third is zero, the first one included."""
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(n, DIM)), rng.uniform(0.1, 1.0, n)
    weights[::3] = 0
    return points.astype(dtype), weights.astype(dtype)


def aligned(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Ones that begin at a multiple of 64 bytes: such an array JAX takes over without a copy unless told otherwise."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + size].view(dtype).reshape(shape)
    array[:] = 1
    return array


def covariances(seed: int, count: int, dtype: Any = np.float64, *, rank: int = DIM) -> np.ndarray:
    """Random covariances (count, DIM, DIM) of this rank."""
    factors = np.random.default_rng(seed).normal(size=(count, DIM, rank))
    return (factors @ factors.swapaxes(1, 2)).astype(dtype)


def discrete(seed: int, n: int = 8, dtype: Any = np.float64) -> mf.Discrete:
    return mf.Discrete.weighted(*arrays(seed, n, dtype))


def spacetime(seed: int, n: int = 8, dtype: Any = np.float64) -> mf.SpaceTime:
    points, weights = arrays(seed, n, dtype)
    # in no order, some of them equal
    times = np.random.default_rng(seed + 1).integers(1, 1 + n // 2, n) / n
    return mf.SpaceTime.weighted(points, times.astype(dtype), weights)


def gaussian(seed: int, n: int = 1, dtype: Any = np.float64) -> mf.Gaussian:
    return mf.Gaussian(arrays(seed, 2, dtype)[0][1], covariances(seed, 1, dtype)[0], log_mass=0.5)


def mixture(seed: int, n: int = 1, dtype: Any = np.float64) -> mf.GaussianMixture:
    """Three components, the first of weight zero."""
    points, weights = arrays(seed, 3, dtype)
    return mf.GaussianMixture(weights, points, covariances(seed, 3, dtype))


KINDS: dict[str, Callable[..., Any]] = {
    "Discrete": discrete,
    "SpaceTime": spacetime,
    "Prefixes": lambda *args, **options: Prefixes(spacetime(*args, **options)),
    "Gaussian": gaussian,
    "GaussianMixture": mixture,
}


def size_of(mu: Any) -> int:
    """The number of atoms; for a continuous measure the number of atoms that the examples ask for."""
    return getattr(mu, "n", 12)


def like(mu: Any, *shape: int) -> np.ndarray:
    """The same numbers of this shape every time, in the precision of mu."""
    return np.linspace(0.2, 1.0, int(np.prod(shape))).reshape(shape).astype(jax.tree.leaves(mu)[0].dtype)


EVERY: dict[str, Run] = {
    "mass": lambda mu: mu.mass,
    "log_mass": lambda mu: mu.log_mass,
    "mean": lambda mu: mu.mean(),
    "covariance": lambda mu: mu.covariance(),
    "second_moment": lambda mu: mu.second_moment(),
    "radius": lambda mu: mu.radius(),
    "normalized": lambda mu: mu.normalized(),
    "reweighted": lambda mu: mu.reweighted(like(mu, 1)[0]),
    "sample": lambda mu: mu.sample(KEY, size_of(mu)),
    "*": lambda mu: (3 * mu) * np.float64(0.5),
    "/": lambda mu: mu / 2,
}
ATOMIC: dict[str, Run] = EVERY | {
    "weights": lambda mu: mu.weights,
    "probabilities": lambda mu: mu.probabilities(),
    "with_points": lambda mu: mu.with_points(jax.device_put(like(mu, mu.n, 3))),
    "with_log_weights": lambda mu: mu.with_log_weights(jax.device_put(like(mu, mu.n))),
    "rows": lambda mu: mu.rows(np.arange(1, mu.n, 2)),
    "log_mass_until": lambda mu: mu.log_mass_until(None),
}
GAUSSIAN_LIKE: dict[str, Run] = EVERY | {
    "+": lambda mu: mu + 2 * mu,
    "tilt": lambda mu: mu.tilt(like(mu, size_of(mu), DIM)),
    "tilt with H": lambda mu: mu.tilt(like(mu, size_of(mu), DIM), np.eye(DIM, dtype=like(mu, 1).dtype)),
    "push_affine": lambda mu: mu.push_affine(like(mu, 3, DIM), like(mu, 3)),
}
# what goes through jit, grad and vmap; the functions of points do nothing, because eager JAX would compile them
TRACEABLE: dict[str, dict[str, Run]] = {
    "Discrete": ATOMIC
    | {
        "+": lambda mu: mu + 2 * mu,
        "integrate": lambda mu: mu.integrate(lambda x: x),
        "push": lambda mu: mu.push(lambda x: x),
    },
    "SpaceTime": ATOMIC
    | {
        "+": lambda mu: mu + 2 * mu,
        "integrate": lambda mu: mu.integrate(lambda x, t: x),
        "push": lambda mu: mu.push(lambda x, t: x),
        "space": lambda mu: mu.space(),
        "masked": lambda mu: mu.masked(),
    },
    # the rest it has from the measure that it wraps
    "Prefixes": {
        "log_mass_until": jax.jit(lambda mu: mu.log_mass_until(mu.times)),
        "masked": lambda mu: mu.masked(),
        "seen_at": jax.jit(lambda mu: mu.seen_at(mu.times[1])),
        "mean": lambda mu: mu.mean(),
        "sample": lambda mu: mu.sample(KEY, mu.n),
    },
    "Gaussian": GAUSSIAN_LIKE | {"root": lambda mu: mu.root(), "GaussianMixture.of": GaussianMixture.of},
    "GaussianMixture": GAUSSIAN_LIKE
    | {"components": lambda mu: mu.components(), "component": lambda mu: mu.component(1)},
}
_FINITE: dict[str, Run] = {
    "padded": lambda mu: mu.padded(),
    "compact": lambda mu: mu.compact(),
    "same_as": lambda mu: mu.same_as(mu),
}
_CONTINUOUS: dict[str, Run] = {
    "discretize": lambda mu: mu.discretize(size_of(mu)),
    "same_as": lambda mu: mu.same_as(mu),
}
CONCRETE_ONLY: dict[str, dict[str, Run]] = {
    "Discrete": _FINITE,
    "SpaceTime": _FINITE | {"until": lambda mu: mu.until(np.asarray(mu.times).max())},
    "Prefixes": {"padded": lambda mu: mu.padded()},
    "Gaussian": _CONTINUOUS,
    "GaussianMixture": _CONTINUOUS,
}
# constructors have tests of their own; sizes are not arrays; `tilted` is the formula inside `tilt`
_ELSEWHERE = {"uniform", "weighted", "dirac", "cantor", "sequence", "of", "n", "dim", "tilted", "points", "times"}
_ELSEWHERE |= {"log_weights", "visible"}
_REFUSED = {"integrate", "push"}


def entries(*tables: dict[str, dict[str, Run]]) -> list[tuple[str, str]]:
    """(kind, name) of everything in these tables."""
    return [(kind, name) for table in tables for kind, runs in table.items() for name in runs]


def uncovered(kind: str) -> set[str]:
    """Public names of this kind of measure that no table mentions."""
    cls = getattr(mf, kind, Prefixes)
    names = {name for name in dir(cls) if not name.startswith("_")} - {field.name for field in fields(cls)}
    known = set(TRACEABLE[kind]) | set(CONCRETE_ONLY[kind]) | _ELSEWHERE
    if kind == "Prefixes":
        known |= set(ATOMIC) | set(_FINITE)
    return names - known - (_REFUSED if "Gaussian" in kind else set())


def floating(tree: Any) -> list[Any]:
    """The floating-point arrays in what a function returned."""
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]


def weighted_like(kind: str, points: Any, weights: Any, times: Any) -> Any:
    """A measure with atoms of this kind, from arrays that may be traced."""
    if kind == "Discrete":
        return mf.Discrete.weighted(points, weights)
    sigma = SpaceTime.weighted(points, times, weights)
    return Prefixes(sigma) if kind == "Prefixes" else sigma


@cache
def _standard(rank: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.array(list(product(nodes, repeat=rank)))
    return grid, np.prod(list(product(weights / weights.sum(), repeat=rank)), axis=1)


def quadrature(mean: np.ndarray, factor: np.ndarray, order: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Hermite nodes and weights for the law of mean + factor·z, z standard normal: singular laws included."""
    grid, mass = _standard(factor.shape[1], order)
    return mean + grid @ factor.T, mass


def tilted_by_quadrature(
    parts: list[tuple[float, np.ndarray, np.ndarray]], a: np.ndarray, H: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """log Z and the tilted mean of Σ w N(mean, factor·factorᵀ) normalised, for one tilt a."""
    nodes, mass = zip(*(quadrature(mean, factor) for _, mean, factor in parts), strict=True)
    y, p = np.concatenate(nodes), np.concatenate([w * m for (w, _, _), m in zip(parts, mass, strict=True)])
    density = p / p.sum() * np.exp(y @ a - (0 if H is None else np.einsum("ni,ij,nj->n", y, H, y) / 2))
    return float(np.log(density.sum())), density @ y / density.sum()
