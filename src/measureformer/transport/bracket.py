"""`wasserstein_bracket`: certified bounds of W_p for clouds that no exact solver can hold.

Upper: the cost of a coupling. Both clouds are quantised to cells, the cells are coupled exactly, the coupling of cells
is refined to one of atoms, and then improved by solving small exact problems between the atoms of a block, for other
blocks in every round. Lower: potentials of the problem between cells, made feasible between atoms by `c_transform`; or
the moments and the shadows on lines, if these say more.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import NoClosedFormError, OptionError
from measureformer.measures import AbstractMeasure, Gaussian
from measureformer.measures.atomic import concrete
from measureformer.transport.bures import bures_cost
from measureformer.transport.cells import c_transform, cells
from measureformer.transport.exact import costs, solved, vertex
from measureformer.transport.intake import compared, exponent
from measureformer.transport.line import line_plan, staircase
from measureformer.transport.sparse import Atoms, SparseCoupling, coupling_cost, lengths

SMALL = 1_000_000
"""Pairs of atoms up to which the exact solver is quick, and gives both bounds."""
CELLS = 1024
"""Cells in which a large cloud is quantised."""
BLOCK = 128
"""Steps of a plan that are solved again together."""
ROUNDS = 3
LARGEST = float(np.finfo(np.float64).max)
PAIRS = 5_000_000_000
"""Work n·m·d up to which potentials are made feasible in more than three dimensions, where cells do not help."""


class Bracket(eqx.Module):
    """`lower` ≤ W_p ≤ `upper`, for points and normalised weights as they are in float64; all roundings are included."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]


def wasserstein_bracket(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 2) -> Bracket:
    """Certified lower and upper bounds of W_p(mu, nu), for 10⁵ atoms and more.

    Deterministic. On the line, and off it for up to 10⁶ pairs of atoms, both equal the distance up to rounding.
    Otherwise they are close in low dimension if the measures are further apart than the atoms of a cell; in high
    dimension the lower bound may be far off.

    Arguments:
        mu: first measure, with atoms.
        nu: second measure, with atoms and of the same mass.
        p: exponent, finite and ≥ 1.

    Statement   ∫f dmu + ∫g dnu ≤ W_p(mu, nu)^p ≤ ∫|x−y|^p dπ whenever f(x) + g(y) ≤ |x−y|^p and π couples mu and nu
    Hypotheses  checked: equal masses, finite p ≥ 1.
    Ref         peyre2019, Proposition 2.4.

    >>> import numpy as np, measureformer as mf
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> mu, nu = mf.Discrete.uniform(x), mf.Discrete.uniform(x + [3.0, 4.0])
    >>> bracket = mf.wasserstein_bracket(mu, nu)
    >>> bool(bracket.lower <= 5 <= bracket.upper), float(bracket.upper - bracket.lower) < 1e-6
    (True, True)
    """
    p = exponent(p)
    if p == math.inf:
        raise OptionError(got="p = inf", need="a finite p", do="mf.wasserstein takes p = inf on the line.")
    pair = compared(mu, nu)
    concrete((mu, nu), "wasserstein_bracket")
    if pair.atoms is None:
        raise NoClosedFormError(got="two Gaussians", need="atoms", do="mf.wasserstein is exact for them at p = 2.")
    x, a, y, b = (np.asarray(array, np.float64) for array in pair.atoms)
    # weights in float32 add up to 1 in float32 only
    atoms = Atoms(x[a > 0], a[a > 0] / a.sum(), y[b > 0], b[b > 0] / b.sum())
    # in units of the size of the clouds, so that no power over- or underflows; differences of halves do not overflow
    both = np.concatenate([atoms.x, atoms.y])
    huge = 2.0 if float(np.abs(both).max()) > LARGEST / 2 else 1.0
    size = float(np.ptp(both / huge, axis=0).max()) or 1.0
    origin = atoms.x[0] / huge
    atoms = atoms._replace(x=(atoms.x / huge - origin) / size, y=(atoms.y / huge - origin) / size)
    lower, upper = _bounds(atoms, p)
    # each atom was moved by at most two roundings per coordinate, and W_p by no more than the atoms of both clouds
    moved = 4 * math.sqrt(atoms.x.shape[1]) * float(np.finfo(np.float64).eps)
    # rounded away from the distance: the units, the mass and the precision of the answer err by a few last places
    kind, masses = pair.dtype, [float(mass) for mass in pair.masses]
    logs = abs(float(pair.log_masses[0]))
    slack = (32 + (logs + len(a) + len(b)) / p) * float(np.finfo(kind).eps) + abs(masses[1] / masses[0] - 1) / p
    low, high = max(lower - moved, 0.0) * (1 - slack), (upper + moved) * (1 + slack)
    units = size, huge, masses[0] ** (1 / p)
    return Bracket(
        *(pair.result(_rounded(*part)) for part in (((low, *units), kind, 0.0), ((high, *units), kind, np.inf)))
    )


