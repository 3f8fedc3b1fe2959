"""Interactions F of dense associative memories, E(ξ) = −Σ_i F(⟨x_i, ξ⟩), and the fields at their bits.

For x = ±1 and any F, F(u + x) − F(u − x) = x·g(u) with g(u) = F(u + 1) − F(u − 1). With the overlaps m_i = ⟨x_i, ξ⟩ the
field at bit l is Σ_i x_il g(m_i − x_il ξ_l). A function of x·ξ_l with x = ±1 is even + x·odd, so with s = |ξ_l|, which
is 1, or 0 for an unknown bit, the field is

    Σ_i x_il ½(g(m_i − s) + g(m_i + s)) + ξ_l Σ_i ½(g(m_i − 1) − g(m_i + 1)):

two products with the matrix of patterns for all bits at once, instead of d sums over changed overlaps.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError
from measureformer.numerics.arrays import namespace, positive_int
from measureformer.numerics.checked import checked

Numbers: TypeAlias = np.ndarray | Array
"""NumPy in, NumPy out; JAX in, JAX out."""


class AbstractInteraction(eqx.Module):
    """An interaction F, up to a positive factor that may differ between queries."""

    @abc.abstractmethod
    def rise(self, u: Numbers, level: Numbers | float) -> Numbers:
        """g(u) = F(u + 1) − F(u − 1), times a positive factor that depends on `level` alone."""

    def even_and_odd(self, overlaps: Numbers, level: Numbers | float) -> tuple[Numbers, Numbers]:
        """½(g(m − 1) + g(m + 1)) and ½(g(m − 1) − g(m + 1))."""
        below, above = (self.rise(overlaps + s, level) for s in (-1, 1))
        return 0.5 * (below + above), 0.5 * (below - above)

    @abc.abstractmethod
    def exact(self, n: int, dim: int) -> bool:
        """Whether all fields are sums of integers that float64 holds exactly."""


class Polynomial(AbstractInteraction):
    """F(z) = z^a; a = 2 is Hebb's rule without the diagonal.

    Arguments:
        degree: a, at least 2.

    Ref         krotov2016.

    >>> import measureformer as mf
    >>> mf.memory.Polynomial(3).degree
    3
    """

    degree: int = eqx.field(static=True)

    @checked
    def __init__(self, degree: int) -> None:
        self.degree = positive_int(degree, "degree")
        if degree < 2:
            raise OptionError(
                got=f"degree = {degree}", need="at least 2", do="F(z) = z makes an energy that is linear in every bit."
            )

    def rise(self, u: Numbers, level: Numbers | float) -> Numbers:
        return (u + 1) ** self.degree - (u - 1) ** self.degree

    def exact(self, n: int, dim: int) -> bool:
        return math.log(8 * n) + self.degree * math.log(dim + 2) < 53 * math.log(2)


class Exponential(AbstractInteraction):
    """F(z) = e^z; a synchronous update is attention with a threshold, sign(cosh ξ_l · attention_l − sinh ξ_l).

    Proof       g(m − xξ) = 2 sinh 1 · e^m (cosh ξ − x sinh ξ) for x = ±1; sum over the patterns, divide by Σ_i e^{m_i}.
    Ref         demircigil2017.

    >>> import measureformer as mf
    >>> mf.memory.Exponential()
    Exponential()
    """

    def rise(self, u: Numbers, level: Numbers | float) -> Numbers:
        return namespace(u).exp(u - level)

    def even_and_odd(self, overlaps: Numbers, level: Numbers | float) -> tuple[Numbers, Numbers]:
        rise = self.rise(overlaps, level)
        return math.cosh(1) * rise, -math.sinh(1) * rise

    def exact(self, n: int, dim: int) -> bool:
        return False


def fields(
    interaction: AbstractInteraction,
    overlaps: Numbers,
    mass: Numbers,
    states: Numbers,
    times_patterns: Callable[[Any], Numbers],
    *,
    partial: bool,
) -> tuple[Any, Any]:
    """The fields at all bits of states (m, d), up to a factor per state, and the sums of the sizes of their terms.

    `mass` (n,) is 1 for a pattern and 0 for padding; `times_patterns` multiplies (m, n) by the patterns (n, d);
    `partial` says that bits may be unknown.
    """
    xp = namespace(overlaps)
    level = xp.max(xp.where(mass > 0, overlaps, -math.inf), axis=1, keepdims=True)
    even, odd = (part * mass for part in interaction.even_and_odd(overlaps, level))
    felt = times_patterns(even)
    if partial:
        felt = xp.where(states == 0, times_patterns(interaction.rise(overlaps, level) * mass), felt)
    return felt + states * xp.sum(odd, axis=1, keepdims=True), 2 * xp.sum(abs(even) + abs(odd), axis=1)
