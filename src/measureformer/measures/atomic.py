"""`AbstractAtomic`: what all measures with finitely many atoms share, wherever the atoms live."""

# no postponed annotations here: Equinox reads AbstractVar from the class, not from a string
import abc
import math
import typing
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from equinox import AbstractVar
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, ShapeError, SpreadError, TracedError
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    floats,
    host,
    is_elsewhere,
    is_traced,
    namespace,
    needs_jax,
    on_device,
    positive_int,
)
from measureformer.numerics.random import uniform
from measureformer.numerics.types import ArrayLike, Key


class AbstractAtomic(AbstractMeasure):
    """A measure with finitely many atoms: points in rows, weights as logarithms (−inf for a passive token)."""

    points: AbstractVar[Float[Array, "n d"]]
    log_weights: AbstractVar[Float[Array, " n"]]

    @property
    def n(self) -> int:
        """Number of atoms, those of zero mass included."""
        return self.points.shape[0]

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    @property
    def weights(self) -> Float[Array, " n"]:
        """Masses of the atoms."""
        return on_device(namespace(self).exp(self.log_weights))

    @property
    def log_mass(self) -> Float[Array, ""]:
        xp, entries = namespace(self), host(self.log_weights)
        top = xp.max(entries)
        top = xp.where(top == -math.inf, 0, top).astype(entries.dtype)
        return on_device(top + xp.log(xp.sum(xp.exp(entries - top))))

    def probabilities(self) -> Float[Array, " n"]:
        """Weights divided by the mass."""
        return on_device(namespace(self).exp(host(self.log_weights) - host(self.log_mass)))

    def mean(self) -> Float[Array, " d"]:
        return on_device(host(self.probabilities()) @ host(self.points))

    def covariance(self) -> Float[Array, "d d"]:
        # in these few lines and below, NumPy on concrete arrays: eager JAX would compile for every new n
        p, points = host(self.probabilities()), host(self.points)
        centred = points - p @ points
        return on_device((centred * p[:, None]).T @ centred)

    def radius(self) -> Float[Array, ""]:
        """Largest norm of an atom with mass: the support lies in the ball B(0, radius)."""
        xp, points = namespace(self), host(self.points)
        squares = xp.sum(points * points, axis=1)
        largest = xp.max(xp.where(host(self.log_weights) > -math.inf, squares, xp.zeros_like(squares)))
        # the root has no derivative at 0: a measure at the origin gets the derivative 0
        positive = largest > 0
        return on_device(xp.where(positive, xp.sqrt(xp.where(positive, largest, xp.ones_like(largest))), 0 * largest))

    def reweighted(self, log_factor: ArrayLike) -> Self:
        factor = host(log_factor).astype(self.log_weights.dtype)
        return self.with_log_weights(on_device(host(self.log_weights) + factor))

    @abc.abstractmethod
    def with_points(self, points: Array) -> Self:
        """The same weights (and times) at other points: what a push-forward does."""

    @abc.abstractmethod
    def with_log_weights(self, log_weights: Array) -> Self:
        """The same points (and times) with other weights."""

    def visible(self, t: Array | None) -> tuple[Array, Array] | None:
        """By which times attention masks: those of the queries and those of the atoms; None if all atoms are seen.

        Arguments:
            t: times of the queries, (m,), or None off space–time.
        """
        return None

    def log_mass_until(self, t: Array | None) -> Float[Array, "*m"]:
        """Logarithm of the mass that the queries see: of all of it, unless a mask hides a part.

        Arguments:
            t: times of the queries, (m,), or None off space–time.
        """
        return self.log_mass

    @abc.abstractmethod
    def rows(self, index: ArrayLike | slice) -> Self:
        """The atoms at these positions."""

    @abc.abstractmethod
    def _keys(self) -> np.ndarray:
        """What two atoms must share to be the same atom, one row each: the point, and its time if it has one."""

    @abc.abstractmethod
    def padded(self, size: int | None = None) -> Self:
        """The same measure with zero-mass copies of atom 0 appended.

        Pad before your own `jit`, so that a new n compiles nothing. Library calls pad by themselves.

        Arguments:
            size: number of atoms after padding; by default the smallest bucket size that holds them.
        """

    def sample(self, key: Key, n: int) -> Self:
        n = positive_int(n, "n")
        draws = uniform(key, n)
        xp = namespace(self, draws)
        # in the precision of the draws: rounded to float32 a draw can be 1, and lie beyond the last atom
        mass = host(self.probabilities()).astype(draws.dtype)
        # the first atom whose cumulative mass exceeds u has positive mass, wherever the passive tokens stand; compiled
        # sums are taken in pairs, so there a passive token must be told that it adds nothing
        cumulative = xp.where(mass > 0, xp.cumsum(mass), xp.zeros_like(mass))
        cumulative = np.maximum.accumulate(cumulative) if xp is np else jax.lax.cummax(cumulative)
        drawn = xp.searchsorted(cumulative / cumulative[-1], draws, side="right")
        return self.rows(drawn).with_log_weights(on_device(np.full(n, -math.log(n), self.log_weights.dtype)))

    def compact(self) -> Self:
        """The same measure with coincident atoms merged and zero mass dropped, in order of first appearance."""
        concrete(self, "compact")
        keys, mass = self._keys() + 0.0, np.asarray(self.log_weights)
        kept = np.flatnonzero(mass > -np.inf)
        _, first, group = np.unique(keys[kept], axis=0, return_index=True, return_inverse=True)
        # relative to the heaviest atom of each group: nothing underflows, and an atom that is alone keeps its weight
        group, top = group.reshape(-1), np.full(len(first), -np.inf, mass.dtype)
        np.maximum.at(top, group, mass[kept])
        sums = np.bincount(group, np.exp(mass[kept] - top[group]), len(first))
        order = np.argsort(first)
        merged = (top + np.log(sums)).astype(mass.dtype)
        return self.rows(kept[first[order]]).with_log_weights(on_device(merged[order]))

    def same_as(self, other: Self, atol: float = 0.0) -> bool:
        """Whether two measures are equal: atoms closer than `atol` are joined, then the masses of the groups compared.

        Merging, splitting or reordering atoms and adding passive tokens does not change the answer.

        Arguments:
            other: the measure to compare with.
            atol: tolerance, for distances between atoms and, times the total mass, for masses (plus rounding).
        """
        concrete(self, "same_as")
        if type(self) is not type(other) or self.dim != other.dim:
            return False
        return _same(self.compact(), other.compact(), atol)