def _rounded(factors: tuple[float, ...], kind: np.dtype[Any], towards: float) -> np.ndarray:
    """The product of factors ≥ 0, rounded outwards; it may over- or underflow, and no product on the way does."""
    parts = [math.frexp(factor) for factor in factors]
    if 0.0 in factors or math.inf in factors:
        return np.asarray(0.0 if 0.0 in factors else math.inf if towards else np.finfo(kind).max, kind)
    power = sum(exponent for _, exponent in parts)
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(np.float64(math.prod(part for part, _ in parts)), power)
        return np.asarray(np.nextafter(product.astype(kind), kind.type(towards)))


def _bounds(atoms: Atoms, p: float) -> tuple[float, float]:
    if atoms.x.shape[1] == 1:
        plan = line_plan(atoms, p, potentials=False)
        upper, error = _upper(atoms, plan, p), _defect(atoms, plan)
        # the plan is optimal, so the bounds differ by the roundings of its marginals and of its cost only
        return max(upper**p - 2 * error - 2 * _relative(atoms) * upper**p, 0.0) ** (1 / p), upper
    if len(atoms.a) * len(atoms.b) <= SMALL:
        plan = solved(atoms, p)
        unit = plan.scale**p
        return _dual(atoms, unit * plan.f, unit * plan.g, p), _upper(atoms, plan, p)
    cells_x, cells_y = (cells(points, max(1, -(-len(points) // CELLS))) for points in (atoms.x, atoms.y))
    coarse = Atoms(*_centres(atoms.x, atoms.a, cells_x), *_centres(atoms.y, atoms.b, cells_y))
    plan = solved(coarse, p)
    lower = max(_lower_by_potentials(atoms, coarse, plan, p), _lower_by_moments(atoms, p), _lower_by_shadows(atoms, p))
    return lower, _upper(atoms, _improved(atoms, _refined(atoms, plan, cells_x, cells_y), p), p)


def _centres(points: np.ndarray, weights: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    mass = np.array([weights[group].sum() for group in groups])
    return np.stack([weights[group] @ points[group] for group in groups]) / mass[:, None], mass / mass.sum()


# --- upper bounds: couplings


def _refined(
    atoms: Atoms, plan: SparseCoupling, cells_x: list[np.ndarray], cells_y: list[np.ndarray]
) -> SparseCoupling:
    """A plan between atoms that moves between cells what a plan between cells says, in any order inside."""
    edge_x, piece_x, mass_x = _pieces(plan.i, plan.mass, cells_x, atoms.a)
    edge_y, piece_y, mass_y = _pieces(plan.j, plan.mass, cells_y, atoms.b)
    order_x, order_y = np.argsort(edge_x, stable=True), np.argsort(edge_y, stable=True)
    i, j, mass = staircase(mass_x[order_x], mass_y[order_y])
    return SparseCoupling(piece_x[order_x][i], piece_y[order_y][j], mass, None, None, 1.0)


def _pieces(
    end: np.ndarray, mass: np.ndarray, groups: list[np.ndarray], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The atoms of each cell shared out among the edges that end there: (edge, atom, mass)."""
    order = np.argsort(end, stable=True)
    listed = np.concatenate(groups)
    atom, edge, share = staircase(weights[listed], mass[order])
    return order[edge], listed[atom], share


def _improved(atoms: Atoms, plan: SparseCoupling, p: float) -> SparseCoupling:
    """Better plans by exact solutions within blocks of steps, the blocks being cut along other axes in every round."""
    for turn in range(ROUNDS):
        kept = plan.mass > 0
        i, j, mass = plan.i[kept], plan.j[kept], plan.mass[kept]
        where = _turned(atoms.y[j] if turn % 2 else atoms.x[i], turn)
        parts = [_solved(atoms, i[block], j[block], mass[block], p) for block in cells(where, BLOCK)]
        i, j, mass = map(np.concatenate, zip(*parts, strict=True))
        plan = SparseCoupling(i, j, mass, None, None, 1.0)
    return plan


def _turned(points: np.ndarray, turn: int) -> np.ndarray:
    """The same points in other axes, so that no boundary between blocks stays where it was."""
    if turn == 0:
        return points
    rotation, _ = np.linalg.qr(np.random.default_rng(turn).normal(size=(points.shape[1], points.shape[1])))
    return points @ rotation


def _solved(atoms: Atoms, i: np.ndarray, j: np.ndarray, mass: np.ndarray, p: float) -> tuple[np.ndarray, ...]:
    rows, at_row = np.unique(i, return_inverse=True)
    columns, at_column = np.unique(j, return_inverse=True)
    if len(rows) == 1 or len(columns) == 1:
        return i, j, mass
    a, b = np.bincount(at_row, mass), np.bincount(at_column, mass)
    cost, _ = costs(atoms.x[rows], atoms.y[columns], p)
    found_i, found_j, found_mass, _ = vertex(cost, a, b * (a.sum() / b.sum()))
    return rows[found_i], columns[found_j], found_mass


def _upper(atoms: Atoms, plan: SparseCoupling, p: float) -> float:
    """The cost of a plan, its rounding included. Mass that the marginals miss or exceed is moved across everything."""
    cost = np.sum(plan.mass * lengths(atoms.x[plan.i] - atoms.y[plan.j]) ** p) * (1 + _relative(atoms))
    return float(cost + _defect(atoms, plan) * atoms.x.shape[1] ** (p / 2)) ** (1 / p)


def _defect(atoms: Atoms, plan: SparseCoupling) -> float:
    rows = np.bincount(plan.i, plan.mass, len(atoms.a)) - atoms.a
    columns = np.bincount(plan.j, plan.mass, len(atoms.b)) - atoms.b
    return float(np.abs(rows).sum() + np.abs(columns).sum()) + 8 * float(np.finfo(np.float64).eps)


def _relative(atoms: Atoms) -> float:
    """A relative error bound for sums over atoms or steps of products of a few factors, in any order of summation."""
    return (len(atoms.a) + len(atoms.b) + 2 * atoms.x.shape[1] + 16) * float(np.finfo(np.float64).eps)


# --- lower bounds: potentials, moments, shadows


def _lower_by_potentials(atoms: Atoms, coarse: Atoms, plan: SparseCoupling, p: float) -> float:
    """The potentials between cells, transformed until they are feasible between atoms."""
    if atoms.x.shape[1] > 3 and atoms.x.size * len(atoms.y) > PAIRS:
        return 0.0
    f = c_transform(coarse.y, plan.scale**p * plan.g, atoms.x, p)
    g = c_transform(atoms.x, f, atoms.y, p)
    return _dual(atoms, c_transform(atoms.y, g, atoms.x, p), g, p)


def _dual(atoms: Atoms, f: np.ndarray, g: np.ndarray, p: float) -> float:
    """(∫f dmu + ∫g dnu)^{1/p}, less than exact by more than all roundings."""
    # one constant is free; around 0 the sums lose the fewest digits
    shift = float(np.median(f))
    f, g = f - shift, g + shift
    size = float(atoms.a @ np.abs(f) + atoms.b @ np.abs(g))
    largest = float(np.abs(f).max() + np.abs(g).max()) + atoms.x.shape[1] ** (p / 2)
    # constraints are met up to a few roundings of their terms, of which none is larger than `largest`
    feasible = (atoms.x.shape[1] + 16) * (p + 1) * float(np.finfo(np.float64).eps) * largest
    return max(float(atoms.a @ f + atoms.b @ g) - _relative(atoms) * size - feasible, 0.0) ** (1 / p)


def _lower_by_moments(atoms: Atoms, p: float) -> float:
    """Gelbrich: W_p ≥ W_2 for p ≥ 2, and W_2 is at least that of the Gaussians with the same moments."""
    if p < 2:
        return 0.0
    laws = [Gaussian(*_moments(*cloud)) for cloud in ((atoms.x, atoms.a), (atoms.y, atoms.b))]
    scale, power = bures_cost(*laws)
    # covariances of clouds of size 1 err by the rounding of their sums, and roots of them by its root
    dim = atoms.x.shape[1]
    return float(scale) * math.sqrt(float(power)) - 4 * dim * math.sqrt(_relative(atoms))


def _moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ points
    centred = points - mean
    return mean, (centred * weights[:, None]).T @ centred


def _lower_by_shadows(atoms: Atoms, p: float) -> float:
    """Projections to lines are 1-Lipschitz: along the axes, and along the difference of the means."""
    between = atoms.a @ atoms.x - atoms.b @ atoms.y
    lines = [*np.eye(atoms.x.shape[1])[:16], between / (np.linalg.norm(between) or 1.0)]
    found = 0.0
    for line in lines:
        shadows = Atoms((atoms.x @ line)[:, None], atoms.a, (atoms.y @ line)[:, None], atoms.b)
        plan = line_plan(shadows, p, potentials=False)
        scale, power = coupling_cost(shadows, plan, p)
        cost = float(scale) ** p * float(power) * (1 - _relative(atoms)) - _defect(atoms, plan) * atoms.x.shape[1] ** (
            p / 2
        )
        # a line is a unit vector up to rounding, and so are the places on it
        found = max(found, max(cost, 0.0) ** (1 / p) - 8 * atoms.x.shape[1] * float(np.finfo(np.float64).eps))
    return found
