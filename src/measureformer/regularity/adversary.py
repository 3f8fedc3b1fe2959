"""`adversary`: clouds at which a layer is as far from smooth as we can make it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError, NotFiniteError, OptionError, ShapeError
from measureformer.maps import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.call import measured
from measureformer.measures import Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import common_dtype, finite, floats, on_device, positive_int, prng_key, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.random import normal
from measureformer.numerics.types import ArrayLike, Key
from measureformer.regularity.local import ball_radius, displaced, require_map, stretch

ROUGH = 1e-4
"""Residual to which the constants of candidates are computed."""


@checked
def two_clusters(A: ArrayLike, n: int, radius: ArrayLike) -> np.ndarray:
    """One token against n − 1 others on a line through 0: the worst known clouds for the query–key matrix A.

    Let λ, λ' be the largest and the smallest real eigenvalue of A. If λ > −8λ', the cloud is R(u, u/2, …, u/2) with
    A u = λ u; otherwise it is R(−u, u, …, u) with A u = λ' u.

    Arguments:
        A: the matrix KᵀQ, (d, d), with a real eigenvalue.
        n: number of tokens.
        radius: R > 0.

    Statement   second case, V = I, G = 2|λ'|R², p = e^G/(e^G + n − 1): the local constant of attention is at least
                √(n−1) p (1 + G (1−p)), which grows like √n for n ≪ e^G and saturates at n ≈ e^G
    Ref         castin2024.

    >>> import measureformer as mf
    >>> mf.regularity.two_clusters([[-1.0]], 3, 1.5).tolist()
    [[-1.5], [1.5], [1.5]]
    """
    matrix = shaped(floats(A, "A"), "A", "d d")
    finite(matrix, "A")
    n, R = positive_int(n, "n"), ball_radius(radius)
    if matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(got=f"A of shape {matrix.shape}", need="a square matrix", do="Pass A = KᵀQ.")
    values, vectors = np.linalg.eig(np.asarray(matrix, np.float64))
    # LAPACK returns complex eigenvalues in exact pairs, and all others without an imaginary part
    real = np.isreal(values)
    if not real.any():
        raise OptionError(
            got="a matrix A without real eigenvalues",
            need="one",
            do="There are no such clusters for rotations; adversary(G, n, radius) searches from random clouds.",
        )
    values, vectors = np.real(values[real]), np.real(vectors[:, real])
    first = values.max() > -8 * values.min()
    u = vectors[:, values.argmax() if first else values.argmin()]
    # the sign of an eigenvector is arbitrary: its largest entry is made positive
    u = R * u / np.linalg.norm(u) * (1 if u[np.abs(u).argmax()] > 0 else -1)
    return np.stack([u if first else -u, *[u / 2 if first else u] * (n - 1)])


@checked
def adversary(
    G: AbstractInContextMap, n: int, radius: ArrayLike, *, steps: int = 50, key: Key | None = None
) -> Discrete | SpaceTime:
    """n tokens of equal weight in the ball B(0, radius) at which the local constant of G is large.

    Candidates are the two clusters of every softmax head inside G, and a random cloud. Projected gradient ascent on the
    local constant improves the best of each kind, and the better result is returned: a `SpaceTime` if G needs times. A
    search, not a certificate.

    Arguments:
        G: a map with an input dimension of its own.
        n: number of tokens.
        radius: radius of the ball, > 0.
        steps: steps of gradient ascent; 0 returns the best candidate.
        key: random key of the random cloud; by default `jax.random.key(0)`.

    Ref         castin2024, for the clusters.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[-1.0]], [[1.0]])
    >>> mu = mf.regularity.adversary(G, 10, 1.5, steps=0)
    >>> mu.points[:2].tolist(), round(mf.local_lipschitz(G, mu).lower, 1)
    ([[-1.5], [1.5]], 4.0)
    """
    require_map(G)
    concrete(G, "adversary")
    n, R = positive_int(n, "n"), ball_radius(radius)
    if steps != 0:
        positive_int(steps, "steps")
    if G.in_dim is None:
        raise DimensionMismatchError(
            got=f"{G}, which accepts tokens of any dimension",
            need="a map with a dimension of its own",
            do="Compose it with a Linear of the dimension you mean: G @ mf.Linear(np.eye(d)).",
        )
    key = jax.random.key(0) if key is None else prng_key(key)
    best: list[tuple[float, Any]] = []
    for candidates in _candidates(G, n, R, key):
        ranked = [_climbed(G, cloud, key, R, 0) for cloud in candidates]
        best.append(_climbed(G, max(ranked, key=lambda found: found[0])[1], key, R, steps))
    return max(best, key=lambda found: found[0])[1]


def _candidates(G: AbstractInContextMap, n: int, radius: float, key: Array) -> list[list[Any]]:
    """Clusters of the heads inside G that look at tokens of its dimension, and a random cloud on the sphere."""
    dtype, cloud = common_dtype(G), SpaceTime.sequence if G.needs_time else Discrete.uniform
    layers = jax.tree.leaves(G, is_leaf=lambda part: isinstance(part, Attention))
    heads = [A for layer in layers if isinstance(layer, Attention) for A in np.asarray(layer.A, np.float64)]
    clusters: list[Any] = []
    for A in heads:
        if A.shape[0] == G.in_dim and not np.iscomplex(np.linalg.eigvals(A)).all():
            clusters.append(cloud(two_clusters(A, n, radius).astype(dtype)))
    draws = normal(key, (n, G.in_dim or 0))
    sphere = radius * draws / np.linalg.norm(draws, axis=1, keepdims=True)
    return [kind for kind in (clusters, [cloud(sphere.astype(dtype))]) if kind]


def _climbed(G: AbstractInContextMap, mu: Any, key: Array, radius: float, steps: int) -> tuple[float, Any]:
    """The constant after the ascent from mu, and the measure that has it."""
    value, points = measured(G, _ascent, mu, key, np.asarray(radius), np.asarray(steps))
    if not math.isfinite(float(value)):
        raise NotFiniteError(
            got=f"a derivative of {G} that is not finite at a cloud of radius {radius:g}",
            need="a map that is differentiable there",
            do="Take another radius, or a map without singular points in the ball.",
        )
    return float(value), mu.with_points(on_device(np.asarray(points)[: mu.n]))


def _ascent(G: AbstractInContextMap, mu: AbstractAtomic, key: Array, radius: Any, steps: Any) -> tuple[Array, Array]:
    """Projected gradient steps of adapted length: longer after a success, shorter after a failure."""
    start = jax.random.normal(key, mu.points.shape, mu.points.dtype)

    def climb(points: Array) -> tuple[Array, Array]:
        """The constant, and its gradient: that of ⟨u, J v⟩ with the singular vectors held fixed."""
        found = stretch(G, mu.with_points(points), start, tol=ROUGH, max_iterations=100)
        v = found.right.reshape(points.shape)

        def stretched(points: Array) -> Array:
            move = displaced(G, mu.with_points(points))
            return jnp.vdot(found.left, jax.jvp(move, (jnp.zeros_like(points),), (v,))[1].ravel())

        return found.value, jax.grad(stretched)(points)

    def advance(_: Any, state: tuple[Array, ...]) -> tuple[Array, ...]:
        points, value, slope, length = state
        size = jnp.max(jnp.linalg.norm(slope, axis=1))
        moved = points + length * radius * slope / jnp.where(size > 0, size, 1)
        norms = jnp.linalg.norm(moved, axis=1, keepdims=True)
        moved = moved * jnp.minimum(1, radius / jnp.where(norms > 0, norms, 1))
        new, new_slope = climb(moved)
        better = new > value
        chosen = jax.tree.map(lambda a, b: jnp.where(better, a, b), (moved, new, new_slope), (points, value, slope))
        return *chosen, jnp.where(better, 1.5 * length, 0.5 * length)

    first = mu.points, *climb(mu.points), jnp.asarray(0.1, mu.points.dtype)
    points, value, *_ = jax.lax.fori_loop(0, steps, advance, first)
    return value, points
