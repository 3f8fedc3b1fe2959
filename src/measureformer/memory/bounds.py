"""Theorems about associative memories, as functions that return their right-hand sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeAlias

import equinox as eqx
import numpy as np

from measureformer.errors import OptionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, NotNegative, Positive, Size, Within

Scale: TypeAlias = Annotated[float, Within(1e-100, 1e100)]
"""A positive number whose square does not overflow."""

Bits: TypeAlias = Annotated[int, Within(2, 1000)]
"""Dimensions at which 2^d does not overflow."""

_floats = partial(np.asarray, dtype=float)


class SphereCapacity(eqx.Module):
    """The constants of `ramsauer20_capacity`; `patterns` is a bound only if `holds`.

    >>> import measureformer as mf
    >>> round(mf.memory.ramsauer20_capacity(1.0, 3.0, 20, 0.001).c, 4)
    3.1546
    """

    a: float
    b: float
    c: float
    patterns: float
    """√p c^{(d−1)/4}."""
    holds: bool
    """Whether c ≥ (2/√p)^{4/(d−1)}, the condition of the theorem."""


@checked
def ramsauer20_capacity(beta: Scale, K: Scale, d: Size, p: float) -> SphereCapacity:
    """Number of random patterns on a sphere that a modern memory stores with high probability.

    Arguments:
        beta: inverse temperature β > 0.
        K: radius of the sphere over √(d−1), positive.
        d: dimension, at least 2.
        p: probability that the patterns are not all stored, in (0, 1).

    Statement   a = 2/(d−1) (1 + ln(2βK²p(d−1))), b = 2K²β/5, c = b/W₀(exp(a + ln b)); if c ≥ (2/√p)^{4/(d−1)}, at least
                √p c^{(d−1)/4} patterns are stored with probability 1 − p
    Hypotheses  checked: β, K > 0, d ≥ 2, 0 < p < 1. assumed: independent patterns, uniform on the sphere.
    Ref         ramsauer2020, Theorem 3.

    >>> import measureformer as mf
    >>> found = mf.memory.ramsauer20_capacity(1.0, 1.0, 75, 0.001)
    >>> round(found.c, 5), round(found.patterns, 2), found.holds
    (1.37188, 10.97, True)
    """
    from scipy.special import lambertw

    d = positive_int(d, "d")
    if not (0 < beta < math.inf and 0 < K < math.inf and d >= 2 and 0 < p < 1):
        raise OptionError(
            got=f"beta = {beta}, K = {K}, d = {d}, p = {p}",
            need="beta, K > 0, d ≥ 2 and 0 < p < 1",
            do="Patterns lie on the sphere of radius K√(d−1); p is the probability that they are not stored.",
        )
    a = 2 / (d - 1) * (1 + math.log(2 * beta * K**2) + math.log(p) + math.log(d - 1))
    b = 2 * K**2 * beta / 5
    c = b / lambert_of_exp(a + math.log(b), lambertw)
    log_patterns = 0.5 * math.log(p) + (d - 1) / 4 * math.log(c)
    patterns = math.exp(log_patterns) if log_patterns < 709 else math.inf
    return SphereCapacity(a, b, c, patterns, log_patterns >= math.log(2))


def lambert_of_exp(x: float, lambertw: Callable[[float], complex]) -> float:
    """W₀(e^x), also where e^x overflows: there w + ln w = x is solved by Newton's method."""
    if x < 500:
        return float(lambertw(math.exp(x)).real)
    w = x - math.log(x)
    for _ in range(5):
        w -= (w + math.log(w) - x) / (1 + 1 / w)
    return w


def ramsauer20_separation(
    beta: ArrayLike, n: ArrayLike, radius: ArrayLike, odds: ArrayLike | None = None
) -> np.ndarray:
    """Separation that suffices for a pattern of a modern memory to be stored.

    Arguments:
        beta: inverse temperature β.
        n: number N of patterns.
        radius: M, the largest norm of a pattern.
        odds: (A − a_i)/a_i for a pattern of mass a_i among patterns of total mass A; N − 1 by default.

    Statement   Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩ ≥ 2/(βN) + ln(2(N−1)NβM²)/β: then the update maps the ball of
                radius 1/(βNM) around x_i into itself, and is a contraction there
    Hypotheses  assumed: |x_j| ≤ M.
    Ref         ramsauer2020, Definition 1 and Appendix A.

    For patterns with mass, `odds` replaces N − 1. The proof is the same: all it needs of the other patterns is their
    share 1 − p_i ≤ odds · e^{−β(Δ_i − 2M|ξ−x_i|)} of the softmax.

    >>> import measureformer as mf
    >>> round(float(ramsauer20_separation(1.0, 1000, 63**0.5)), 2)
    18.65
    """
    beta, n, radius = map(_floats, (beta, n, radius))
    with np.errstate(divide="ignore"):
        return 2 / (beta * n) + np.log(2 * (n - 1 if odds is None else _floats(odds)) * n * beta * radius**2) / beta


