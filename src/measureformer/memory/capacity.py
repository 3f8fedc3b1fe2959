"""How many patterns a memory holds: the theorems, as functions that return their right-hand sides."""

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
from measureformer.numerics.types import NotNegative, Positive, Size, Within

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

    >>> round(float(bit_error(40, 200)), 4)
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
