"""How far floating-point arithmetic can take a compiled network from what it computes in exact arithmetic.

Model       float64, as in `measureformer.attention.rounding`: every operation is correct to one unit roundoff, sums may
            be taken in any order and with fused multiply-adds, `exp` is correct to a few units, nothing overflows, and
            numbers below the smallest normal one, `tiny`, may be taken for 0. At most TOKENS tokens on one device, in
            blocks of at least LEAST in `attend`, with log-weights in [−LOGS, LOGS] or −∞; tokens and queries in the
            domain.
Statement   every component is off by at most `rounding` of it, which adds to the error of the products.
Proof       x is never changed, since what is added to it is 0. Let g = γ_N with N at least the number of operations on
            the way through one layer, P a bound for |p|, and E_p, E_y, E_z bounds for the errors of p, y, z. A network
            without rounding forgets errors of z and of p where it resets them, so they do not add up over monomials.
            Head: queries are off by e_q = g(|A| R + 2|b|) + |b| E_z and values by e_v = g(C + |c|) + |c| E_z, with
            |x| ≤ R and |⟨v, y⟩ + c| ≤ C. Wrong queries change logits by at most e_q R, and the answer by at most
            (e^{2 e_q R} − 1) C; `attend` adds its own bound. In all the factor z − 1 + ⟨x, u⟩ is off by e.
            Affine updates: an affine functional with entries |f| in absolute sum F goes through two units; relu changes
            no errors, and loses 4gF; ¼((f+1)² − (f−1)²) loses 2g(F+1)².
            Products, relu: with ranges p̄ ± r and ḡ ± s, slopes of the chords lie in [−4, 4], so that an error of p is
            multiplied by at most |ḡ| + 2s and one of the factor by |p̄| + 2r; this also holds outside of the ranges. The
            units, with coefficients r s h/2 and preactivations a ± b − knot, lose 8g(sP + r(G + |ḡ|) + s|p̄| + 3rs),
            where the factor is a sum of terms with absolute sum G. The ranges are rounded, too, which costs as much as
            an error gP of p and gG of the factor.
            Products, quadratic: errors of both enter as in a product, and the squares lose 2g|c|(P + G)².
            Underflow: an operand or result that is taken for 0 costs tiny times a factor of at most M, and there are at
            most N of them for each unit.
Ref         higham2002, Sections 3.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measureformer.attention.blocks import LEAST
from measureformer.attention.rounding import relative_error
from measureformer.measures.domain import AbstractDomain
from measureformer.universality.factors import Factors
from measureformer.universality.program import Program, Step

TOKENS = 1 << 20
LOGS = 700.0
SLACK = 1.01
"""The bound itself is computed in floating point, and squares of g are left out."""
UNIT, TINY = float(np.finfo(float).eps) / 2, float(np.finfo(float).tiny)


def rounding(program: Program, factors: Factors, domain: AbstractDomain, cells: int | None) -> np.ndarray:
    """Bounds for the rounding errors of every component; ∞ where no digit is certain.

    Arguments:
        program: what the network does.
        factors: the blocks of the expression.
        domain: where tokens and queries are.
        cells: cells of a product; None for the quadratic activation.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        layer = _Layer(factors, domain, cells, len(program.steps))
        found = np.asarray([layer.component(steps) for steps in program.steps])
        found += layer.gamma * (found + np.abs(program.constants)) + TINY
        sizes = [sum(abs(s.weight) * s.before.size * s.factor.size for s in steps if s.last) for steps in program.steps]
        found = SLACK * (found + layer.gamma * np.asarray(sizes))
    return np.where(np.isfinite(found), found, np.inf)


