"""The regular part of the derivative of a map between measures, and the whole of it.

For f(mu) = G(mu, ·)♯mu and smooth G the directional derivative is

    d/dε ⟨ψ, f(mu + ε δ_x)⟩ = ψ(G(mu, x)) + ∫ ∇ψ(G(mu, z)) · ∂_mu G(mu, z; x) dmu(z).

The first term, the regular part, depends continuously on ψ alone; the second, the irregular part, needs the gradient of
ψ where f(mu) has mass. A ψ that is constant around each atom of f(mu) kills the second term exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import DerivativeError, OptionError, ShapeError
from measureformer.maps import AbstractInContextMap, first_variation
from measureformer.maps.queries import queries_of
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import finite, floats, on_device
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Number
from measureformer.structure.black_box import Atoms, BlackBox, MeasureMap, atoms_of
from measureformer.structure.recover import on_support

Psi = Callable[[np.ndarray], ArrayLike]
FIRST, SHRINK, TRIES = 1e-4, 8.0, 14
"""Masses of the added atom: from FIRST down by SHRINK."""
ROUNDS = 3
"""Values that are compared once the other atoms hold still."""
DIFFERENCE = 1e-5
"""Mass of the added atom for the whole derivative, a difference quotient of second order."""
WIDTH = 1e-4
"""Radius of the balls on which ψ is flattened, as a share of the size of the image."""


class RegularDerivative(eqx.Module):
    """The regular part of a derivative, with an estimate of its error, and the irregular part; see the function."""

    value: float
    error: float
    irregular: float
    """The rest of the directional derivative of mu ↦ ⟨ψ, f(mu)⟩ along δ_x."""
    irregular_error: float
    eps: float
    """Mass of the added atom from which the value comes."""
    width: float
    """Radius of the balls around the atoms of f(mu) on which ψ was flattened."""


@checked
def regular_derivative(
    f: MeasureMap,
    mu: AbstractAtomic,
    x: ArrayLike,
    psi: Psi,
    *,
    variant: Literal["positive", "probability"] = "positive",
    width: Number | None = None,
) -> RegularDerivative:
    """Regular part D̄f(mu, x, ψ) of the derivative of a black box f at mu along δ_x.

    ψ is made constant on balls around the atoms of f(mu) and paired with (f(mu + ε δ_x) − f(mu))/ε, with ε so small
    that all atoms but the new one stay in these balls. If there is no such ε, f jumps and has no derivative.

    The estimated error adds up the change of the value over the last two ε, 1/ε times the rounding of f, and what
    flattening changed at the place of the new atom.

    Arguments:
        f: the black box.
        mu: the measure, a `Discrete`.
        x: the place of the added mass, (d,).
        psi: ψ, a C¹ function of points (n, e) with values (n,).
        variant: "positive" adds mass at x; "probability" moves along δ_x − mu instead, and the value is
            ψ(G(mu, x)) − ⟨ψ, f(mu)⟩.
        width: radius of the balls, on whose inner halves ψ is constant; chosen automatically by default.

    Statement   D̄f(mu, x, ψ) = ψ(G(mu, x)) if f(mu) = G(mu, ·)♯mu with continuous G
    Hypotheses  checked: ψ has no kink and no jump at the atoms of f(mu).
    Cost        up to 14 evaluations of f, usually 6.
    Ref         furuya2025, Definition 4.

    >>> import numpy as np, measureformer as mf
    >>> G = mf.Residual(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]))
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> found = mf.regular_derivative(G.push, mu, [3.0], lambda y: np.sin(y[:, 0]))
    >>> exact = float(np.sin(G(mu, [3.0])[0]))
    >>> abs(found.value - exact) <= found.error < 1e-4, abs(found.irregular) > 0.1
    (True, True)
    """
    box, atoms = BlackBox.of(f), atoms_of(mu)
    point = _one_point(mu, x)
    finite(point, "x")
    point = np.asarray(point, np.float64)
    before = box.image(atoms)
    flat = Flattened(psi, before, _radius(before, width))
    on = bool(on_support(atoms, point[None])[0] >= 0)
    readings = _readings(box, atoms, point, flat, on)
    value, error, eps = _extrapolated(readings)
    if variant == "probability":
        # d/dε f((1−ε)mu + εδ_x) = d/dε f(mu + εδ_x) − f(mu), by homogeneity, with the same flattened ψ on both sides
        value -= flat.integral
    irregular, irregular_error = _irregular(box, atoms, point, psi)
    regular = value + (flat.integral if variant == "probability" else 0.0)
    return RegularDerivative(value, error, irregular - regular, irregular_error + error, eps, flat.width)


class Directional(NamedTuple):
    """The two parts of the directional derivative of mu ↦ ⟨ψ, G(mu, ·)♯mu⟩ along δ_x."""

    regular: float
    irregular: float


@checked
def directional_derivative(
    G: AbstractInContextMap, mu: AbstractAtomic, x: ArrayLike, psi: Callable[[Array], Array]
) -> Directional:
    """Both parts of the derivative of ⟨ψ, G(mu, ·)♯mu⟩ along δ_x, from the formula.

    Arguments:
        G: a differentiable map.
        mu: a measure with atoms; it is normalised.
        x: the place of the added mass, (d,).
        psi: ψ in JAX, from points (n, e) to values (n,).

    Statement   regular: ψ(G(mu, x));  irregular: ∫ ∇ψ(G(mu, z)) · ∂_mu G(mu, z; x) dmu(z), for one softmax head with
                ∂_mu Γ(mu, z; x) = e^{⟨Az,x⟩}/Z(z) · (Vx − Γ(mu, z))
    Ref         furuya2025, equation (44).

    >>> import jax.numpy as jnp, measureformer as mf
    >>> G, mu = mf.Attention.head([[0.0]], [[0.0]], [[1.0]]), mf.Discrete.uniform([[0.0], [2.0]])
    >>> parts = mf.structure.directional_derivative(G, mu, [3.0], lambda y: y[:, 0] ** 2)   # the mean of mu is 1
    >>> parts.regular, parts.irregular
    (1.0, 4.0)
    """
    point = _one_point(mu, x)
    probability = mu.normalized()
    moves = first_variation(G, probability, probability.points, point)
    images = G.push(probability).points
    # psi is applied as it is, to as many rows as there are in a bucket: a new n compiles nothing
    padded = [on_device(pad_rows(rows, bucket(mu.n))) for rows in (images, moves)]
    _, slopes = jax.jvp(psi, (padded[0],), (padded[1],))
    irregular = float(np.asarray(probability.weights) @ np.asarray(slopes)[: mu.n])
    return Directional(float(psi(G(mu, point[None]))[0]), irregular)


def _one_point(mu: AbstractAtomic, x: ArrayLike) -> Any:
    rows, _, _ = queries_of(mu, x, None)
    if len(rows) != 1:
        raise ShapeError(got=f"{len(rows)} points x", need="one point (d,)", do="Call it once for each point.")
    return rows[0]


class Flattened:
    """ψ made constant on balls around the atoms of a measure: ψ_h(y) = ψ(y) + η(|y − c|/h)(ψ(c) − ψ(y)).

    η is 1 on [0, ½] and 0 from 1 on, so that |ψ_h − ψ| ≤ Lip(ψ)·h and the gradient vanishes within h/2 of the atoms.
    Atoms much closer to each other than to the rest share a ball.
    """

    def __init__(self, psi: Psi, nu: Atoms, width: float) -> None:
        from scipy.spatial import KDTree

        self.psi = psi
        self.width, centres, group = clustered(nu.points, width)
        self.tree = KDTree(centres)
        self.values = values_of(psi, centres)
        self.masses = np.bincount(group, nu.weights, len(centres))
        self.integral = float(self.values @ self.masses)
        _require_smooth(psi, centres, self.values)

    def paired(self, nu: Atoms, eps: float, on_support: bool) -> tuple[float, float, float] | None:
        """⟨ψ_h, nu − f(mu)⟩/eps, what flattening changed, and rounding; None while atoms lie where ψ_h is not flat."""
        away, nearest = (np.asarray(found) for found in self.tree.query(nu.points))
        inside = away <= self.width / 2
        if nu.weights[~inside].sum() > eps * (1 + 1e-6) + 1e-14:
            return None
        gains = np.bincount(nearest[inside], nu.weights[inside], len(self.values)) - self.masses
        value, changed = float(self.values @ gains), 0.0
        for y, weight, distance, k in zip(*(a[~inside] for a in (nu.points, nu.weights, away, nearest)), strict=True):
            here = float(values_of(self.psi, y[None])[0])
            shift = _cutoff(float(distance) / self.width) * (float(self.values[k]) - here)
            value, changed = value + float(weight * (here + shift)), changed + float(weight * abs(shift))
        gained = np.flatnonzero(gains > eps / 2)
        if len(gained) and not on_support:
            rows = np.isin(nearest, gained) & inside
            spread = np.abs(values_of(self.psi, nu.points[rows]) - self.values[nearest[rows]])
            changed += eps * float(spread.max(initial=0.0))
        rounding = 4e-16 * float(np.abs(self.values).max()) * math.sqrt(nu.n)
        return value / eps, changed / eps, rounding / eps


def clustered(points: np.ndarray, width: float) -> tuple[float, np.ndarray, np.ndarray]:
    """(h, centres, group): groups of diameter ≤ h/4 whose atoms are further than 2h from all others, h ≤ width."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    tree, n = KDTree(points), len(points)
    while True:
        pairs = tree.query_pairs(2 * width, output_type="ndarray")
        links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        count, group = connected_components(links, directed=False)
        low, high = np.full((count, points.shape[1]), np.inf), np.full((count, points.shape[1]), -np.inf)
        np.minimum.at(low, group, points)
        np.maximum.at(high, group, points)
        if np.linalg.norm(high - low, axis=1).max() <= width / 4:
            return width, points[np.unique(group, return_index=True)[1]], group
        width /= 4


