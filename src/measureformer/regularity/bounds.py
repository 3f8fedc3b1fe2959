"""Theorems on the smoothness of softmax attention, as functions that return their right-hand sides.

One head Γ[mu](x) = ∫ e^{⟨Ax,y⟩} V y dmu(y) / Z, measures supported in the ball B(0, R), and s = ‖A‖R². A constant C is
that of the push-forward, W_p(Γ[mu]♯mu, Γ[nu]♯nu) ≤ C W_p(mu, nu), or of the map of n tokens in the Euclidean norm.
Constants beyond the range of floating-point numbers are returned as infinity, which is a bound too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.errors import DtypeError, OptionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def lipschitz_ball_castin24(v_norm: ArrayLike, a_norm: ArrayLike, radius: ArrayLike) -> float:
    """Lipschitz constant of an attention head on measures in a ball, for every W_p.

    Arguments:
        v_norm: operator norm ‖V‖ of the value matrix.
        a_norm: operator norm ‖A‖ of A = KᵀQ.
        radius: radius R of the ball, e.g. `mu.radius()`.

    Statement   for all p ≥ 1 and mu, nu in B(0, R):  C ≤ ‖V‖ (1 + 3s) e^{2s},  s = ‖A‖R²
    Hypotheses  assumed: the supports, and the operator norms.
    Sharp?      for p = 1 up to a factor (1+3s)/(1+2s) < 3/2; for p = 2 see `lipschitz_ball`.
    Ref         castin2024.

    >>> import measureformer as mf
    >>> round(mf.regularity.lipschitz_ball_castin24(1.0, 0.5, 1.0), 4)
    6.7957
    """
    v, s = _sizes(v_norm, a_norm, radius)
    return _times(v * (1 + 3 * s), _exp(2 * s))


@checked
def lipschitz_ball(v_norm: ArrayLike, a_norm: ArrayLike, radius: ArrayLike) -> float:
    """Lipschitz constant of an attention head on measures in a ball, for W_2: half the exponent for every W_p.

    Arguments:
        v_norm: operator norm ‖V‖ of the value matrix.
        a_norm: operator norm ‖A‖ of A = KᵀQ.
        radius: radius R of the ball, e.g. `mu.radius()`.

    Statement   for all mu, nu in B(0, R):  C ≤ ‖V‖ ((1 + s) e^s + s),  s = ‖A‖R²
    Hypotheses  assumed: the supports, and the operator norms.
    Sharp?      up to a factor < 2.3, on two clusters; 1.54 as s grows (see `adversary`).
    Ref         castin2024, with E_P|U|² ≤ e^{2s} E_mu|U|² before the square root is taken.

    >>> import measureformer as mf
    >>> round(mf.regularity.lipschitz_ball(1.0, 1.0, 1.5), 2)
    33.09
    """
    v, s = _sizes(v_norm, a_norm, radius)
    return _times(v * (1 + s), _exp(s)) + _times(v, s)


@checked
def lipschitz_tokens_castin24(v_norm: ArrayLike, a_norm: ArrayLike, radius: ArrayLike, n: int) -> float:
    """Lipschitz constant of an attention head on n tokens, as printed on the authors' slides: not always true.

    Arguments:
        v_norm: operator norm ‖V‖ of the value matrix.
        a_norm: operator norm ‖A‖ of A = KᵀQ.
        radius: radius R of the ball, e.g. `mu.radius()`.
        n: number of tokens.

    Statement   for all X, Y in B(0, R)^n:  C ≤ ‖V‖ s √(12n + 3),  s = ‖A‖R²
    Hypotheses  needed, though not printed: s ≥ 1/√3. At A = 0 the map is X ↦ V mean(X), of constant ‖V‖ > 0.
    Sharp?      see `lipschitz_tokens`, which is always true.
    Ref         castin2024.

    >>> import measureformer as mf
    >>> mf.regularity.lipschitz_tokens_castin24(1.0, 0.0, 1.0, 5)
    0.0
    """
    v, s = _sizes(v_norm, a_norm, radius)
    return _times(v * math.sqrt(12 * positive_int(n, "n") + 3), s)


@checked
def lipschitz_tokens(v_norm: ArrayLike, a_norm: ArrayLike, radius: ArrayLike, n: int) -> float:
    """Lipschitz constant of an attention head on n tokens, with or without a causal mask.

    Arguments:
        v_norm: operator norm ‖V‖ of the value matrix.
        a_norm: operator norm ‖A‖ of A = KᵀQ.
        radius: radius R of the ball, e.g. `mu.radius()`.
        n: number of tokens.

    Statement   for all X, Y in B(0, R)^n:  C ≤ √3 ‖V‖ (s² (n + 1) + n)^{1/2},  s = ‖A‖R²
    Hypotheses  assumed: the tokens are in the ball, and have equal weights.
    Sharp?      the growth √n is (see `adversary`), as long as n is below e^{2s}; beyond, `lipschitz_ball` is smaller.
    Ref         castin2024, with the term +n.

    >>> import measureformer as mf
    >>> round(mf.regularity.lipschitz_tokens(1.0, 1.0, 1.5, 91), 2)
    40.87
    """
    v, s = _sizes(v_norm, a_norm, radius)
    n = positive_int(n, "n")
    return _times(math.sqrt(3) * v, math.hypot(s * math.sqrt(n + 1), math.sqrt(n)))


@checked
def lipschitz_masked(v_norm: ArrayLike, a_norm: ArrayLike, radius: ArrayLike, *, p: float = 2.0) -> float:
    """Lipschitz constant of a causal attention head in the conditional distance W_p^cond, for p > 1.

    Arguments:
        v_norm: operator norm ‖V‖ of the value matrix.
        a_norm: operator norm ‖A‖ of A = KᵀQ.
        radius: radius R of the ball, e.g. `mu.radius()`.
        p: exponent, finite and > 1.

    Statement   for all sigma, tau in B(0, R) × [0, 1] with one time marginal:
                C ≤ ‖V‖ (p/(p−1) (1 + 2s) e^{2s} + s),  s = ‖A‖R²
    Hypotheses  checked: p > 1, because averages over [0, t] are not bounded in L¹. assumed: supports and marginals.
    Sharp?      the factor p/(p−1) is (Hardy's inequality; at A = 0 the map is the Cesàro mean).
    Ref         castin2024; hardy1934, Theorem 327.

    >>> import measureformer as mf
    >>> mf.regularity.lipschitz_masked(1.0, 0.0, 1.0)
    2.0
    """
    v, s = _sizes(v_norm, a_norm, radius)
    if not p > 1:
        raise OptionError(
            got=f"p = {p!r}", need="p > 1", do="At p = 1 there is no such constant; leave p out for W_2^cond."
        )
    return _times(v * p / (p - 1) * (1 + 2 * s), _exp(2 * s)) + _times(v, s)


@checked
def lipschitz_push_forward(in_point: ArrayLike, in_measure: ArrayLike) -> float:
    """Lipschitz constant of mu ↦ G(mu, ·)♯mu from the constants of G in the point and in the measure: their sum.

    Arguments:
        in_point: L_x, the constant of G(mu, ·).
        in_measure: L_law, the constant of G(·, x) for W_p.

    Statement   if |G(mu,x) − G(mu,y)| ≤ L_x |x−y| and |G(mu,x) − G(nu,x)| ≤ L_law W_p(mu,nu) for all mu, nu, x, y, then
                W_p(G(mu,·)♯mu, G(nu,·)♯nu) ≤ (L_x + L_law) W_p(mu, nu)
    Sharp?      yes: G(mu, x) = x + mean(mu), and a translation.
    Ref         peyre2019, Section 2; castin2024.

    >>> import measureformer as mf
    >>> mf.regularity.lipschitz_push_forward(1.0, 1.0)
    2.0
    """
    return _size(in_point, "in_point") + _size(in_measure, "in_measure")


def _sizes(v_norm: Any, a_norm: Any, radius: Any) -> tuple[float, float]:
    """‖V‖ and s = ‖A‖R²."""
    R = _size(radius, "radius")
    return _size(v_norm, "v_norm"), _size(a_norm, "a_norm") * R * R


def _size(value: Any, name: str) -> float:
    if np.ndim(value) != 0 or isinstance(value, (str, bytes, complex)):
        raise DtypeError(got=f"{name} = {str(value)[:40]}", need="one number", do=f"Pass {name} as a float.")
    try:
        number = float(value)
    except TypeError:
        raise DtypeError(got=f"{name} = {value!r}", need="one number", do=f"Pass {name} as a float.") from None
    if not 0 <= number < math.inf:
        raise OptionError(
            got=f"{name} = {number:g}",
            need="a finite number ≥ 0",
            do="Norms and radii are not negative: np.linalg.norm(V, 2), np.linalg.norm(K.T @ Q, 2), mu.radius().",
        )
    return number


def _exp(s: float) -> float:
    return math.exp(s) if s < 709 else math.inf


def _times(factor: float, growth: float) -> float:
    # a head with V = 0 is constant, however large its logits
    return factor * growth if factor > 0 else 0.0
