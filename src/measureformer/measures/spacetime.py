"""`SpaceTime`: atoms at points x and times s. Masked attention lives here: a query at time t sees those with s ≤ t."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import NothingVisibleError, ShapeError
from measureformer.measures.atomic import AbstractAtomic, concrete, integrated, meet
from measureformer.measures.discrete import (
    Discrete,
    checked_log_weights,
    checked_points,
    joined,
    pushed_points,
    uniform_log_weights,
)
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    floats,
    is_traced,
    namespace,
    on_device,
    owned,
    scalar,
    shaped,
)
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.numerics.modules import made
from measureformer.numerics.types import ArrayLike


class SpaceTime(AbstractAtomic):
    """A measure on R^d × R with finitely many atoms (x_i, t_i): a prompt whose order matters.

    Atoms with equal times see each other under a causal map. Layers move x and carry t. Use the constructors `uniform`,
    `weighted` or `sequence`; the bare constructor checks nothing.

    Arguments:
        points: one atom per row, (n, d), as a JAX array.
        times: their times, (n,).
        log_weights: logarithms of their weights, (n,); −inf for a passive token.

    >>> import measureformer as mf
    >>> sigma = mf.SpaceTime.uniform([[0.0], [1.0], [2.0]], times=[0.1, 0.2, 0.2])
    >>> sigma.n, sigma.until(0.15).n, sigma.space().mean().tolist()
    (3, 1, [1.0])
    """

    points: Float[Array, "n d"]
    times: Float[Array, " n"]
    log_weights: Float[Array, " n"]

    @staticmethod
    def uniform(points: ArrayLike, times: ArrayLike) -> SpaceTime:
        """Equal weights 1/n at (points[i], times[i]).

        Arguments:
            points: one atom per row, (n, d) with n, d ≥ 1.
            times: their times, (n,), in any order; ties are allowed.
        """
        rows = checked_points(points)
        return SpaceTime(owned(rows), checked_times(times, rows), uniform_log_weights(rows))

    @staticmethod
    def weighted(points: ArrayLike, times: ArrayLike, weights: ArrayLike) -> SpaceTime:
        """Mass `weights[i]` at (points[i], times[i]).

        Arguments:
            points: one atom per row, (n, d) with n, d ≥ 1.
            times: their times, (n,), in any order; ties are allowed.
            weights: masses ≥ 0, (n,), not all zero.
        """
        given = checked_points(points)
        log_weights = checked_log_weights(weights, given)
        rows = cast(owned(given), log_weights.dtype)
        return SpaceTime(rows, checked_times(times, rows), log_weights)

    @staticmethod
    def sequence(points: ArrayLike) -> SpaceTime:
        """An ordered prompt with equal weights: token i of n, from 0, at time (i+1)/n.

        Arguments:
            points: one token per row, (n, d), in their order.
        """
        rows = checked_points(points)
        n = int(rows.shape[0])
        return SpaceTime.uniform(rows, (np.arange(n) + 1) / n)

    def space(self) -> Discrete:
        """The marginal on space: time forgotten."""
        return Discrete(self.points, self.log_weights)

    def until(self, t: ArrayLike) -> Discrete:
        """What a query at time t sees: the atoms with times ≤ t, as a measure on space (not normalised)."""
        concrete((self, t), "until")
        # in the dtype of the times: 0.1 in float64 lies before 0.1 in float32
        latest = np.asarray(cast(scalar(t, "t"), self.times.dtype))
        seen, massive = np.asarray(self.times) <= latest, np.asarray(self.log_weights) > -math.inf
        if not (seen & massive).any():
            first = float(np.asarray(self.times)[massive].min())
            raise NothingVisibleError(
                got=f"t = {float(latest):g}, before the first mass at {first:g}",
                need="an atom with mass and time ≤ t",
                do="Ask at a later time, or add an earlier token.",
            )
        return self.rows(np.flatnonzero(seen)).space()

    def masked(self) -> Prefixes:
        """The same measure as causal layers see it."""
        return Prefixes(self)

    def with_points(self, points: Array) -> SpaceTime:
        return made(SpaceTime, points=points, times=self.times, log_weights=self.log_weights)

    def with_log_weights(self, log_weights: Array) -> SpaceTime:
        return SpaceTime(self.points, self.times, log_weights)

    def rows(self, index: ArrayLike | slice) -> SpaceTime:
        xp = namespace(self, index)
        entries = (self.points, self.times, self.log_weights)
        return SpaceTime(*(on_device(xp.asarray(entry)[index]) for entry in entries))

    def padded(self, size: int | None = None) -> SpaceTime:
        concrete(self, "padded")
        size = bucket(self.n) if size is None else size
        points, times = (on_device(pad_rows(entry, size)) for entry in (self.points, self.times))
        return SpaceTime(points, times, on_device(pad_log_weights(self.log_weights, size)))

    def _keys(self) -> np.ndarray:
        return np.concatenate([np.asarray(self.points), np.asarray(self.times)[:, None]], axis=1)

    def integrate(self, f: Callable[[Float[Array, "n d"], Float[Array, " n"]], ArrayLike]) -> Array:
        """∫ f(x, t) dsigma.

        Arguments:
            f: function of all points (n, d) and times (n,) with values (n,) or (n, c).
        """
        return integrated(self, f(self.points, self.times))

    def push(self, T: Callable[[Float[Array, "n d"], Float[Array, " n"]], ArrayLike]) -> SpaceTime:
        """The image under (x, t) ↦ (T(x, t), t): times do not change.

        Arguments:
            T: function of all points (n, d) and times (n,) with values (n, e).
        """
        pushed = self.with_points(owned(pushed_points(self, T(self.points, self.times))))
        return cast(pushed, common_dtype(pushed))

    def __add__(self, other: SpaceTime) -> SpaceTime:
        if not isinstance(other, SpaceTime):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            return NotImplemented
        meet(self, other)
        return joined(self, other)


class Prefixes(AbstractAtomic):
    """A space–time measure as causal layers see it: the query at time t meets its restriction to times ≤ t.

    Internal to maps: `Causal(G)` hands `sigma.masked()` to G, and every attention inside masks by `visible`.
    """

    sigma: SpaceTime

    def __init__(self, sigma: SpaceTime) -> None:
        self.sigma = sigma

    @property
    def points(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sigma.points

    @property
    def log_weights(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sigma.log_weights

    @property
    def times(self) -> Array:
        return self.sigma.times

    def masked(self) -> Prefixes:
        return self

    def visible(self, t: Array | None) -> tuple[Array, Array] | None:
        return None if t is None else (t, self.times)

    def seen_at(self, t: Float[Array, ""]) -> SpaceTime:
        """What a query at time t meets: the atoms that are later lose their mass.

        Arguments:
            t: time of the query.
        """
        return self.sigma.with_log_weights(jnp.where(self.times <= t, self.log_weights, -math.inf))

    def with_points(self, points: Array) -> Prefixes:
        return Prefixes(self.sigma.with_points(points))

    def with_log_weights(self, log_weights: Array) -> Prefixes:
        return Prefixes(self.sigma.with_log_weights(log_weights))

    def rows(self, index: ArrayLike | slice) -> Prefixes:
        return Prefixes(self.sigma.rows(index))

    def padded(self, size: int | None = None) -> Prefixes:
        return Prefixes(self.sigma.padded(size))

    def _keys(self) -> np.ndarray:
        return self.sigma._keys()  # pyright: ignore[reportPrivateUsage] of the same family

    def log_mass_until(self, t: Array | None) -> Float[Array, "*m"]:
        """log of the visible mass at each of these times, by one sort: −inf where nothing is visible."""
        if t is None:
            return self.log_mass
        order = jnp.argsort(self.times)
        top = jnp.max(self.log_weights)
        cumulative = jnp.cumsum(jnp.exp(self.log_weights - top)[order])
        count = jnp.searchsorted(self.times[order], t, side="right")
        visible = jnp.where(count > 0, cumulative[jnp.maximum(count - 1, 0)], 0)
        seen = visible > 0
        return jnp.where(seen, top + jnp.log(jnp.where(seen, visible, 1)), -math.inf)


def checked_times(times: Any, points: Any) -> Array:
    """One finite time per point, in the dtype of the points."""
    values = shaped(floats(times, "times"), "times", "n")
    if values.shape[0] != points.shape[0]:
        raise ShapeError(
            got=f"{values.shape[0]} times for {points.shape[0]} points",
            need="one time per point",
            do="SpaceTime.sequence(points) makes the times 1/n, 2/n, …, 1.",
        )
    finite(values, "times")
    return cast(owned(values if is_traced(values) else np.asarray(values)), points.dtype)
