"""Separation made constructive: from values of first-order blocks to moments, and on to the atoms of a measure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple, cast

import numpy as np
from numpy.polynomial import chebyshev

from measureformer.attention import attend
from measureformer.errors import OptionError, ShapeError, TooManyAtomsError
from measureformer.measures import AbstractMeasure, Discrete
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import default_float, finite, floats, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Key, Within

NODES = 33
"""Chebyshev nodes at which L_1 is asked: enough for |b·y| ≤ 1, where it is analytic beyond the interval."""
MOST_ATOMS = 6
"""Moments of more atoms differ by less than the rounding of the values."""


@checked
def tilted_mean(mu: AbstractMeasure, b: ArrayLike) -> np.ndarray:
    """Tilted means ∫ y e^{⟨b,y⟩} dmu / ∫ e^{⟨b,y⟩} dmu: the blocks with A = u = c = 0, for all v at once.

    Arguments:
        mu: the measure, on R^d.
        b: tilts, (k, d).

    Statement   it is the gradient at b of log M, where M(b) = ∫ e^{⟨b,y⟩} dmu/|mu|; so it determines M, and mu
    Ref         furuya2024.

    >>> import measureformer as mf
    >>> mf.universality.tilted_mean(mf.Gaussian([1.0], [[2.0]]), [[3.0]]).tolist()
    [[7.0]]
    """
    b = np.asarray(floats(b, "b"))
    if b.ndim != 2 or b.shape[1] != mu.dim:
        raise ShapeError(got=f"b of shape {b.shape}", need=f"(k, {mu.dim})", do="One tilt per row.")
    if isinstance(mu, AbstractGaussianLike):
        return np.asarray(mu.tilt(b)[1])
    assert isinstance(mu, AbstractAtomic)  # there are no other measures
    return np.asarray(attend(b, mu.points, mu.points, mu.log_weights).values)


class Moments(NamedTuple):
    """Moments ∫ y^k dmu, k = 0, 1, …, and for each an estimate of its error."""

    values: np.ndarray
    errors: np.ndarray


@checked
def moments(first: Callable[[np.ndarray], ArrayLike], order: int, *, reach: float = 1.0) -> Moments:
    """Moments of a probability measure on the line up to `order`, from values of L_1 alone.

    All L_k(b) = ∫ y^k e^{by} dmu / ∫ e^{by} dmu follow from L_1 by differentiating the polynomial through its values,
    and the moments are L_k(0).

    Arguments:
        first: L_1(b) = ∫ y e^{by} dmu / ∫ e^{by} dmu for tilts (k,); called once.
        order: the largest moment.
        reach: bound on the tilts |b|; take about 1/radius, so that L_1 is analytic well beyond the interval.

    Statement   L_{k+1} = L_k' + L_k L_1
    Sharp?      each derivative costs about one digit; the errors are estimates, from the polynomial without its last
                two terms.
    Ref         furuya2024.

    >>> import numpy as np, measureformer as mf
    >>> found = mf.universality.moments(lambda b: np.tanh(b), 4)             # the measure (δ_{-1} + δ_1)/2
    >>> (found.values.round(9) + 0.0).tolist()
    [1.0, 0.0, 1.0, 0.0, 1.0]
    """
    order = positive_int(order, "order")
    if not 0 < reach < math.inf:
        raise OptionError(got=f"reach = {reach}", need="a positive number", do="Take about 1/mu.radius().")
    nodes = chebyshev.chebpts1(NODES)
    values = np.asarray(floats(first(reach * nodes), "values of L_1"), float)
    if values.shape != nodes.shape:
        raise ShapeError(
            got=f"values of L_1 of shape {values.shape} for {NODES} tilts",
            need=f"({NODES},)",
            do="`first` takes an array of tilts and returns one number for each.",
        )
    finite(values, "values of L_1")
    whole = chebyshev.chebfit(nodes, values, NODES - 1)
    # coefficients below rounding are noise, and every derivative would make more of it
    size = np.abs(whole).max() or 1.0
    felt = np.flatnonzero(np.abs(whole) > 4 * np.finfo(float).eps * size)
    last = int(felt[-1]) if len(felt) else 0
    found, rough = (_climb(whole[: last + 1 - cut], order, reach) for cut in (0, min(2, last)))
    return Moments(found, np.abs(found - rough) + 64 * np.finfo(float).eps * np.abs(found))


def _climb(first: np.ndarray, order: int, reach: float) -> np.ndarray:
    current, out = np.ones(1), [1.0]
    for _ in range(order):
        current = chebyshev.chebadd(chebyshev.chebder(current) / reach, chebyshev.chebmul(current, first))
        out.append(float(chebyshev.chebval(0.0, current)))
    return np.asarray(out)


@checked
def atoms_of_moments(values: ArrayLike, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Places (n,) and weights (n,) of the measure on the line with n atoms and given moments (Prony).

    Arguments:
        values: moments 0, …, 2n − 1; further ones are ignored.
        n: number of atoms.

    Statement   with H_jk = m_{j+k} and H'_jk = m_{j+k+1}, j, k < n, the atoms are the eigenvalues of the pencil H' − λH
    Hypotheses  assumed: exactly n distinct atoms with mass; with fewer, H is singular, and the rest come out with
                weights near 0.
    Ref         prony1795; golub1969.

    >>> import measureformer as mf
    >>> places, weights = atoms_of_moments([1.0, 0.5, 1.0, 0.5], 2)
    >>> places.round(9).tolist(), weights.round(9).tolist()
    ([-1.0, 1.0], [0.25, 0.75])
    """
    import scipy.linalg

    n, m = positive_int(n, "n"), np.asarray(floats(values, "moments"), float)
    if m.ndim != 1 or len(m) < 2 * n:
        raise ShapeError(got=f"moments of shape {m.shape}", need=f"at least {2 * n} of them", do="n atoms need 2n.")
    finite(m, "moments")
    steps = np.add.outer(np.arange(n), np.arange(n))
    hankel, shifted = m[steps], m[steps + 1]
    places = np.sort(np.real(cast("np.ndarray", scipy.linalg.eigvals(shifted, hankel))))
    weights = np.linalg.lstsq(np.vander(places, 2 * n, increasing=True).T, m[: 2 * n], rcond=None)[0]
    return places, weights