def values_of(psi: Psi, points: np.ndarray) -> np.ndarray:
    values = np.asarray(psi(points), np.float64)
    if values.shape != (len(points),):
        raise ShapeError(
            got=f"values psi(points) of shape {values.shape} for {len(points)} points",
            need=f"({len(points)},)",
            do="psi takes an (n, e) array of points and returns one number for each.",
        )
    finite(values, "psi(points)")
    return values


def _radius(before: Atoms, width: ArrayLike | None) -> float:
    size = float(np.linalg.norm(np.ptp(before.points, axis=0))) or 1 + float(np.abs(before.points).max())
    if width is None:
        return WIDTH * size
    number = float(floats(width, "width"))
    if not 0 < number < np.inf:
        raise OptionError(got=f"width = {width}", need="a positive number", do="Leave it out for an automatic choice.")
    return number


def _added(atoms: Atoms, x: np.ndarray, eps: float) -> Atoms:
    """(mu + ε δ_x)/(1 + ε), with x joined to the atom there if there is one."""
    at = int(on_support(atoms, x[None])[0])
    points, weights = atoms.points, atoms.weights.copy()
    if at >= 0:
        weights[at] += eps
    else:
        points, weights = np.concatenate([points, x[None]]), np.append(weights, eps)
    return Atoms(points, weights / (1 + eps))