def concrete(tree: Any, what: str) -> None:
    """Refuse tracers, and atoms on other machines, where the result depends on values in its shape or its type."""
    if is_traced(tree):
        raise TracedError(
            got=f"{what} on traced arrays (inside jit, grad or vmap)",
            need="concrete arrays, because the shape or the type of the answer depends on their values",
            do=f"Call {what} before or after the transformed function.",
        )
    if is_elsewhere(tree):
        raise SpreadError(
            got=f"{what} on a measure that lies on several machines",
            need="all atoms in one place",
            do="Take mf.gather(mu) first, if it fits on each of them.",
        )


def meet(mu: AbstractMeasure, nu: AbstractMeasure) -> None:
    if mu.dim != nu.dim:
        raise DimensionMismatchError(
            got=f"measures on R^{mu.dim} and R^{nu.dim}",
            need="one dimension",
            do="Embed one of them first, e.g. with mu.push.",
        )


def integrated(mu: AbstractAtomic, values: Any) -> Array:
    exact = not hasattr(values, "dtype") or not np.issubdtype(values.dtype, np.inexact)
    values = floats(values, "f(points)")
    if values.ndim not in (1, 2) or values.shape[0] != mu.n:
        raise ShapeError(
            got=f"values f(points) of shape {values.shape} for {mu.n} atoms",
            need=f"({mu.n},) or ({mu.n}, c)",
            do="f takes the whole (n, d) array of points and returns one row per point.",
        )
    weights = mu.weights
    # Booleans, integers and lists carry no wish for a precision
    weights, values = cast((weights, values), weights.dtype if exact else common_dtype(weights, values))
    # a value at a passive token must not spoil the integral by 0 · inf
    if needs_jax(values, weights):
        felt = (weights > 0).reshape(-1, *[1] * (values.ndim - 1))
        return weights @ jnp.where(felt, values, jnp.zeros_like(values))
    values, weights = np.asarray(values), np.asarray(weights)
    return on_device(weights[weights > 0] @ values[weights > 0])


def _same(mu: AbstractAtomic, nu: AbstractAtomic, atol: float) -> bool:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    keys = np.concatenate([mu._keys(), nu._keys()])  # pyright: ignore[reportPrivateUsage] of this module
    pairs = typing.cast(np.ndarray, KDTree(keys).query_pairs(atol, output_type="ndarray"))
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(keys), len(keys)))
    count, group = typing.cast(tuple[int, np.ndarray], connected_components(links, directed=False))
    signed = np.concatenate([np.asarray(mu.weights), -np.asarray(nu.weights)])
    mass = max(float(mu.mass), float(nu.mass))
    rounding = 64 * np.finfo(signed.dtype).eps
    return bool(np.abs(np.bincount(group, signed, count)).max() <= (atol + rounding) * mass)