class _Layer:
    """Errors of the factors, which any layer may read, and what its perceptron adds to them."""

    def __init__(self, factors: Factors, domain: AbstractDomain, cells: int | None, components: int) -> None:
        A, b, c, u, v = (np.asarray(leaf, float) for leaf in factors)
        dim = factors.dim
        self.cells = cells
        count = dim + 3 * components + 2 * components * (cells or 2) + 16
        self.gamma = count * UNIT / (1 - count * UNIT)
        box = np.maximum(domain.support(np.eye(dim)), domain.support(-np.eye(dim))) * (1 + 1e-9)
        R = float(np.linalg.norm(box))
        C, U = np.abs(v) @ box + np.abs(c), np.abs(u) @ box
        norm_A, norm_b = np.sqrt(np.sum(A**2, axis=(1, 2))), np.linalg.norm(b, axis=1)
        largest = 1 + R + max(float(np.abs(leaf).max(initial=0)) for leaf in (A, b, c, u, v)) + float(C.max(initial=0))
        self.lost = 4 * count * TINY * largest
        reset = self._affine(3 + 2 * float(C.max(initial=0))) + 3 * self.gamma * (1 + float(C.max(initial=0)))
        e_q = self.gamma * (norm_A * R + 2 * norm_b) + norm_b * reset + self.lost
        e_v = self.gamma * (C + np.abs(c)) + np.abs(c) * reset + self.lost
        q, value = norm_A * R + norm_b + e_q, C + e_v
        extent = 2 * (q * R + LOGS)
        relative, below = relative_error(extent, q + R, dim, TOKENS, (TOKENS, TOKENS // LEAST))
        head = (2 * relative + 4 * UNIT) * value + TINY * (8 * TOKENS * below + 4)
        head += np.expm1(2 * e_q * R) * value + e_v
        read = head + reset + 2 * self.gamma * (1 + C + head)
        # the reset of z was bounded for factors with at least one correct digit
        self.read = np.where(read <= 1 + C, read, np.inf)
        self.size = 2 + C + U + self.read

    def _affine(self, total: float) -> float:
        """What an affine update of an absolute sum loses."""
        size = 2 * total if self.cells is not None else (total + 1) ** 2
        return 2 * self.gamma * size + self.lost

    def component(self, steps: Sequence[Step]) -> float:
        y = e_y = e_p = 0.0
        for step in steps:
            new = self._step(step, e_p)
            if not step.last:
                e_p = new
                continue
            y += abs(step.weight) * step.before.size * step.factor.size
            e_y += new + self.gamma * (y + e_y + new)
            if not step.first:
                p = step.before.size + e_p
                e_p = self._affine(1 + p) + self.gamma * p
        return e_y

    def _step(self, step: Step, e_p: float) -> float:
        """The error that a step adds to y, or that p has after it."""
        e_g, G, g = float(self.read[step.block]), float(self.size[step.block]), self.gamma
        p, f = step.before, step.factor
        P = p.size + e_p
        # what is left of the old product is taken away
        kept, weight = (0.0, abs(step.weight)) if step.last else (P, 1.0)
        held = g * kept
        if step.first:
            return weight * e_g + self._affine(weight * G + kept) + held
        if self.cells is None:
            inherited = f.size * e_p + P * e_g
            squares = 2 * g * weight * (P + G) ** 2 + self.lost
            return weight * inherited + squares + (self._affine(kept) if kept else 0.0) + held
        r, s, p_mean, g_mean = p.radius, f.radius, abs(p.middle), abs(f.middle)
        inherited = (g_mean + 2 * s) * (e_p + g * P) + (p_mean + 2 * r) * (e_g + g * G) + g * (f.size * P + p.size * G)
        curved = 8 * g * (s * P + r * (G + g_mean) + s * p_mean + 3 * r * s)
        rest = weight * (p_mean * G + g_mean * P + p_mean * g_mean + 2 * r * (G + g_mean)) + kept
        preactivation = (P + p_mean) / r + (G + g_mean) / s if r * s > 0 else 0.0
        underflow = self.lost * (1 + P + G + r + s + preactivation) * (1 + weight)
        return weight * (inherited + curved) + self._affine(rest) + held + underflow
