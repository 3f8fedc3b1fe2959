"""Domains: the compact sets Ω that statements assume measures to live on."""

from __future__ import annotations

import abc
import math
from typing import cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError, DomainError
from measureformer.measures.atomic import concrete
from measureformer.numerics.arrays import floats, on_device, owned, positive_int, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Key

ROUNDING = 1e-12
"""A point this share of the diameter off the domain counts as in it."""


class AbstractDomain(eqx.Module):
    """A compact set of points, and the measures on it that a search may look at."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Dimension of its points."""

    @property
    @abc.abstractmethod
    def diameter(self) -> float:
        """Largest distance between two of its points."""

    @property
    @abc.abstractmethod
    def middle(self) -> np.ndarray:
        """A point in the middle."""

    @property
    def least(self) -> int:
        """The smallest number of atoms that an admissible measure has."""
        return 1

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n independent points (n, d), uniform in the domain."""

    @abc.abstractmethod
    def project(self, points: np.ndarray) -> np.ndarray:
        """The nearest points of the domain."""

    @abc.abstractmethod
    def chord(self, rng: np.random.Generator, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the longest segment in the domain through this point of it, in a random direction."""

    @abc.abstractmethod
    def support(self, directions: np.ndarray) -> np.ndarray:
        """The largest ⟨u, x⟩ over the points x of the domain, for each direction u (k, d)."""

    @abc.abstractmethod
    def inside(self, points: Array) -> Array:
        """Which rows of a JAX array lie in the domain, up to rounding; for use under `jit`."""

    def toward(self, point: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """The points next to `goal` that can be reached from `point` without leaving the domain, row by row."""
        return goal

    def admit(self, points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An admissible measure next to this one."""
        return self.project(points), weights

    def sample(self, key: Key, n: int) -> Array:
        """n independent points (n, d), uniform in the domain.

        Arguments:
            key: random key, e.g. `jax.random.key(0)`.
            n: number of points.
        """
        return on_device(self.draw(generator(key), positive_int(n, "n")))

    def contains(self, points: ArrayLike) -> np.ndarray:
        """Which of the points lie in the domain, up to rounding.

        Arguments:
            points: one point per row, (n, d).
        """
        rows = shaped(np.asarray(floats(points, "points")), "points", "n d")
        if rows.shape[1] != self.dim:
            raise DimensionMismatchError(
                got=f"points in R^{rows.shape[1]} and a domain in R^{self.dim}",
                need="one dimension",
                do="Tokens are rows: check that the array is not transposed.",
            )
        return np.linalg.norm(self.project(rows) - rows, axis=1) <= ROUNDING * self.diameter


class Box(AbstractDomain):
    """The box of points x with low ≤ x ≤ high, coordinate by coordinate.

    Arguments:
        low: lower ends, (d,).
        high: upper ends, (d,), each larger than the lower one.

    >>> import measureformer as mf
    >>> box = mf.Box([-1.0, 0.0], [1.0, 2.0])
    >>> box.dim, box.contains([[0.0, 0.0], [0.0, 3.0]]).tolist(), round(box.diameter, 3)
    (2, [True, False], 2.828)
    """

    low: Array
    high: Array

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        concrete((low, high), "Box")
        ends = [np.asarray(shaped(floats(end, name), name, "d")) for end, name in ((low, "low"), (high, "high"))]
        least, most = ends
        if least.shape != most.shape:
            raise DimensionMismatchError(
                got=f"{len(least)} lower and {len(most)} upper ends", need="as many", do="Give two vectors (d,)."
            )
        _compact(np.concatenate(ends), "ends")
        if len(least) == 0 or not (least < most).all():
            raise DomainError(
                got=f"low = {least} and high = {most}",
                need="low < high in every coordinate",
                do="Leave out coordinates that do not vary.",
            )
        self.low, self.high = map(owned, ends)

    @property
    def dim(self) -> int:
        return self.low.shape[0]

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(np.asarray(self.high) - np.asarray(self.low)))

    @property
    def middle(self) -> np.ndarray:
        return (np.asarray(self.low) + np.asarray(self.high)) / 2

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.uniform(np.asarray(self.low), np.asarray(self.high), (n, self.dim))

    def project(self, points: np.ndarray) -> np.ndarray:
        return np.clip(points, np.asarray(self.low), np.asarray(self.high))

    def support(self, directions: np.ndarray) -> np.ndarray:
        return np.maximum(directions * np.asarray(self.low), directions * np.asarray(self.high)).sum(axis=-1)

    def inside(self, points: Array) -> Array:
        slack = ROUNDING * cast(Array, jnp.linalg.norm(self.high - self.low))
        return jnp.all((points >= self.low - slack) & (points <= self.high + slack), axis=-1)

    def chord(self, rng: np.random.Generator, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        direction = _direction(rng, self.dim)
        with np.errstate(divide="ignore"):
            walls = np.stack([(np.asarray(end) - through) / direction for end in (self.low, self.high)])
        # where a wall is parallel to the chord it is never met
        first, last = np.nanmax(walls.min(axis=0)), np.nanmin(walls.max(axis=0))
        return tuple(self.project(through + t * direction) for t in (first, last))  # pyright: ignore[reportReturnType]


class Ball(AbstractDomain):
    """The ball of points x with |x − center| ≤ radius.

    Arguments:
        center: its centre, (d,).
        radius: a positive number.

    >>> import measureformer as mf
    >>> mf.Ball([0.0, 0.0], 2.0).contains([[0.0, 2.0], [2.0, 2.0]]).tolist()
    [True, False]
    """

    center: Array
    radius: float

    def __init__(self, center: ArrayLike, radius: ArrayLike) -> None:
        concrete((center, radius), "Ball")
        middle = np.asarray(shaped(floats(center, "center"), "center", "d"))
        _compact(middle, "center")
        number = floats(radius, "radius")
        if number.ndim != 0 or not 0 < float(number) < math.inf or len(middle) == 0:
            raise DomainError(
                got=f"radius = {radius} around a center of shape {middle.shape}",
                need="a positive finite radius, and at least one coordinate: the theorem is about compact domains",
                do="Take a ball that holds your data, such as mu.radius().",
            )
        self.center, self.radius = owned(middle), float(number)

    @property
    def dim(self) -> int:
        return self.center.shape[0]

    @property
    def diameter(self) -> float:
        return 2 * self.radius

    @property
    def middle(self) -> np.ndarray:
        return np.asarray(self.center)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        directions = rng.normal(size=(n, self.dim))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return self.middle + self.radius * rng.uniform(size=(n, 1)) ** (1 / self.dim) * directions

    def project(self, points: np.ndarray) -> np.ndarray:
        out = points - self.middle
        norms = np.linalg.norm(out, axis=-1, keepdims=True)
        return self.middle + out * np.minimum(1, self.radius / np.maximum(norms, self.radius))

    def support(self, directions: np.ndarray) -> np.ndarray:
        return directions @ self.middle + self.radius * np.linalg.norm(directions, axis=-1)

    def inside(self, points: Array) -> Array:
        return cast(Array, jnp.linalg.norm(points - self.center, axis=-1)) <= (1 + 3 * ROUNDING) * self.radius

    def chord(self, rng: np.random.Generator, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        direction, out = _direction(rng, self.dim), through - self.middle
        along = float(out @ direction)
        half = math.sqrt(max(along**2 + self.radius**2 - float(out @ out), 0.0))
        return tuple(self.project(through + t * direction) for t in (-along - half, -along + half))  # pyright: ignore[reportReturnType]


class FixedTimes(AbstractDomain):
    """Points (x, t) with x in a domain and t one of finitely many times, and measures with equal mass at each time.

    On these measures causal maps are continuous. In plain space–time they are not: when two times merge, tokens begin
    to see each other; when the mass at the first time vanishes, its tokens see nothing.

    Arguments:
        space: the domain of x.
        times: admissible times, (k,).

    >>> import measureformer as mf
    >>> domain = mf.measures.FixedTimes(mf.Box([-1.0], [1.0]), times=[0.5, 1.0])
    >>> domain.dim, domain.least, domain.admit([[0.0, 0.6], [2.0, 0.9]], [0.2, 0.8])[0].tolist()
    (2, 2, [[0.0, 0.5], [1.0, 1.0]])
    """

    space: AbstractDomain
    times: Array

    @checked
    def __init__(self, space: AbstractDomain, times: ArrayLike) -> None:
        values = np.unique(np.asarray(shaped(floats(times, "times"), "times", "k")))
        _compact(values, "times")
        self.space, self.times = space, owned(values)

    @property
    def dim(self) -> int:
        return self.space.dim + 1

    @property
    def least(self) -> int:
        return self.times.shape[0]

    @property
    def diameter(self) -> float:
        return math.hypot(self.space.diameter, float(np.ptp(np.asarray(self.times))))

    @property
    def middle(self) -> np.ndarray:
        return np.append(self.space.middle, np.asarray(self.times)[self.least // 2])

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        # in turns, so that two draws of n points have the same times and can be joined by segments
        times = np.resize(np.asarray(self.times), n)
        return np.concatenate([self.space.draw(rng, n), times[:, None]], axis=1)

    def project(self, points: np.ndarray) -> np.ndarray:
        times = np.asarray(self.times)
        nearest = times[np.abs(points[..., -1:] - times).argmin(axis=-1)]
        return np.concatenate([self.space.project(points[..., :-1]), nearest[..., None]], axis=-1)

    def support(self, directions: np.ndarray) -> np.ndarray:
        late = (directions[..., -1:] * np.asarray(self.times)).max(axis=-1)
        return self.space.support(directions[..., :-1]) + late

    def inside(self, points: Array) -> Array:
        gaps = jnp.min(jnp.abs(points[..., -1:] - self.times), axis=-1)
        return self.space.inside(points[..., :-1]) & (gaps <= ROUNDING * (1 + jnp.max(jnp.abs(self.times))))

    def chord(self, rng: np.random.Generator, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time = rng.choice(np.asarray(self.times))
        return tuple(np.append(end, time) for end in self.space.chord(rng, through[:-1]))  # pyright: ignore[reportReturnType]

    def toward(self, point: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return np.concatenate([goal[..., :-1], point[..., -1:]], axis=-1)

    def admit(self, points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points, weights = self.project(np.asarray(points)), np.asarray(weights)
        seen = points[:, -1:] == np.asarray(self.times)
        share = np.where(seen, weights[:, None], 0).sum(axis=0)
        if not (share > 0).all():
            raise DomainError(
                got="a measure without mass at one of the times",
                need=f"mass at all of {np.asarray(self.times)}",
                do=f"Take at least {self.least} atoms.",
            )
        return points, weights / (seen @ share) / self.least


def _direction(rng: np.random.Generator, dim: int) -> np.ndarray:
    direction = rng.normal(size=dim)
    return direction / np.linalg.norm(direction)


def _compact(numbers: np.ndarray, name: str) -> None:
    if not np.isfinite(numbers).all():
        raise DomainError(
            got=f"{name} {numbers} of a domain that is not compact",
            need="finite numbers: the theorem is about compact domains, and a search needs to know where to look",
            do="Take a box or a ball that holds your data.",
        )
