"""`wasserstein`: the one entry to exact transport, whatever the measures are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import NoClosedFormError, OptionError
from measureformer.measures import AbstractMeasure
from measureformer.transport.bures import bures_cost
from measureformer.transport.exact import exact_plan
from measureformer.transport.intake import Pair, compared, exponent
from measureformer.transport.line import line_cost, line_plan
from measureformer.transport.sparse import Atoms, Cost, SparseCoupling, coupling_cost, library, root


def wasserstein(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 2) -> Float[Array, ""]:
    """W_p(mu, nu) itself, never a power of it: exact, for any p ≥ 1 and measures of equal mass.

    Sorts on the line. Between Gaussians there is a closed form at p = 2. Otherwise it solves an assignment problem for
    few equal weights and runs the network simplex in all other cases, up to about 7000 atoms. For measures of mass c,
    W_p is c^{1/p} times that of the normalised ones. Goes through jit, grad and vmap, where masses are not
    compared. Where the optimal plan is not unique, the derivative is that along one of them; at distance 0 it is 0.

    Arguments:
        mu: first measure: atoms or a Gaussian. A `SpaceTime` is compared on R^d × R.
        nu: second measure, of the same kind, dimension and mass.
        p: exponent ≥ 1; on the line also `inf`. Off it at most 10⁴; beyond p = 2, masses that may be roundings of
            weights, 10⁻¹⁵ of the whole, are not moved.

    Statement   W_p(mu, nu)^p = min over couplings π of ∫ |x − y|^p dπ
    Ref         peyre2019, Section 2.4.

    >>> import measureformer as mf
    >>> mu, nu = mf.Discrete.uniform([[0.0, 0.0], [1.0, 0.0]]), mf.Discrete.uniform([[1.0, 2.0], [0.0, 2.0]])
    >>> float(mf.wasserstein(mu, nu)), float(mf.wasserstein(mf.Discrete.dirac([0.0]), mf.Discrete.dirac([3.0]), 1))
    (2.0, 3.0)
    """
    p, pair = exponent(p), compared(mu, nu)
    mass = 1.0 if p == math.inf else library(*pair.log_masses).exp(pair.log_masses[0] / p)
    return pair.result(distance(pair, p) * mass)


def distance(pair: Pair, p: float) -> Any:
    """W_p of the normalised measures."""
    scale, power = _cost(pair, p)
    return scale * root(power, p)


def _cost(pair: Pair, p: float) -> Cost:
    atoms = pair.atoms
    if atoms is None:
        if p != 2:
            raise NoClosedFormError(
                got=f"two Gaussians and p = {p:g}",
                need="p = 2, where the distance has a closed form",
                do="Take p = 2, or atoms: mf.wasserstein(mu.discretize(n), nu.discretize(n), p).",
            )
        return bures_cost(pair.mu, pair.nu)
    if atoms.x.shape[1] == 1:
        return line_cost(atoms, p)
    # only derivatives in the weights need potentials
    return coupling_cost(atoms, optimal_coupling(atoms, p, potentials=library(*atoms) is not np), p)


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
