"""`coupling`: an optimal plan, the potentials that prove it, and what the proof leaves open."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import coo_array

from measureformer.errors import NoClosedFormError, OptionError
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import concrete
from measureformer.transport.intake import compared, exponent
from measureformer.transport.sparse import lengths
from measureformer.transport.wasserstein import optimal_coupling


class Coupling(eqx.Module):
    """An optimal plan of mu and nu with its certificate.

    `plan` is a SciPy sparse (n, m) array with at most n + m − 1 entries, the mass that goes from atom to atom.
    `potentials` = (f, g) satisfy f_i + g_j ≤ |x_i − y_j|^p up to rounding, so that ∫f dmu + ∫g dnu is at most the cost
    of any coupling; `gap` is the cost of the plan minus that number, the most by which the plan can fail to be optimal.
    """

    plan: Any = eqx.field(static=True)  # a SciPy array, whose classes are not typed
    potentials: tuple[Float[Array, " n"], Float[Array, " m"]]
    gap: Float[Array, ""]


def coupling(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 2) -> Coupling:
    """An optimal coupling of two measures with atoms and equal mass, with potentials and duality gap.

    On the line the plan is the monotone one; off it a vertex found by the network simplex, up to about 7000 atoms.

    Arguments:
        mu: first measure, with atoms.
        nu: second measure, with atoms and of the same mass.
        p: exponent, finite and ≥ 1.

    Statement   min over couplings ∫ |x−y|^p dπ = max { ∫ f dmu + ∫ g dnu : f(x) + g(y) ≤ |x−y|^p }
    Ref         peyre2019, Proposition 2.4.

    >>> import measureformer as mf
    >>> mu, nu = mf.Discrete.uniform([[0.0], [1.0]]), mf.Discrete.weighted([[0.0], [3.0]], [0.75, 0.25])
    >>> found = mf.coupling(mu, nu, p=1)
    >>> found.plan.toarray().round(12).tolist(), abs(float(found.gap)) < 1e-12
    ([[0.5, 0.0], [0.25, 0.25]], True)
    """
    p = exponent(p)
    if p == math.inf:
        raise OptionError(
            got="p = inf", need="a finite p: W_∞ has no potentials", do="mf.wasserstein takes p = inf on the line."
        )
    pair = compared(mu, nu)
    concrete((mu, nu), "coupling")
    atoms, total = pair.atoms, float(pair.masses[0])
    if atoms is None:
        raise NoClosedFormError(
            got="two Gaussians",
            need="atoms to couple",
            do="mf.wasserstein gives their distance; for a plan take mu.discretize(n).",
        )
    i, j, mass, f, g, scale = optimal_coupling(atoms, p, potentials=True)
    with np.errstate(over="ignore"):
        unit = float(np.float64(scale) ** p)
    if unit == math.inf:
        raise OptionError(
            got=f"p = {p:g} and mass that is moved by {float(scale):.3g}",
            need="costs |x − y|^p that are numbers",
            do="Take a smaller p, or other units of length.",
        )
    primal = np.sum(mass * (lengths(atoms.x[i] - atoms.y[j]) / scale) ** p)
    gap = unit * (primal - atoms.a @ f - atoms.b @ g) * total
    moved = mass > 0
    plan = coo_array((mass[moved] * total, (i[moved], j[moved])), shape=(len(atoms.a), len(atoms.b)))
    f, g, gap = map(pair.result, (unit * f, unit * g, gap))
    return Coupling(plan, (f, g), gap)
