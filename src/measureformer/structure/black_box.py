"""`BlackBox`: a map between measures as this chapter calls it, eagerly, checked, and once for each measure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    MassError,
    NotDeterministicError,
    NotFiniteError,
    TracedError,
)
from measureformer.maps import AbstractInContextMap
from measureformer.measures import AbstractMeasure, Discrete
from measureformer.measures.atomic import concrete
from measureformer.numerics.arrays import is_traced, on_device
from measureformer.transport.sparse import Atoms as Pair
from measureformer.transport.sparse import lengths
from measureformer.transport.wasserstein import optimal_coupling

KEPT = 4096
"""Images that are remembered."""


MeasureMap: TypeAlias = Callable[[Discrete], AbstractMeasure] | AbstractInContextMap
"""A black box: a function of measures, or an in-context map, which stands for its push-forward."""


class Atoms(NamedTuple):
    """A measure in NumPy: points (n, d) and positive weights (n,)."""

    points: np.ndarray
    weights: np.ndarray

    @property
    def n(self) -> int:
        return len(self.weights)

    def measure(self) -> Discrete:
        return Discrete(on_device(self.points), on_device(np.log(self.weights)))


def merged(points: np.ndarray, weights: np.ndarray) -> Atoms:
    """Coincident atoms joined and zero mass dropped, in order of first appearance."""
    kept = weights > 0
    points, weights = points[kept] + 0.0, weights[kept]
    order = np.lexsort(points.T[::-1])
    new = np.ones(len(order), bool)
    new[1:] = (points[order[1:]] != points[order[:-1]]).any(axis=1)
    if new.all():
        return Atoms(points, weights)
    group = np.empty(len(order), int)
    group[order] = np.cumsum(new) - 1
    # the sort is stable, so a group begins with its first appearance
    first, sums = order[new], np.bincount(group, weights)
    appearance = np.argsort(first)
    return Atoms(points[first[appearance]], sums[appearance])


def atoms_of(mu: AbstractMeasure, what: str = "mu") -> Atoms:
    """The normalised measure in NumPy, in float64, with distinct atoms; anything but a `Discrete` is refused."""
    if not isinstance(mu, Discrete):
        raise DtypeError(
            got=f"{what} of type {type(mu).__name__}",
            need="a mf.Discrete",
            do="Wrap tokens in mf.Discrete.uniform(tokens); take atoms of a Gaussian by mu.discretize(n)."
            if isinstance(mu, AbstractMeasure) or not callable(mu)  # pyright: ignore[reportUnnecessaryIsInstance]
            else "The black box f is the first argument, the measure the next.",
        )
    concrete(mu, "a black box")
    return merged(np.asarray(mu.points, np.float64), np.asarray(mu.probabilities(), np.float64))


def w1(mu: Atoms, nu: Atoms) -> float:
    """W_1 between two measures of one mass, divided by that mass."""
    pair = Pair(mu.points, mu.weights / mu.weights.sum(), nu.points, nu.weights / nu.weights.sum())
    plan = optimal_coupling(pair, 1.0, potentials=False)
    return float(plan.mass @ lengths(pair.x[plan.i] - pair.y[plan.j]))


class BlackBox:
    """A black box f from measures to measures, extended to positive measures by f(c·mu) = c·f(mu).

    f is called eagerly on concrete probability measures and never traced; images are cached by the content of the
    measure. Every image must be a finite `Discrete` of mass 1, and all images must have the same dimension. Evaluations
    1, 2, 4, 8, … are repeated, and a box that answers differently is refused.

    Arguments:
        f: a function from `Discrete` to `Discrete`, or an in-context map, which stands for its push-forward.

    >>> import measureformer as mf
    >>> f = BlackBox(mf.Linear([[2.0]]))
    >>> f(3 * mf.Discrete.dirac([1.0])).points.tolist(), round(float(f(3 * mf.Discrete.dirac([1.0])).mass), 12), f.calls
    ([[2.0]], 3.0, 1)
    """

    def __init__(self, f: MeasureMap) -> None:
        self.f: Callable[[Discrete], AbstractMeasure] = f.push if isinstance(f, AbstractInContextMap) else f
        if not callable(f):
            raise DtypeError(
                got=f"f of type {type(f).__name__}",
                need="a function from mf.Discrete to mf.Discrete, or an in-context map",
                do="Wrap a function of token arrays by mf.structure.from_token_map.",
            )
        self.calls = 0
        """How often f was called."""
        self.unit = float(np.finfo(np.float64).eps)
        """Relative rounding of the arithmetic of f, from the dtype of its images."""
        self.least_mass = float(getattr(f, "least_mass", 0.0))
        """The lightest atom that f can represent."""
        self._images: OrderedDict[tuple[Any, ...], Atoms] = OrderedDict()
        self._dims: dict[int, int] = {}

    @staticmethod
    def of(f: MeasureMap) -> BlackBox:
        """f itself if it is a box already, with its cache."""
        return f if isinstance(f, BlackBox) else BlackBox(f)

    def __call__(self, mu: Discrete) -> Discrete:
        """f(mu), for a positive measure of any mass."""
        return self.image(atoms_of(mu)).measure() * float(mu.mass)

    def out_dim(self, dim: int) -> int:
        """Dimension of images of measures on R^dim, as far as any have been seen."""
        return self._dims.get(dim, dim)

    def image(self, mu: Atoms) -> Atoms:
        """The image of a probability measure, its coincident atoms joined."""
        key = (mu.points.shape, mu.points.tobytes(), mu.weights.tobytes())
        if key in self._images:
            self._images.move_to_end(key)
            return self._images[key]
        nu = merged(*self.evaluated(mu))
        count = self.calls
        if count & (count - 1) == 0:
            self._compare(mu, nu, merged(*self.evaluated(mu)))
            self.calls = count  # a repetition is no evaluation: with it no power of two would be met again
        self._images[key] = nu
        if len(self._images) > KEPT:
            self._images.popitem(last=False)
        return nu

    def evaluated(self, mu: Atoms) -> Atoms:
        """f on exactly these rows, coincident or not, without memory."""
        nu = self.f(mu.measure())
        self.calls += 1
        if not isinstance(nu, Discrete):
            raise DtypeError(
                got=f"an image of type {type(nu).__name__}",
                need="a black box that returns a mf.Discrete",
                do="Wrap points by mf.Discrete.uniform or mf.Discrete.weighted; carry a time as one more coordinate.",
            )
        if is_traced(nu):
            raise TracedError(
                got="an image with traced arrays", need="concrete arrays", do="Do not close over a traced value in f."
            )
        points, weights = np.asarray(nu.points, np.float64), np.exp(np.asarray(nu.log_weights, np.float64))
        self.unit = float(np.finfo(nu.points.dtype).eps)
        self._check(mu, points, weights)
        return Atoms(points, weights)

    def _check(self, mu: Atoms, points: np.ndarray, weights: np.ndarray) -> None:
        if not (np.isfinite(points).all() and np.isfinite(weights).all()):
            raise NotFiniteError(
                got=f"an image with NaN or infinity, of a measure with {mu.n} atoms, the first at {mu.points[0]}",
                need="a map with finite values on the whole domain",
                do="Shrink the domain to where f is defined.",
            )
        mass, given = float(weights.sum()), float(mu.weights.sum())
        if abs(mass - given) > 1e3 * self.unit * max(given, mass) * np.sqrt(len(weights)):
            raise MassError(
                got=f"an image of mass {mass:.9g} for a measure of mass {given:.9g}",
                need="a map that keeps mass: no push-forward creates or loses any",
                do="Normalise inside f if only the shape of the image matters.",
            )
        dim = self._dims.setdefault(mu.points.shape[1], points.shape[1])
        if points.shape[1] != dim:
            raise DimensionMismatchError(
                got=f"an image in R^{points.shape[1]} after others in R^{dim}",
                need="images in one space",
                do="A map between measures has one space of values.",
            )

    def _compare(self, mu: Atoms, first: Atoms, second: Atoms) -> None:
        if all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)):
            return
        size = max(float(np.abs(first.points).max()), 1e-300)
        apart = w1(first, second)
        if not apart <= 1e6 * self.unit * size:
            raise NotDeterministicError(
                got=f"two images of the same measure ({mu.n} atoms) at W_1 distance {apart:.3g}",
                need="a deterministic f",
                do="Fix the random numbers inside f: draw them once, from a fixed seed.",
            )
