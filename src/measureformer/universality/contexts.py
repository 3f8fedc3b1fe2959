"""Random measures on a domain, in arrays of one size, and the values of a target on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, NotFiniteError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.buckets import pad_rows
from measureformer.numerics.types import ArrayLike

LIGHTEST = 1e-5
"""No atom is lighter: a black box that is asked by adding light atoms must be able to tell its own from them."""
TOGETHER = 64
"""Contexts on which a map is computed at the same time."""
Target: TypeAlias = Callable[[Discrete, np.ndarray], ArrayLike]
"""Γ*(mu, x) for queries (m, d), with values (m,) or (m, e)."""


class Contexts(NamedTuple):
    """Measures and queries; what is padded has no mass."""

    points: np.ndarray
    """(k, n, d)"""
    log_weights: np.ndarray
    """(k, n)"""
    x: np.ndarray
    """(k, m, d)"""

    @property
    def size(self) -> int:
        return len(self.points)

    def rows(self, index: Any) -> Contexts:
        return Contexts(*(leaf[index] for leaf in self))

    def measure(self, k: int) -> Discrete:
        """The k-th measure, without its padding."""
        felt = self.log_weights[k] > -np.inf
        return Discrete.weighted(self.points[k][felt], np.exp(self.log_weights[k][felt]))

    def joined(self, other: Contexts) -> Contexts:
        size = max(self.points.shape[1], other.points.shape[1])
        pair = [part.padded(size) for part in (self, other)]
        return Contexts(*(np.concatenate(leaves) for leaves in zip(*pair, strict=True)))

    def padded(self, size: int) -> Contexts:
        more = size - self.points.shape[1]
        points = np.concatenate([self.points, np.repeat(self.points[:, :1], more, axis=1)], axis=1)
        return Contexts(points, np.pad(self.log_weights, ((0, 0), (0, more)), constant_values=-np.inf), self.x)


def drawn(rng: np.random.Generator, domain: AbstractDomain, count: int, sizes: Sequence[int], queries: int) -> Contexts:
    """Measures of these numbers of atoms in turns: spread out, in clumps, or at the boundary; with equal weights, with
    random ones, or with very little mass on one side. Approximations are worst at the boundary; and a light part far
    away is nothing for a continuous function, but much for a sharp block.

    Half of the queries are atoms, as in a push-forward; the others lie anywhere.
    """
    most = max(sizes)
    # looked up once: to bind a method of an Equinox module takes longer than to draw some numbers
    draw, project, middle = domain.draw, domain.project, domain.middle
    points = np.empty((count, most, domain.dim))
    log_weights = np.full((count, most), -np.inf)
    x = np.empty((count, queries, domain.dim))
    for k in range(count):
        n = sizes[k % len(sizes)]
        own = draw(rng, n)
        if rng.uniform() < 0.5:
            centres = draw(rng, int(rng.integers(1, 4)))
            width = rng.uniform(0.02, 0.5)
            own = project(centres[rng.integers(len(centres), size=n)] + width * (own - middle))
        if rng.uniform() < 0.3:
            own = project(middle + rng.choice([1.5, 3.0, 20.0]) * (own - middle))
        points[k, :n], points[k, n:] = own, own[0]
        weights = np.ones(n) if rng.uniform() < 0.5 else rng.dirichlet(np.full(n, rng.choice([1.0, 3.0])))
        if rng.uniform() < 0.4:
            beyond = (own - own[rng.integers(n)]) @ rng.normal(size=x.shape[2]) >= 0
            weights[beyond] *= 10 ** -rng.uniform(0, 4.5)
        weights = np.maximum(weights / weights.sum(), LIGHTEST)
        log_weights[k, :n] = np.log(weights / weights.sum())
        anywhere, at = draw(rng, queries), rng.integers(n, size=queries)
        if rng.uniform() < 0.2:
            anywhere = project(middle + 3 * (anywhere - middle))
        x[k] = np.where(rng.uniform(size=(queries, 1)) < 0.5, anywhere, own[at])
    return Contexts(points, log_weights, x)


def answers(target: Target, contexts: Contexts) -> np.ndarray:
    """Values (k, m, e) of the target; in one program if it is a map of the library, else call by call."""
    if isinstance(target, AbstractInContextMap):
        target.check_meets(contexts.measure(0), None)
    if isinstance(target, AbstractInContextMap) and not target.eager:
        values = _together(target, contexts)
    else:
        if not callable(target):
            raise DtypeError(
                got=f"a target of type {type(target).__name__}",
                need="a function of a measure and of queries (m, d)",
                do="Write def target(mu, x): … that returns one row for each query.",
            )
        rows = [_called(target, contexts.measure(k), contexts.x[k]) for k in range(contexts.size)]
        if len({row.shape for row in rows}) > 1:
            raise ShapeError(
                got=f"values of shapes {sorted({row.shape for row in rows})}", need="one shape", do="Return (m, e)."
            )
        values = np.stack(rows)
    if not np.isfinite(values).all():
        k = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise NotFiniteError(
            got=f"a value of the target that is not finite, on a measure with {contexts.measure(k).n} atoms",
            need="finite numbers on the whole domain",
            do="Take a smaller domain, or a target that is continuous on it.",
        )
    return values


def _together(target: AbstractInContextMap, contexts: Contexts) -> np.ndarray:
    """Values of a map of the library, so many contexts at a time: any number of them is the same program."""
    found: list[np.ndarray] = []
    for start in range(0, contexts.size, TOGETHER):
        some = contexts.rows(slice(start, start + TOGETHER))
        padded: Any = [pad_rows(leaf, TOGETHER) for leaf in some]
        found.append(np.asarray(_evaluated(target, *padded))[: some.size])
    return np.concatenate(found)


@eqx.filter_jit
def _evaluated(target: AbstractInContextMap, points: Array, log_weights: Array, x: Array) -> Array:
    def one(y: Array, a: Array, q: Array) -> Array:
        return target.evaluate(Discrete(y, a), q, None)

    return jax.vmap(one)(points, log_weights, x)


def _called(target: Target, mu: Discrete, x: np.ndarray) -> np.ndarray:
    value = np.asarray(target(mu, x), float)
    if value.ndim not in (1, 2) or len(value) != len(x):
        raise ShapeError(
            got=f"values of shape {value.shape} for {len(x)} queries",
            need=f"({len(x)},) or ({len(x)}, e)",
            do="The target takes a measure and queries (m, d), and returns one row per query.",
        )
    return value.reshape(len(x), -1)


def perturbed(rng: np.random.Generator, domain: AbstractDomain, contexts: Contexts, size: float) -> Contexts:
    """Nearby measures and queries: atoms, weights and queries moved a little, sometimes an atom made very light."""
    points, log_weights, x = (leaf.copy() for leaf in contexts)
    k, n, dim = points.shape
    scale = size * domain.diameter
    points = domain.project(
        (points + scale * rng.normal(size=points.shape) * (rng.uniform(size=(k, n, 1)) < 0.5)).reshape(-1, dim)
    )
    x = domain.project((x + scale * rng.normal(size=x.shape)).reshape(-1, dim)).reshape(x.shape)
    log_weights = log_weights + 4 * size * rng.normal(size=log_weights.shape)
    light = (rng.uniform(size=log_weights.shape) < 0.05) & (log_weights < log_weights.max(axis=1, keepdims=True))
    log_weights = np.where(light, log_weights - 4, log_weights)
    log_weights = np.where(log_weights > -np.inf, np.maximum(log_weights, np.log(LIGHTEST)), -np.inf)
    top = log_weights.max(axis=1, keepdims=True)
    log_weights = log_weights - top - np.log(np.exp(log_weights - top).sum(axis=1, keepdims=True))
    return Contexts(points.reshape(k, n, dim), log_weights, x)


def climbed(
    rng: np.random.Generator,
    domain: AbstractDomain,
    start: Contexts,
    score: Callable[[Contexts], np.ndarray],
    rounds: int,
) -> Contexts:
    """Measures with larger scores (k,), by climbing: smaller and smaller changes are kept where the score grows."""
    current, height = start, score(start)
    for turn in range(rounds):
        other = perturbed(rng, domain, current, 0.1 * 0.75**turn)
        found = score(other)
        better = found > height
        current = Contexts(
            *(np.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(other, current, strict=True))
        )
        height = np.maximum(height, found)
    return current
