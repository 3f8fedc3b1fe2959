"""Intake of two measures: every check and every conversion in one pass, before any of the distances is computed."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, MassError, NoClosedFormError, NotFiniteError, OptionError
from measureformer.measures import AbstractMeasure, Discrete, Gaussian, SpaceTime
from measureformer.measures.atomic import AbstractAtomic, concrete, meet
from measureformer.numerics.arrays import cast, common_dtype, finite, on_device, shown
from measureformer.transport.sparse import Atoms, library


class Pair(NamedTuple):
    """Two measures of one kind, dimension and precision; `atoms` are NumPy arrays unless traced, None for Gaussians."""

    mu: Any
    nu: Any
    atoms: Atoms | None
    log_masses: tuple[Any, Any]
    dtype: np.dtype[Any]

    @property
    def masses(self) -> tuple[Any, Any]:
        first, second = map(library(*self.log_masses).exp, self.log_masses)
        return first, second

    def result(self, value: Any) -> Array:
        """Numbers in the precision of the measures."""
        return on_device(library(value).asarray(value, self.dtype))


def compared(mu: Any, nu: Any, *, masses: bool = True) -> Pair:
    """Both measures, ready to be compared; refuse kinds, dimensions, values and (if asked) masses that do not match."""
    if type(mu) is not Discrete or type(nu) is not Discrete:
        _require_kinds(mu, nu)
    if mu.dim != nu.dim:
        meet(mu, nu)
    leaves = jax.tree.leaves((mu, nu))
    traced = library(*leaves) is not np
    if not all(traced or getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        concrete((mu, nu), "transport")
    dtype = leaves[0].dtype
    if any(leaf.dtype != dtype for leaf in leaves):
        dtype = common_dtype(mu, nu)
        mu, nu = cast((mu, nu), dtype)
    if isinstance(mu, Gaussian):
        atoms, log_masses = None, (mu.log_mass, nu.log_mass)
        if not traced:
            log_masses = np.asarray(mu.log_mass), np.asarray(nu.log_mass)
    else:
        clouds = [(_traced_cloud if traced else _cloud)(measure) for measure in (mu, nu)]
        (x, a, first), (y, b, second) = clouds
        atoms, log_masses = Atoms(x, a, y, b), (first, second)
    pair = Pair(mu, nu, atoms, log_masses, dtype)
    if masses and not traced:
        _require_equal_masses(pair)
    return pair


def _cloud(measure: AbstractAtomic) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, normalised weights and the logarithm of the mass, in NumPy; a time is one more coordinate."""
    points, log_weights = np.asarray(measure.points), np.asarray(measure.log_weights)
    if not np.isfinite(points).all():
        finite(points, "points")
    if isinstance(measure, SpaceTime):
        points = np.concatenate([points, np.asarray(measure.times)[:, None]], axis=1)
    top, kind = log_weights.max(), log_weights.dtype.type
    if top == log_weights.min() > -math.inf:
        n = len(log_weights)
        # one number in memory, and no pass over it
        return points, np.broadcast_to(kind(1 / n), n), top + np.log(kind(n))
    log_mass = top + np.log(np.exp(log_weights - top).sum())
    return points, np.exp(log_weights - log_mass), log_mass


def _traced_cloud(measure: AbstractAtomic) -> tuple[Array, Array, Array]:
    # a concrete array cannot be indexed by a traced plan
    points = on_device(measure.points)
    if isinstance(measure, SpaceTime):
        points = jax.numpy.concatenate([points, on_device(measure.times)[:, None]], axis=1)
    return points, measure.probabilities(), measure.log_mass


LARGEST = 1e15
"""Finite exponents are not larger: n^{1/p} is 1 up to rounding, so W_p is W_∞."""


def exponent(p: Any) -> float:
    """Refuse a p that is not a number ≥ 1."""
    if isinstance(p, bool) or not isinstance(p, Real):
        raise DtypeError(got=shown(p, "p"), need="a number", do="Pass p as a float.")
    if p != p:
        raise NotFiniteError(got="p = nan", need="a number p ≥ 1", do="Take p = 1 or 2, or p = inf on the line.")
    number = float(p) if p == math.inf or p < 1e300 else 1e300
    if not number >= 1:
        raise OptionError(
            got=f"p = {number:g}",
            need="p ≥ 1: below, the cost is not convex and W_p not a distance",
            do="Take p = 1 or 2, or p = inf on the line.",
        )
    if LARGEST < number < math.inf:
        raise OptionError(
            got=f"p = {number:g}",
            need=f"p ≤ {LARGEST:g}: beyond, W_p is W_∞ up to rounding",
            do="Take p = inf, on the line.",
        )
    return number


def _require_kinds(mu: Any, nu: Any) -> None:
    for measure in (mu, nu):
        if not isinstance(measure, (AbstractAtomic, Gaussian)):
            _refuse_kind(measure)
    if isinstance(mu, (SpaceTime, Gaussian)) or isinstance(nu, (SpaceTime, Gaussian)):
        _require_one_kind(mu, nu)


def _refuse_kind(measure: Any) -> None:
    if isinstance(measure, AbstractMeasure):
        raise NoClosedFormError(
            got=f"a {type(measure).__name__}",
            need="atoms, or two Gaussians",
            do="Take atoms first: mu.discretize(n).",
        )
    raise DtypeError(
        got=f"an argument of type {type(measure).__name__}",
        need="a measure",
        do="Wrap points in mf.Discrete.uniform(points).",
    )


def _require_one_kind(mu: AbstractMeasure, nu: AbstractMeasure) -> None:
    if type(mu) is not type(nu):
        raise NoClosedFormError(
            got=f"a {type(mu).__name__} and a {type(nu).__name__}",
            need="two measures of one kind",
            do="Take atoms of a Gaussian by discretize(n), and forget the times of a SpaceTime by space().",
        )


def _require_equal_masses(pair: Pair) -> None:
    masses = [float(mass) for mass in pair.masses]
    # weights are stored as logarithms, each with a rounding of its own
    if abs(masses[0] - masses[1]) > 1e3 * np.finfo(pair.dtype).eps * max(masses):
        raise MassError(
            got=f"masses {masses[0]:.12g} and {masses[1]:.12g}",
            need="equal masses, or nothing couples the measures",
            do="mf.positive_wasserstein sees the masses too; or compare mu.normalized() and nu.normalized().",
        )
