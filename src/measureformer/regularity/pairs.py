"""`worst_pair`: two measures whose images are as far apart as a search can make them, for any distance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from measureformer.maps.base import AbstractInContextMap
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import on_device, positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.random import normal, two_keys
from measureformer.numerics.types import ArrayLike, Key
from measureformer.regularity.local import ball_radius, require_map

LONGER, SHORTER = 1.5, 0.9
"""How the size of a move changes after a success, and after a failure."""


class WorstPair(NamedTuple):
    """Two measures and the ratio distance(G♯mu, G♯nu)/distance(mu, nu)."""

    ratio: float
    mu: AbstractAtomic
    nu: AbstractAtomic


@checked
def worst_pair(
    G: AbstractInContextMap,
    mu: AbstractAtomic,
    # Any: a distance may be defined for one kind of measures only
    distance: Callable[[Any, Any], SupportsFloat],
    *,
    key: Key,
    radius: ArrayLike | None = None,
    steps: int = 200,
) -> WorstPair:
    """A pair of measures whose distance G stretches much: a lower bound of its Lipschitz constant for this distance.

    Starts from mu and a displacement of it, moves both at random in a ball, and keeps what increases the ratio. Unlike
    with the local constant, the two are finitely far apart, weights count, and any p will do. A search, not a
    certificate.

    Arguments:
        G: a map.
        mu: the start, a measure with atoms.
        distance: exact distance of two measures: `mf.wasserstein`, or `lambda mu, nu: mf.wasserstein(mu, nu, p=1)`.
        key: random key of the moves.
        radius: radius of the ball; by default that of mu.
        steps: number of moves.

    Cost        two evaluations of the distance, and of G, for each step.

    >>> import jax, measureformer as mf
    >>> mean = mf.Attention.head([[0.0]], [[0.0]], [[2.0]])
    >>> start = mf.Discrete.weighted([[0.0], [1.0]], [1.0, 2.0])
    >>> found = mf.regularity.worst_pair(mean, start, mf.wasserstein, key=jax.random.key(0))
    >>> bool(1.99 < found.ratio <= 2 + 1e-9)
    True
    """
    require_map(G)
    steps, R = positive_int(steps, "steps"), ball_radius(mu.radius() if radius is None else radius)
    for_moves, for_growth = two_keys(prng_key(key))
    moves, growth = normal(for_moves, (steps + 1, 2, *mu.points.shape)), normal(for_growth, (steps,))

    def in_ball(points: np.ndarray) -> Any:
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        inside = points * np.minimum(1, R / np.maximum(norms, R))
        return mu.with_points(on_device(inside.astype(mu.points.dtype)))

    # closer than this, the search would find rounding errors
    nearest = R * float(np.finfo(mu.points.dtype).eps) ** (1 / 3)

    def stretched(mu: Any, nu: Any) -> WorstPair:
        apart = float(distance(mu, nu))
        return WorstPair(float(distance(G.push(mu), G.push(nu))) / apart if apart > nearest else -math.inf, mu, nu)

    X, share = np.asarray(mu.points), 0.5
    best = stretched(mu, in_ball(X + 0.1 * R * moves[-1, 0]))
    for (move, turn), grow in zip(moves[:-1], growth, strict=True):
        X = np.asarray(best.mu.points)
        between = np.asarray(best.nu.points) - X
        # pairs move, turn and come closer by shares of their size: ratios are often largest for neighbours
        between = math.exp(grow) * (between + share * math.sqrt((between**2).mean()) * turn)
        X = X + share * R * move
        found = stretched(in_ball(X), in_ball(X + between))
        better = found.ratio > best.ratio
        best, share = (found, min(1.0, LONGER * share)) if better else (best, SHORTER * share)
    return best
