"""Piecewise linear activations with jumps, and the four ReLUs that replace each of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from measureformer.errors import OptionError


class Relus(NamedTuple):
    """t ↦ constant + Σ_i coefficients_i · relu(signs_i t + shifts_i), four terms."""

    signs: np.ndarray
    shifts: np.ndarray
    coefficients: np.ndarray
    constant: float

    def __call__(self, t: np.ndarray) -> np.ndarray:
        # one unit after the other: with breakpoints on a binary grid every difference is exact
        total = np.full(np.shape(t), self.constant)
        for sign, shift, coefficient in zip(self.signs, self.shifts, self.coefficients, strict=True):
            total += coefficient * np.maximum(sign * t + shift, 0)
        return total


class Activation(NamedTuple):
    """φ(t) = a1 t + b1 for t < c1, a2 t + b2 for c1 ≤ t < c2, a3 t + b3 for t ≥ c2: jumps are allowed.

    One of the three pieces must be constant; then four ReLUs are equal to φ except on [c1 − ramp, c1) and
    [c2 − ramp, c2), or the mirror images of these where only the right piece is constant.

    Statement   constant on the left: b1 + s1 relu(t−c1+e) + (a2−s1) relu(t−c1) + (s2−a2) relu(t−c2+e) + (a3−s2)
                relu(t−c2) with s1 = (a2 c1+b2−b1)/e, s2 = (a3 c2+b3−a2(c2−e)−b2)/e; in the middle: b2 + J2 relu(t−c2+e)
                + (a3−J2) relu(t−c2) + J1 relu(c1−t) − (a1+J1) relu(c1−e−t) with J2 = (a3 c2+b3−b2)/e,
                J1 = (a1(c1−e)+b1−b2)/e; on the right: the first formula for φ(−t)
    Ref         yun2020, Appendix.

    >>> bump = Activation(0, 0, -0.5, 0, 1, 0.5, 0, 0)
    >>> bump(np.array([-1.0, 0.0, 0.5])).tolist()
    [0.0, 1.0, 0.0]
    >>> bump.relus(0.25)(np.array([-1.0, -0.625, 0.0, 0.375, 2.0])).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    a1: float
    b1: float
    c1: float
    a2: float
    b2: float
    c2: float
    a3: float
    b3: float

    def __call__(self, t: np.ndarray) -> np.ndarray:
        linear, constant = self.parts(t)
        return linear + constant

    def parts(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a·t and b on the pieces. Kept apart: in rounding, x + (−x) + b is b, and x + (−x + b) need not be."""
        low, high = t < self.c1, t < self.c2
        slope = np.where(low, self.a1, np.where(high, self.a2, self.a3))
        return slope * t, np.where(low, self.b1, np.where(high, self.b2, self.b3))

    def relus(self, ramp: float) -> Relus:
        """The four ReLUs with ramps of this width."""
        a1, b1, c1, a2, b2, c2, a3, b3 = self
        e = ramp
        if a1 == 0:
            s1, s2 = (a2 * c1 + b2 - b1) / e, (a3 * c2 + b3 - a2 * (c2 - e) - b2) / e
            shifts = np.array([e - c1, -c1, e - c2, -c2])
            return Relus(np.ones(4), shifts, np.array([s1, a2 - s1, s2 - a2, a3 - s2]), float(b1))
        if a2 == 0:
            J2, J1 = (a3 * c2 + b3 - b2) / e, (a1 * (c1 - e) + b1 - b2) / e
            signs, shifts = np.array([1.0, 1, -1, -1]), np.array([e - c2, -c2, c1, c1 - e])
            return Relus(signs, shifts, np.array([J2, a3 - J2, J1, -a1 - J1]), float(b2))
        if a3 == 0:
            mirrored = Activation(0, b3, -c2, -a2, b2, -c1, -a1, b1).relus(ramp)
            return mirrored._replace(signs=-mirrored.signs)
        raise OptionError(
            got=f"slopes {a1:g}, {a2:g}, {a3:g} on the three pieces",
            need="a constant piece",
            do="Four ReLUs carry two jumps and two changes of slope: make one of the slopes 0.",
        )


def power_of_two_below(number: float) -> float:
    """The largest power of two that is at most the number.

    >>> power_of_two_below(1e-3) == 2**-10
    True
    """
    return math.ldexp(1.0, math.frexp(number)[1] - 1)
