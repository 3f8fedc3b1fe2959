"""`wasserstein` and `transport_cost`: the one entry to exact transport, whatever the measures are."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, MassError, NoClosedFormError, OptionError
from measureformer.measures import AbstractMeasure, Gaussian, SpaceTime
from measureformer.measures.atomic import AbstractAtomic, concrete, meet
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    host,
    is_elsewhere,
    is_traced,
    namespace,
    on_device,
)
from measureformer.transport.bures import bures_cost
from measureformer.transport.exact import exact_plan
from measureformer.transport.line import line_plan
from measureformer.transport.sparse import Atoms, Cost, SparseCoupling, coupling_cost, root


def wasserstein(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 2) -> Float[Array, ""]:
    """W_p(mu, nu) itself, never a power of it: exact, for any p ≥ 1 and measures of equal mass.

    Sorts on the line. Between Gaussians there is a closed form at p = 2. Otherwise it solves an assignment problem for
    equal weights and runs the network simplex for others, up to about 7000 atoms. For measures of mass c, W_p is
    c^{1/p} times that of the normalised ones. Goes through jit, grad and vmap, where masses are not compared. Where the
    optimal plan is not unique, the derivative is that along one of them; at distance 0 it is 0.

    Arguments:
        mu: first measure: atoms or a Gaussian. A `SpaceTime` is compared on R^d × R.
        nu: second measure, of the same kind, dimension and mass.
        p: exponent ≥ 1; on the line also `inf`.

    Statement   W_p(mu, nu)^p = min over couplings π of ∫ |x − y|^p dπ
    Ref         peyre2019, Section 2.4.

    >>> import measureformer as mf
    >>> mu, nu = mf.Discrete.uniform([[0.0, 0.0], [1.0, 0.0]]), mf.Discrete.uniform([[1.0, 2.0], [0.0, 2.0]])
    >>> float(mf.wasserstein(mu, nu)), float(mf.wasserstein(mf.Discrete.dirac([0.0]), mf.Discrete.dirac([3.0]), 1))
    (2.0, 3.0)
    """
    p = exponent(p)
    scale, power = _cost(*compared(mu, nu), p)
    xp = namespace(mu, nu)
    mass = 1.0 if p == math.inf else xp.exp(host(mu.log_mass) / p)
    return as_result(scale * root(xp.asarray(power), p) * mass, mu, nu)


def transport_cost(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 2) -> Float[Array, ""]:
    """min ∫ |x − y|^p dπ over couplings of mu and nu: the power W_p(mu, nu)^p.

    Arguments:
        mu: first measure: atoms or a Gaussian.
        nu: second measure, of the same kind, dimension and mass.
        p: exponent, finite and ≥ 1.

    >>> import measureformer as mf
    >>> float(mf.transport_cost(mf.Discrete.dirac([0.0]), mf.Discrete.dirac([3.0]), 2))
    9.0
    """
    p = exponent(p)
    if p == math.inf:
        raise OptionError(
            got="p = inf", need="a finite p, since W_∞ is no power", do="mf.wasserstein takes p = inf on the line."
        )
    scale, power = _cost(*compared(mu, nu), p)
    return as_result(scale**p * power * host(mu.mass), mu, nu)


def _cost(mu: AbstractAtomic | Gaussian, nu: AbstractAtomic | Gaussian, p: float) -> Cost:
    if isinstance(mu, Gaussian) or isinstance(nu, Gaussian):
        if p != 2:
            raise NoClosedFormError(
                got=f"two Gaussians and p = {p:g}",
                need="p = 2, where the distance has a closed form",
                do="Take p = 2, or atoms: mf.wasserstein(mu.discretize(n), nu.discretize(n), p).",
            )
        return bures_cost(mu, nu)  # pyright: ignore[reportArgumentType] `compared` has seen two of one kind
    atoms = atoms_of(mu, nu)
    # only derivatives in the weights need potentials
    return coupling_cost(atoms, optimal_coupling(atoms, p, potentials=is_traced(atoms)), p)


def optimal_coupling(atoms: Atoms, p: float, *, potentials: bool) -> SparseCoupling:
    """An optimal plan, on the line or off it."""
    if atoms.x.shape[1] == 1:
        return line_plan(atoms, p, potentials=potentials)
    if p == math.inf:
        raise OptionError(
            got=f"p = inf on R^{atoms.x.shape[1]}",
            need="dimension 1, where quantiles give W_∞",
            do="Off the line take a large finite p: W_p increases to W_∞.",
        )
    return exact_plan(atoms, p, potentials=potentials)


def exponent(p: Any) -> float:
    """Refuse a p that is not a number ≥ 1."""
    if isinstance(p, bool) or not isinstance(p, Real):
        raise DtypeError(got=f"p = {str(p)[:40]} of type {type(p).__name__}", need="a number", do="Pass p as a float.")
    number = float(p)
    if not number >= 1:
        raise OptionError(
            got=f"p = {number:g}",
            need="p ≥ 1: below, the cost is not convex and W_p not a distance",
            do="Take p = 1 or 2, or p = inf on the line.",
        )
    return number


def compared(mu: Any, nu: Any, *, masses: bool = True) -> tuple[Any, Any]:
    """Both measures in one precision; refuse kinds, dimensions, values and (if asked) masses that do not match."""
    for measure in (mu, nu):
        if not isinstance(measure, (AbstractAtomic, Gaussian)):
            _refuse_kind(measure)
    if isinstance(mu, (SpaceTime, Gaussian)) or isinstance(nu, (SpaceTime, Gaussian)):
        _require_one_kind(mu, nu)
    meet(mu, nu)
    mu, nu = cast((mu, nu), common_dtype(mu, nu))
    if is_elsewhere(mu, nu):
        concrete((mu, nu), "transport")
    if is_traced(mu, nu):
        return mu, nu
    for measure in (mu, nu):
        if isinstance(measure, AbstractAtomic):
            finite(measure.points, "points")
    if masses:
        require_equal_masses(mu, nu)
    return mu, nu


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


def require_equal_masses(mu: AbstractMeasure, nu: AbstractMeasure) -> None:
    masses = [float(measure.mass) for measure in (mu, nu)]
    # weights are stored as logarithms, each with a rounding of its own
    if abs(masses[0] - masses[1]) > 1e3 * np.finfo(common_dtype(mu, nu)).eps * max(masses):
        raise MassError(
            got=f"masses {masses[0]:.12g} and {masses[1]:.12g}",
            need="equal masses, or nothing couples the measures",
            do="mf.positive_wasserstein sees the masses too; or compare mu.normalized() and nu.normalized().",
        )


def atoms_of(mu: AbstractAtomic, nu: AbstractAtomic) -> Atoms:
    """Points and normalised weights of two measures with atoms; a time is one more coordinate."""
    x, y = (_places(measure) for measure in (mu, nu))
    atoms = Atoms(x, host(mu.probabilities()), y, host(nu.probabilities()))
    # a concrete array cannot be indexed by a traced plan
    return Atoms(*map(on_device, atoms)) if is_traced(atoms) else atoms


def _places(measure: AbstractAtomic) -> Any:
    if not isinstance(measure, SpaceTime):
        return host(measure.points)
    xp = namespace(measure)
    return xp.concatenate([host(measure.points), host(measure.times)[:, None]], axis=1)


def as_result(value: Any, *trees: Any) -> Array:
    """A number in the precision of what it was computed from."""
    return on_device(namespace(value).asarray(value).astype(common_dtype(*trees)))