def ramsauer20_beta(separation: float, n: int, radius: float) -> float:
    """The smallest β above 1/Δ at which `ramsauer20_separation` is Δ.

    Arguments:
        separation: Δ > 0.
        n: number N of patterns.
        radius: M > 0, the largest norm of a pattern.

    Statement   with C = 2(N−1)NM²: Δ = 2/(βN) + ln(Cβ)/β says (−βΔ) e^{−βΔ} = −z, z = Δ e^{−2/N}/C, so β = −W₋₁(−z)/Δ
    Ref         ramsauer2020, Definition 1 and Appendix A.

    >>> import measureformer as mf
    >>> beta = ramsauer20_beta(2.0, 100, 1.5)
    >>> abs(float(ramsauer20_separation(beta, 100, 1.5)) - 2.0) < 1e-12
    True
    """
    from scipy.special import lambertw

    if not (separation > 0 and radius > 0 and n >= 1):
        raise OptionError(
            got=f"separation = {separation}, n = {n}, radius = {radius}",
            need="positive numbers",
            do="Patterns that are equal, or shorter than another in its direction, are stored at no β.",
        )
    if n == 1 or separation == math.inf:
        return 1.0
    z = separation * math.exp(-2 / n) / (2 * (n - 1) * n * radius**2)
    return 1 / separation if z >= 1 / math.e else float(-lambertw(-z, -1).real / separation)


def ramsauer20_one_step(
    beta: ArrayLike, separation: ArrayLike, distance: ArrayLike, radius: ArrayLike, odds: ArrayLike
) -> np.ndarray:
    """Bound of |f(ξ) − x_i| after one update of a query ξ.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        distance: max(|ξ − x_i|, |x_i* − x_i|), with the fixed point x_i*.
        radius: M, the largest norm of a pattern.
        odds: N − 1 for N patterns, or (A − a_i)/a_i for a pattern of mass a_i among patterns of total mass A.

    Statement   |f(ξ) − x_i| ≤ 2(N−1)M exp(−β(Δ_i − 2M max(|ξ − x_i|, |x_i* − x_i|)))
    Hypotheses  assumed: |x_j| ≤ M.
    Ref         ramsauer2020, Theorem 5.

    >>> import measureformer as mf
    >>> float(ramsauer20_one_step(1.0, 30.0, 0.0, 8.0, 999.0)) < 2e-9
    True
    """
    beta, separation, distance, radius, odds = map(_floats, (beta, separation, distance, radius, odds))
    return 2 * odds * radius * np.exp(-beta * (separation - 2 * distance * radius))


def ramsauer20_contraction(
    beta: ArrayLike, separation: ArrayLike, distance: ArrayLike, radius: ArrayLike, odds: ArrayLike, n: ArrayLike
) -> np.ndarray:
    """Bound of the contraction of one update towards the fixed point x_i*.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        distance: max(|ξ − x_i|, |x_i* − x_i|).
        radius: M, the largest norm of a pattern.
        odds: as in `ramsauer20_one_step`.
        n: number N of patterns.

    Statement   |f(ξ) − x_i*| ≤ J |ξ − x_i*|, J = 2βNM²(N−1) exp(−β(Δ_i − 2M max(|ξ − x_i|, |x_i* − x_i|)))
    Ref         ramsauer2020, Theorem 4.

    >>> import measureformer as mf
    >>> float(ramsauer20_contraction(1.0, 40.0, 0.0, 8.0, 999.0, 1000)) < 1e-8
    True
    """
    return _floats(beta) * _floats(n) * _floats(radius) * ramsauer20_one_step(beta, separation, distance, radius, odds)


@checked
def basin(
    beta: Positive, separation: ArrayLike, radius: NotNegative, odds: NotNegative
) -> tuple[np.ndarray, np.ndarray]:
    """Radius r₊ of a ball around x_i from which updates end within r₋ of x_i; (0, inf) where none is certain.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        radius: M, the largest norm of a pattern.
        odds: as in `ramsauer20_one_step`.

    Statement   with h(r) = 2 M odds e^{−β(Δ_i − 2Mr)}: |f(ξ) − x_i| ≤ h(|ξ − x_i|). If c = 4βM² odds e^{−βΔ_i} < 1/e,
                h(r) < r between r₋ = −W₀(−c)/(2βM) and r₊ = −W₋₁(−c)/(2βM): from |ξ − x_i| < r₊ the updates end in
                |ξ − x_i| ≤ r₋
    Proof       h is increasing, so distances fall below every number above the largest fixed point of h that is below
                the start. h(r) = r says y e^{−y} = c for y = 2βMr.
    Ref         ramsauer2020, Theorem 5, iterated.

    This needs only βΔ_i > 1 + ln(4βM²(N−1)), about half of what `ramsauer20_separation` needs.

    >>> import measureformer as mf
    >>> outer, inner = mf.memory.basin(1.0, 30.0, 8.0, 999.0)
    >>> 0.9 < float(outer) < 1.5, float(inner) < 1e-8
    (True, True)
    """
    return basin_of(beta, separation, radius, odds)


