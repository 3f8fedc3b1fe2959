"""What the grid certifies, and in which arithmetic.

Model       that of `measureformer.attention.rounding`: every operation is correct to one unit roundoff u = 2^−53, sums
            may be taken in any order and with fused multiply-adds, `exp` and `log` are correct to EXP units, nothing
            overflows. Operands and results below the smallest normal number may be taken for 0: what this costs
            arguments is in `Scales.flushed`, what it costs sums in `bounds`.
Notation    π_j = a_j e^{⟨q,k_j⟩}/Z. A box of queries has centre b; its keys have centre a; x = q − b, y = k − a.
            V = max |v_j − v_0| over keys with mass, v_0 the value that was subtracted.

Theorem 1   Products of the axis approximants of `chebyshev` are K(1 + θ), |θ| ≤ δ_G = Π(1 + η_i) − 1, for every pair.
Theorem 2   Let computed sums belong to kernels K(1 + θ_j), |θ_j| ≤ δ_1, on the keys that were kept, miss a share of at
            most D of Z by leaving keys out, and be rounded by at most δ_2 Σ π_j Z and δ_2 Σ π_j |v_j − v_0| Z. With
            δ = δ_1 + δ_2 + D < 1:
                |log Z~ − log Z| ≤ −log(1 − δ),    |out~ − out| ≤ δ/(1 − δ) · (V + |out − v_0|).
Proof       With θ_j = −1 on what was left out, N~ − (out − v_0) Z~ = Σ π_j θ_j (v_j − out) Z + rounding, and
            |v_j − out| ≤ V + |out − v_0|, which also bounds the rounding. Divide by Z~ ≥ (1 − δ) Z.
Lemma 3     For every q:  Z(q) ≥ Σ_c A_c e^{⟨q,m_c⟩} =: Z'(q) ≥ Z'(b) e^{⟨q−b,g⟩}, where A_c and m_c are mass and mean
            of the keys in cell c, and g is the mean of the m_c with weights A_c e^{⟨b,m_c⟩}.
Proof       Jensen in every cell; log Z' is convex with gradient g at b.
Theorem 3   For q in the box, |q_i − b_i| ≤ r_i, the keys of a cell have at most the share
                A_c / Z'(b) · exp Σ_i max over the two ends k_i of the cell of (b_i k_i + r_i |k_i − g_i|).
Proof       ⟨q,k⟩ = ⟨b,k⟩ + ⟨q−b,k−g⟩ + ⟨q−b,g⟩; the last cancels against Lemma 3, the others are convex in each k_i.

Rounding    On a pair of cells with centres x_0, y_0 the exponent of one axis is x_0 y_0 + α t + β τ + γ t τ with
            |α| + |β| + |γ| ≤ A = s ρ + r h − ρ h. Chebyshev coefficients of such an exponential have an absolute sum of
            at most e^{x_0 y_0 + A}, since those of e^{|α|t + |β|τ + |γ|tτ} are non-negative and sum to its value at
            (1, 1); interpolation only folds some onto others. And K ≥ e^{x_0 y_0 − A}. So all terms of the sums
            together, in absolute value, are at most e^{2A} K per axis, and δ_2 = e^{2 Σ A_i} γ with
                γ = u (C + L + R + Σ N_i + Σ p_i + 4 d + 12 + 8 Σ (σ_q + σ_k)) + Σ matrix errors:
            C keys in a chunk, L chunks in a run, R runs in the fullest cell, N_i nodes of an axis on the keys' side.
            The recurrence of T_k is off by at most 2 k² u, and Σ k² |c_k| ≤ (|α| + |γ|) e^{…} is the second derivative
            of e^{… cos φ} at 0: hence σ and not p². To this come the arguments (`argument`), in δ_1.
Ref         higham2002, Sections 3.1 and 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.rounding import EXP, SLACK

UNIT = 2.0**-53
LARGEST_EXPONENT = 300.0
"""Of Σ X_i in one box: e^{±300} and all that is lost below e^{−700} stay apart."""


class Scales(NamedTuple):
    """How large things are, at run time; what the rounding of arguments depends on."""

    log_weights: Any
    """Largest |log-weight| of a key with mass."""
    offset: Any
    """Σ_i |c_i| max|k_i − centre_i|, c the centre of all queries."""
    tilted: Any
    """Largest |log-weight| after the tilt by c."""
    turning: Any
    """Σ_i of |S||q| times |S^{-T}||k|, in absolute values: what changing coordinates multiplies roundings by."""
    flushed: Any = 0.0
    """What operands and results below the smallest normal number can change in an argument."""


def amplification(xp: Any, r: Any, s: Any, rho: Any, h: Any) -> Any:
    """exp 2 Σ A_i along the last axis; `xp` is the array module."""
    return xp.exp(2 * (s * rho + r * h - rho * h).sum(-1))


def counting(chunk: int, runs: int, nodes: int, degree: int, dim: int, sigma: float) -> float:
    """γ without the errors of the matrices; `runs` is chunks in a run plus runs in the fullest cell."""
    return UNIT * 1.01 * (chunk + runs + nodes + degree + 4 * dim + 12 + 8 * sigma)


def argument(xp: Any, scales: Scales, tilt: Any, reach: Any, sigma: Any, residual: Any) -> Any:
    """Relative error of every kernel value from the rounding of its argument, per box.

    q − c, k − c' and their images under S, S^{-T} are off by dim + 2 units each; the exponent l + ⟨c,k⟩ + ⟨b,y⟩ − level
    is a sum of dim + 4 terms; the local coordinate in a cell is off by 3 units, which moves the logarithm of the kernel
    by 3 (σ_q + σ_k). `residual` is what S and its computed inverse make of inner products.
    """
    dim = tilt.shape[-1]
    inner = xp.sum(tilt * reach, axis=-1)
    range_ = xp.minimum(745.0, 2 * (scales.tilted + inner))
    # 64 for the logarithm of the number of keys in a cell, by which a level may lie higher
    count = (dim + 5) * (scales.log_weights + scales.offset + scales.tilted + inner) + range_ + EXP + 64
    return SLACK * (UNIT * (count + 2 * (dim + 3) * scales.turning + 3 * sigma) + residual + scales.flushed)


def bounds(
    delta: Array, lost: Array, log_z: Array, parts: Array, values: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """Theorem 2, with the rounding of the last steps: bounds for values and log-normaliser, per query.

    `lost` is what underflow can take from a sum, over Z; `parts` the sum of the absolute values of what log Z is added
    up from; `values` are computed out − v_0 in norm, V, and |v_0|.
    """
    delta = delta + lost
    moved, largest, base = values
    sound = delta < 1
    relative = jnp.where(sound, delta / jnp.where(sound, 1 - delta, 1), jnp.inf)
    shift = jnp.minimum(largest, moved + 2 * largest * relative)
    # inf · 0 where all values are equal
    error = jnp.where(largest > 0, relative * (largest + shift), 0) + 4 * UNIT * (moved + base + largest)
    error += 2 * lost
    log_error = jnp.where(sound, -jnp.log1p(-jnp.where(sound, delta, 0)), jnp.inf)
    log_error += UNIT * ((EXP + 8) * parts + 2 * jnp.abs(log_z))
    tiny = float(np.finfo(float).tiny)
    return SLACK * error + tiny, SLACK * log_error + tiny


def log_dropped(cells: Any, b: Any, r: Any, kept: Any, count: int) -> Array:
    """Logarithm of D of Theorem 3, per box; `cells` has log_mass (c,), mean, low, high (c, d), from `count` keys."""
    massive = cells.log_mass > -jnp.inf
    tilted = cells.log_mass[None, :] + b @ cells.mean.T  # (boxes, cells)
    level = jax.scipy.special.logsumexp(tilted, axis=1)
    gradient = jnp.exp(tilted - level[:, None]) @ cells.mean
    top = cells.log_mass[None, :] - level[:, None]
    for i in range(b.shape[1]):
        ends = [
            b[:, i, None] * end[None, :] + r[:, i, None] * jnp.abs(end[None, :] - gradient[:, i, None])
            for end in (cells.low[:, i], cells.high[:, i])
        ]
        top = top + jnp.maximum(*ends)
    found = jax.scipy.special.logsumexp(jnp.where(kept, -jnp.inf, top), axis=1)
    # rounding: masses and means are sums over at most all keys, the rest is far below a thousand operations
    size = jnp.max(jnp.abs(cells.high)) + jnp.max(jnp.abs(cells.low))
    largest = jnp.max(jnp.where(massive, jnp.abs(cells.log_mass), 0)) + jnp.max(jnp.sum(jnp.abs(b) + r, 1)) * 2 * size
    return found + UNIT * (1000 + 4 * count) * (1 + largest)