def _readings(
    box: BlackBox, atoms: Atoms, x: np.ndarray, flat: Flattened, on: bool
) -> list[tuple[float, float, float, float]]:
    """(eps, value, flattening, rounding) for a few masses, once all atoms but the new one hold still."""
    readings: list[tuple[float, float, float, float]] = []
    for k in range(TRIES):
        eps = max(FIRST, box.least_mass) / SHRINK**k
        image = box.image(_added(atoms, x, eps))
        read = flat.paired(Atoms(image.points, image.weights * (1 + eps)), eps, on)
        if read is not None:
            readings.append((eps, *read))
        if len(readings) == ROUNDS:
            return readings
    if not readings:
        raise DerivativeError(
            got=f"atoms of f(mu + ε δ_x) further than {flat.width / 2:.2g} from those of f(mu) for ε down to 1e-16",
            need="a map that is continuous at mu, and keeps atoms together",
            do="mf.is_transformer(f, domain, key) says which of the two fails; a larger width allows larger moves.",
        )
    return readings


def _extrapolated(readings: list[tuple[float, float, float, float]]) -> tuple[float, float, float]:
    """Value, error and mass: a reading, or the limit of readings whose error is of first order, whichever is surer."""
    if len(readings) == 1:
        eps, value, flattening, rounding = readings[0]
        return value, flattening + rounding + abs(value), eps
    limits = [
        (eps, v1 + (v1 - v0) / (SHRINK - 1), flat, noise) for (_, v0, *_), (eps, v1, flat, noise) in pairwise(readings)
    ]
    options: list[tuple[float, float, float]] = []
    for sequence, noisier in ((readings, 1.0), (limits, 2.0)):
        for (_, before, flatter, _), (eps, value, flattening, rounding) in pairwise(sequence):
            change = abs(value - before) + abs(flattening - flatter)
            options.append((change + flattening + noisier * rounding, value, eps))
    error, value, eps = min(options)
    return value, error, eps


def _irregular(box: BlackBox, atoms: Atoms, x: np.ndarray, psi: Psi) -> tuple[float, float]:
    """The whole directional derivative, by a one-sided difference of second order, and an estimate of its error."""

    def paired(eps: float) -> float:
        image = box.image(_added(atoms, x, eps)) if eps else box.image(atoms)
        return float(image.weights @ values_of(psi, image.points)) * (1 + eps)

    def quotient(eps: float) -> float:
        return (-3 * paired(0.0) + 4 * paired(eps) - paired(2 * eps)) / (2 * eps)

    eps = max(DIFFERENCE, box.least_mass)
    near, far = quotient(eps), quotient(2 * eps)
    return near, abs(near - far) + 1e-15 / eps * max(1.0, abs(paired(0.0)))


def _cutoff(t: float) -> float:
    """1 up to ½, 0 from 1 on, continuously differentiable between."""
    u = min(max(2 * t - 1, 0.0), 1.0)
    return 1 - u * u * (3 - 2 * u)


def _require_smooth(psi: Psi, points: np.ndarray, values: np.ndarray) -> None:
    """Refuse a ψ with a kink or a jump at these points: second differences, divided by the step, that do not shrink."""
    points, values = points[:64], values[:64]
    size = max(float(np.abs(values).max()), 1.0)
    steps = 1e-3, 1e-6
    worst = []
    for step in steps:
        bends = [
            np.abs(values_of(psi, points + step * e) + values_of(psi, points - step * e) - 2 * values) / step
            for e in np.eye(points.shape[1])
        ]
        worst.append(np.max(bends, axis=0))
    kinked = (worst[1] > 1e-3 * size) & (worst[1] > 0.1 * worst[0])
    if kinked.any():
        at = points[int(kinked.argmax())]
        raise DerivativeError(
            got=f"a function psi with a kink or a jump at the atom {at} of f(mu)",
            need="psi in C¹: the irregular part of the derivative needs its gradient there",
            do="Smooth it, such as √(y² + 1e-6) for |y|, or tanh for a step.",
        )