@checked
def identify(
    tilted: Callable[[np.ndarray], ArrayLike],
    dim: int,
    n: int,
    key: Key,
    *,
    radius: Annotated[float, Within(1e-100, 1e6)] = 1.0,
) -> Discrete:
    """Identify a measure with n atoms from the values of its blocks, that is, from its tilted means.

    Along one random direction θ, b = sθ, the values in that direction are L_1 of the slice θ♯mu: its moments give the
    places ⟨θ, x_j⟩ and the weights a_j. Given these, the other coordinates of the values are linear in those of the
    atoms, Σ_j p_j(s) x_j with p(s) = softmax(log a + s⟨θ, x⟩), and follow by least squares. Finally, Gauss–Newton on
    the values refines all numbers together.

    Arguments:
        tilted: tilted means (k, d) for tilts (k, d), as `tilted_mean` gives them.
        dim: dimension d of the atoms.
        n: number of atoms, at most 6.
        key: random key, for the direction θ.
        radius: bound on the norms of the atoms.

    Statement   x_1, …, x_n and a_1, …, a_n are determined by s ↦ ∇log M(sθ), |s| ≤ 1/radius, for almost every θ
    Hypotheses  assumed: exactly n atoms with mass, and no two of them with the same ⟨θ, x⟩.
    Sharp?      atoms that are close, or light, lose digits: the pencil is as ill-conditioned as a Vandermonde matrix.
    Ref         furuya2024.

    >>> import jax, measureformer as mf
    >>> mu = mf.Discrete.weighted([[0.0, 0.5], [0.8, 0.1], [-0.6, -0.4]], [0.2, 0.3, 0.5])
    >>> found = mf.universality.identify(lambda b: mf.universality.tilted_mean(mu, b), 2, 3, jax.random.key(0))
    >>> found.same_as(mu, 1e-6)
    True
    """
    dim, n = positive_int(dim, "dim"), positive_int(n, "n")
    if n > MOST_ATOMS:
        raise TooManyAtomsError(
            got=f"n = {n}", need=f"n ≤ {MOST_ATOMS}", do="The moments of more atoms cannot be told apart in rounding."
        )
    if not 0 < radius < math.inf:
        raise OptionError(got=f"radius = {radius}", need="a positive number", do="Take a bound for the atoms.")
    direction = generator(key).normal(size=dim)
    direction /= np.linalg.norm(direction)
    asked: list[tuple[np.ndarray, np.ndarray]] = []

    def values(b: np.ndarray) -> np.ndarray:
        means = np.asarray(floats(tilted(b), "tilted means"), float)
        if means.shape != b.shape:
            raise ShapeError(got=f"tilted means of shape {means.shape}", need=f"{b.shape}", do="One row per tilt.")
        return means

    def slice_of(s: np.ndarray) -> np.ndarray:
        means = values(s[:, None] * direction)
        asked.append((s, means))
        return means @ direction

    places, weights = atoms_of_moments(moments(slice_of, 2 * n, reach=1 / radius).values, n)
    s, means = asked[0]
    logs = np.log(np.maximum(weights, 1e-12)) + s[:, None] * places
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    points = cast("np.ndarray", np.linalg.lstsq(p, means, rcond=None)[0])
    # wider tilts tell atoms apart better, once it is known where to look
    axes = np.concatenate([direction[None], np.eye(dim), -np.eye(dim)])
    wide = (4 / radius * s[:, None, None] * axes).reshape(-1, dim)
    return _polished(points, weights, wide, values(wide))


def _polished(points: np.ndarray, weights: np.ndarray, tilts: np.ndarray, means: np.ndarray) -> Discrete:
    """The measure next to this one that fits the values best, by least squares."""
    from scipy import optimize

    n, dim = points.shape

    def measure(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logs = numbers[n * dim :]
        return numbers[: n * dim].reshape(n, dim), logs - np.logaddexp.reduce(logs)

    def misfit(numbers: np.ndarray) -> np.ndarray:
        places, logs = measure(numbers)
        kernel = tilts @ places.T + logs
        kernel = np.exp(kernel - kernel.max(axis=1, keepdims=True))
        return (kernel / kernel.sum(axis=1, keepdims=True) @ places - means).reshape(-1)

    start = np.concatenate([points.reshape(-1), np.log(np.maximum(weights, 1e-6))])
    best = cast("np.ndarray", optimize.least_squares(misfit, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200).x)
    places, logs = measure(best)
    return Discrete.weighted(places.astype(default_float()), np.exp(logs).astype(default_float()))
