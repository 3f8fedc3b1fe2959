"""What a compiled network has to do, step by step, and how large its error can be: before there are any weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from measureformer.measures.domain import AbstractDomain
from measureformer.universality.algebra import Expression

SLACK = 1e-9
"""Ranges are widened by this share, so that points on the boundary may be rounded."""


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        return (self.high - self.low) / 2

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    def times(self, other: Interval) -> Interval:
        ends = [a * b for a in self for b in other]
        return Interval(min(ends), max(ends))

    def widened(self, by: float) -> Interval:
        return Interval(self.low - by, self.high + by)


class Step(NamedTuple):
    """One layer of one component: block `block` becomes factor number `place` of `length` in monomial `term`."""

    term: int
    block: int
    place: int
    length: int
    weight: float
    before: Interval
    """Range of the product so far."""
    factor: Interval
    """Range of the new factor."""

    @property
    def first(self) -> bool:
        return self.place == 1

    @property
    def last(self) -> bool:
        return self.place == self.length


class Program(NamedTuple):
    """Steps of every component, the constants that are added, and a bound for the error of every component."""

    steps: tuple[tuple[Step, ...], ...]
    constants: tuple[float, ...]
    bounds: np.ndarray

    @property
    def depth(self) -> int:
        return max(map(len, self.steps), default=0)


def block_ranges(expression: Expression, domain: AbstractDomain) -> list[Interval]:
    """The range of ⟨x, u⟩ + ⟨v, y⟩ + c over x, y in the domain: that of the block, whose softmax is an average."""
    factors = expression.factors
    ends = [np.asarray(factors.c)] * 2
    for direction in (np.asarray(factors.u), np.asarray(factors.v)):
        ends = [ends[0] - domain.support(-direction), ends[1] + domain.support(direction)]
    return [Interval(low, high).widened(SLACK * (high - low)) for low, high in np.stack(ends, axis=1).tolist()]


def programmed(expression: Expression, ranges: Sequence[Interval], cells: int | None) -> Program:
    """The program with product gadgets of `cells` cells, or exact ones for None.

    Statement   the gadget multiplies p ∈ [p̄ ± r] and g ∈ [ḡ ± s] with an error of at most r·s/cells²; so after k
                factors E_k ≤ max|g_k|·E_{k−1} + r_{k−1} s_k/cells², E_1 = 0, and a component errs by Σ_n |c_n| E^n
    Proof       ab = ¼((a+b)² − (a−b)²) for a = (p − p̄)/r, b = (g − ḡ)/s in [−1, 1]. The squares are interpolated on
                [−2, 2] in cells of length h = 4/cells, from above, with errors in [0, h²/4]; so the difference errs by
                at most ¼·h²/4 = 1/cells². What is left is affine, and exact. An error in p is multiplied by g.
    Ref         furuya2024.
    """
    steps: list[tuple[Step, ...]] = []
    constants: list[float] = []
    bounds: list[float] = []
    for component in range(expression.coefficients.shape[1]):
        own: list[Step] = []
        constants.append(0.0)
        bounds.append(0.0)
        for term, (weight, blocks) in enumerate(expression.terms(component)):
            if not blocks:
                constants[-1] += weight
                continue
            product, error = Interval(1.0, 1.0), 0.0
            for place, block in enumerate(blocks, start=1):
                factor = ranges[block]
                own.append(Step(term, block, place, len(blocks), weight, product, factor))
                gadget = 0.0 if cells is None or place == 1 else product.radius * factor.radius * cells**-2.0
                product = product.times(factor).widened(gadget)
                error = factor.size * error + gadget
            bounds[-1] += abs(weight) * error
        steps.append(tuple(own))
    return Program(tuple(steps), tuple(constants), np.asarray(bounds))