def basin_of(
    beta: ArrayLike, separation: ArrayLike, radius: ArrayLike, odds: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """`basin` for any numbers, those that overflow too."""
    from scipy.special import lambertw

    beta, separation, radius, odds = map(_floats, (beta, separation, radius, odds))
    with np.errstate(divide="ignore"):
        log_c = np.log(4 * beta * radius**2 * odds) - beta * separation
    certain = log_c < -1
    c = np.exp(np.where(certain, log_c, -1.0))
    unit = 2 * beta * radius
    with np.errstate(divide="ignore", invalid="ignore"):
        outer, inner = (-lambertw(-c, branch).real / unit for branch in (-1, 0))
    inner = np.where(unit > 0, inner, 0.0)
    # c underflows for a single pattern, or one far from all others: then W₋₁(−c) = ln c − ln(−ln c) + …
    far = np.where(c > 0, outer, np.where(log_c == -np.inf, np.inf, -log_c / unit))
    return np.where(certain, far, 0.0), np.where(certain, inner, np.inf)


@checked
def mceliece87_capacity(d: Annotated[int, Within(2, 10**9)], *, every: bool = False) -> float:
    """Number of random patterns that a classical memory holds as fixed points.

    Arguments:
        d: number of bits.
        every: ask that all patterns are fixed points at once, not only a given one.

    Statement   d/(2 ln d) for one given pattern, d/(4 ln d) for all of them at once, as d grows
    Hypotheses  assumed: independent uniform bits, Hebb's rule without the diagonal.
    Ref         mceliece1987; ramsauer2020, Appendix A.

    >>> import measureformer as mf
    >>> round(mf.memory.mceliece87_capacity(200), 1)
    18.9
    """
    return d / ((4 if every else 2) * math.log(d))


@checked
def amit85_capacity(d: int) -> float:
    """Number of random patterns that a classical memory holds with a few wrong bits: 0.138 d.

    Arguments:
        d: number of bits.

    Ref         amit1985.

    >>> import measureformer as mf
    >>> round(mf.memory.amit85_capacity(200), 1)
    27.6
    """
    return 0.138 * d


@checked
def bit_error(n: Positive, d: NotNegative) -> np.ndarray:
    """Probability that a bit of a stored pattern changes in the first update of a classical memory.

    Arguments:
        n: number of random patterns.
        d: number of bits.

    Statement   the field at a bit is d plus n − 1 sums of d random signs: P ≈ ½ erfc(√(d/(2n)))
    Ref         amit1985; ramsauer2020, Appendix A.

    >>> import measureformer as mf
    >>> round(float(mf.memory.bit_error(40, 200)), 4)
    0.0127
    """
    from scipy.special import erfc

    return 0.5 * erfc(np.sqrt(_floats(d) / (2 * _floats(n))))


@checked
def krotov16_capacity(d: Bits, degree: Annotated[int, Within(2, 100)]) -> float:
    """Number of random patterns that a dense memory with F = z^a holds without an error.

    Arguments:
        d: number of bits.
        degree: a ≥ 2.

    Statement   d^{a−1}/(2 (2a−3)!! ln d)
    Ref         krotov2016.

    >>> import measureformer as mf
    >>> round(mf.memory.krotov16_capacity(40, 3))
    72
    """
    return d ** (degree - 1) / (2 * math.prod(range(2 * degree - 3, 0, -2)) * math.log(d))


@checked
def demircigil17_capacity(d: Bits, flipped: float = 0.0) -> float:
    """Number of random patterns that a dense memory with F = e^z holds, and retrieves after bits are flipped.

    Arguments:
        d: number of bits.
        flipped: share ρ of the bits of a query that are wrong, in [0, ½).

    Statement   e^{αd} for every α < I(1 − 2ρ)/2, I(a) = ½((1+a) ln(1+a) + (1−a) ln(1−a)); without flipped bits 2^{d/2}
    Ref         demircigil2017, Theorem 3.

    >>> import measureformer as mf
    >>> round(mf.memory.demircigil17_capacity(20)), round(mf.memory.demircigil17_capacity(20, 0.1))
    (1024, 40)
    """
    if not 0 <= flipped < 0.5:
        raise OptionError(got=f"flipped = {flipped}", need="a share in [0, ½)", do="Pass the share of wrong bits.")
    a = 1 - 2 * flipped
    rate = 0.5 * ((1 + a) * math.log(1 + a) + (0.0 if a == 1 else (1 - a) * math.log(1 - a)))
    return math.exp(0.5 * rate * d)


@checked
def birthday_capacity(d: Bits) -> float:
    """Number of random patterns that a dense memory with F = e^z holds, all at once, with probability ½.

    Arguments:
        d: number of bits.

    Statement   √(2 ln 2 · 2^d/d): a pattern and another that differs from it in one bit pull at that bit with equal
                strength, so the first such pair among n²/2 decides; their number is Poisson, with mean n² d 2^{−d}/2
    Ref         demircigil2017, Theorem 3, for the bound 2^{d/2}.

    >>> import measureformer as mf
    >>> round(mf.memory.birthday_capacity(20))
    270
    """
    return math.sqrt(2 * math.log(2) / d) * 2 ** (d / 2)
