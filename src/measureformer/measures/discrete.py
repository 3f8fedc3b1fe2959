"""`Discrete`: finitely many atoms with weights. A prompt of n tokens is `Discrete.uniform(tokens)`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import EmptyMeasureError, NegativeWeightError, ShapeError, TooManyAtomsError, ZeroMassError
from measureformer.measures.atomic import AbstractAtomic, concrete, host, integrated, meet
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    floats,
    is_traced,
    namespace,
    on_device,
    owned,
    positive_int,
    shaped,
)
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.numerics.modules import made
from measureformer.numerics.types import ArrayLike

Measure = TypeVar("Measure", bound=AbstractMeasure)
MOST_LEVELS = 20
SMALL = 1024
"""Equal weights of so few atoms are kept: they are the same every time."""


class Discrete(AbstractAtomic):
    """A measure of finitely many weighted points: Σ_i a_i δ_{x_i}, any finite positive mass.

    An atom of weight zero is a passive token: layers move it, and it influences no other. Use the constructors
    `uniform`, `weighted`, `dirac` or `cantor`; the bare constructor checks nothing.

    Arguments:
        points: one atom per row, (n, d), as a JAX array.
        log_weights: logarithms of the weights, (n,); −inf for a passive token.

    >>> import measureformer as mf
    >>> mu = mf.Discrete.weighted([[0.0, 0.0], [2.0, 0.0]], [1, 3])
    >>> mu.n, mu.dim, round(float(mu.mass), 12), mu.mean().round(12).tolist()
    (2, 2, 4.0, [1.5, 0.0])
    >>> nu = mu.normalized() + 1e-6 * mf.Discrete.dirac([1.0, 1.0])
    >>> nu.n
    3
    """

    points: Float[Array, "n d"]
    log_weights: Float[Array, " n"]

    def __init__(self, points: Array, log_weights: Array | None = None) -> None:
        if log_weights is None:
            raise ShapeError(
                got="points without weights",
                need="a constructor that says how mass is spread",
                do="Take mf.Discrete.uniform(points), or mf.Discrete.weighted(points, weights).",
            )
        self.points, self.log_weights = points, log_weights

    @staticmethod
    def uniform(points: ArrayLike) -> Discrete:
        """The probability measure with equal weights 1/n.

        Arguments:
            points: one atom per row, (n, d) with n, d ≥ 1.
        """
        rows = checked_points(points)
        return made(Discrete, points=owned(rows), log_weights=uniform_log_weights(rows))

    @staticmethod
    def weighted(points: ArrayLike, weights: ArrayLike) -> Discrete:
        """The measure with mass `weights[i]` at `points[i]`.

        Arguments:
            points: one atom per row, (n, d) with n, d ≥ 1.
            weights: masses ≥ 0, (n,), not all zero.
        """
        rows = checked_points(points)
        log_weights = checked_log_weights(weights, rows)
        return Discrete(cast(owned(rows), log_weights.dtype), log_weights)

    @staticmethod
    def dirac(x: ArrayLike) -> Discrete:
        """The unit mass at the point x, (d,)."""
        return Discrete.uniform(shaped(floats(x, "x"), "x", "d")[None])

    @staticmethod
    def cantor(level: int) -> Discrete:
        """2^level equal atoms that tend to the Cantor measure on [0, 1], which has neither atoms nor a density.

        They lie at the centres of the intervals that remain after removing the middle thirds `level` times.

        Arguments:
            level: number of removals, from 1 to 20.

        Statement   ∫ e^{by} = e^{b/2} Π_{k ≤ level} cosh(b 3^{-k}); W_1 to the Cantor measure is 3^{-level-1}
        Ref         billingsley1999, Section 1.

        >>> import measureformer as mf
        >>> [round(float(x), 4) for x in mf.Discrete.cantor(2).points[:, 0]]
        [0.0556, 0.2778, 0.7222, 0.9444]
        """
        level = positive_int(level, "level")
        if level > MOST_LEVELS:
            raise TooManyAtomsError(
                got=f"2^{level} atoms", need=f"level ≤ {MOST_LEVELS}", do="At level 20 gaps are below 1e-9 already."
            )
        points = np.full(1, 0.5)
        for _ in range(level):
            points = np.concatenate([points / 3, points / 3 + 2 / 3])
        return Discrete.uniform(points[:, None])

    def with_points(self, points: Array) -> Discrete:
        return made(Discrete, points=points, log_weights=self.log_weights)

    def with_log_weights(self, log_weights: Array) -> Discrete:
        return Discrete(self.points, log_weights)

    def rows(self, index: ArrayLike | slice) -> Discrete:
        xp = namespace(self, index)
        return Discrete(*(on_device(xp.asarray(entry)[index]) for entry in (self.points, self.log_weights)))

    def padded(self, size: int | None = None) -> Discrete:
        concrete(self, "padded")
        size = bucket(self.n) if size is None else size
        return Discrete(on_device(pad_rows(self.points, size)), on_device(pad_log_weights(self.log_weights, size)))

    def _keys(self) -> np.ndarray:
        return np.asarray(self.points)

    def integrate(self, f: Callable[[Float[Array, "n d"]], ArrayLike]) -> Array:
        """∫ f dmu.

        Arguments:
            f: function of all atoms (n, d) with values (n,) or (n, c).
        """
        return integrated(self, f(self.points))

    def push(self, T: Callable[[Float[Array, "n d"]], ArrayLike]) -> Discrete:
        """The push-forward T♯mu.

        Arguments:
            T: function of all atoms (n, d) with values (n, e).
        """
        pushed = self.with_points(owned(pushed_points(self, T(self.points))))
        return cast(pushed, common_dtype(pushed))

    def __add__(self, other: Discrete) -> Discrete:
        if not isinstance(other, Discrete):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            return NotImplemented
        meet(self, other)
        return joined(self, other)


def of_rows(points: Any) -> Discrete:
    """The uniform measure for a call at once: its arrays stay where they are."""
    rows = checked_points(points)
    return made(Discrete, points=rows, log_weights=uniform_log_weights(rows))


def joined(mu: Measure, nu: Measure) -> Measure:
    """The arrays of two measures of one kind, one after the other, in their common precision."""
    xp = namespace(mu, nu)
    pair = cast((mu, nu), common_dtype(mu, nu))

    def end_to_end(one: Array, other: Array) -> Array:
        return on_device(xp.concatenate([one, other]))

    return jax.tree.map(end_to_end, *pair)


def checked_points(points: Any) -> Any:
    points = shaped(floats(points, "points"), "points", "n d")
    if points.shape[0] == 0:
        raise EmptyMeasureError(
            got=f"points of shape {points.shape}", need="at least one atom", do="Pass an (n, d) array with n ≥ 1."
        )
    if points.shape[1] == 0:
        raise ShapeError(
            got=f"points of shape {points.shape}", need="dimension d ≥ 1", do="Pass an (n, d) array with d ≥ 1."
        )
    finite(points, "points")
    return points


def uniform_log_weights(points: Any) -> Array:
    n, dtype = points.shape[0], points.dtype
    return _uniform(n, dtype) if n <= SMALL else on_device(np.full(n, -math.log(n), dtype))


@lru_cache(maxsize=256)
def _uniform(n: int, dtype: Any) -> Array:
    return on_device(np.full(n, -math.log(n), dtype))


def checked_log_weights(weights: Any, points: Any) -> Array:
    """Logarithms of non-negative weights, in the dtype of the points unless the weights are wider."""
    as_given = weights
    weights = shaped(floats(weights, "weights"), "weights", "n")
    # a Python list carries no wish for a precision
    weights = cast(weights, common_dtype(weights, points) if hasattr(as_given, "dtype") else points.dtype)
    if weights.shape[0] != points.shape[0]:
        raise ShapeError(
            got=f"{weights.shape[0]} weights for {points.shape[0]} points",
            need="one weight per point",
            do="Use Discrete.uniform for equal weights.",
        )
    finite(weights, "weights")
    if not is_traced(weights):
        _check_signs(np.asarray(weights))
    xp, weights = namespace(weights), host(weights)
    # at weight 0 the derivative through the logarithm is set to 0 instead of NaN
    positive = weights > 0
    log = xp.log(xp.where(positive, weights, xp.ones_like(weights)))
    return owned(xp.where(positive, log, xp.full_like(weights, -math.inf)))


def _check_signs(weights: np.ndarray) -> None:
    if (weights < 0).any():
        worst = int(weights.argmin())
        raise NegativeWeightError(
            got=f"weight {weights[worst]:g} at index {worst}",
            need="weights ≥ 0",
            do="Signed measures are not supported: treat the positive and negative parts as two measures.",
        )
    if not (weights > 0).any():
        raise ZeroMassError(
            got=f"{len(weights)} weights that are all zero",
            need="positive total mass",
            do="The zero measure has no attention: give at least one atom mass.",
        )


def pushed_points(mu: AbstractAtomic, points: Any) -> Any:
    points = checked_points(points)
    if points.shape[0] != mu.n:
        raise ShapeError(
            got=f"{points.shape[0]} images of {mu.n} atoms",
            need="one image per atom",
            do="T takes the whole (n, d) array of points and returns an (n, e) array.",
        )
    return points
