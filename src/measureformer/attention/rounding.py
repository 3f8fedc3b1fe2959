"""Error bounds of streaming attention in a stated model of floating-point arithmetic.

Model       every operation is correct to one unit roundoff u (2^−53 or 2^−24), sums may be taken in any order and with
            fused multiply-adds, `exp` and `log` are correct to EXP units, nothing overflows. Operands and results below
            the smallest normal number `tiny` may be taken for 0, as XLA's programs do.
Statement   |q|, max|k| and max|v| are enlarged by √k·tiny and √c·tiny. With D = 2(|q| max|k| + max|log a|),
            ε = tiny (2k + 4 + √k (|q| + max|k|)), S = e^{min(reach, 2D)},
            r = (γ_{k+2}/2 + 4u) D + ε + (blocks + 2)(EXP + 2) u + γ_{block + blocks + 1}, ρ = e^r − 1 + 2n·tiny·S:
                |computed values − values| ≤ (2ρ/(1−ρ) + 4u) max|v| + √c·tiny (4(n + blocks) S + 4),
                |computed log Z − log Z| ≤ ρ/(1−ρ) + 5u (|log Z| + 3D/2).
Proof       a dot product of length k with a log-weight added is off by γ_{k+2}(|q||k| + |log a|) ≤ γ_{k+2} D/2. The
            level is a largest logit, in [−D/2, D/2], or a bound ⟨q,c⟩ + |q| r + log a with |c| ≤ max|k| and
            r ≤ 2 max|k|, at most 3D/2; how it was rounded does not matter, because every term sees the same level.
            Nor does it matter whether keys or queries are the rows of a block, or whether its operations are fused:
            the logits are the same sums in another order, and a block without a level before it is not rescaled.
            Subtracting it rounds by at most 2uD, and the rescalings, whose exponents add up to a rise of at most 2D, by
            2uD more; each multiplies by one more computed exponential. An operand of a logit that is taken for 0 costs
            tiny·|q_i| or tiny·|k_i|, a result tiny: ε in all. A level is at most 2D and, where it was foreseen, reach
            above the largest logit, so the largest term is at least 1/S up to rounding, and the weights that underflow
            are 2n·tiny·S of the sum. So every weight has a relative error that both sums see, and the sums of one block
            and over blocks add γ_{block + blocks + 1}. A quotient of two sums of positive terms, both relatively
            ρ-accurate, gives the factor 2ρ/(1−ρ); as a product with a reciprocal it rounds once more. In a coordinate
            of the values, n operands, products and sums and a rescaling for each block lose tiny each, over a sum of at
            least 1/S, and so do the quotient and the answer.
            log Z is the level plus the logarithm of a sum, at most |log Z| + 3D/2 in size and off by EXP units.
Ref         higham2002, Sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.streaming import block_of, reach
from measureformer.numerics.arrays import namespace
from measureformer.numerics.norms import norms

EXP = 4
"""Error of `exp` and `log` in units of roundoff; measured below 2 for XLA on x86 over the whole range."""

SLACK = 1.01
"""The bound itself is computed in floating point."""


def rounding_bounds(
    queries: Queries, keys: Keys, log_z: Float[Array, " m"], block: tuple[int, int] | None
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Bounds for the error of the values, in their Euclidean norm, and of the log-normaliser, per query."""
    queries, keys, log_z = jax.lax.stop_gradient((queries, keys, log_z))
    unit = jnp.finfo(queries.q.dtype).eps / 2
    n = keys.k.shape[0]
    size = block_of(block, queries, keys)[1]
    blocks = -(-n // size)
    largest_k = largest_norm(keys.k, keys.log_weights)
    largest_v = largest_norm(keys.v, keys.log_weights)
    largest_weight = jnp.max(jnp.where(keys.log_weights > -jnp.inf, jnp.abs(keys.log_weights), 0))
    dim, tiny = queries.q.shape[1], float(jnp.finfo(queries.q.dtype).tiny)
    size_q = norms(queries.q) + math.sqrt(dim) * tiny
    extent = 2 * (size_q * largest_k + largest_weight)
    relative, below = relative_error(extent, size_q + largest_k, dim, n, (size, blocks))
    log_size = jnp.where(log_z == -jnp.inf, 0, jnp.abs(log_z))
    values = (2 * relative + 4 * float(unit)) * largest_v
    values += math.sqrt(keys.v.shape[1]) * tiny * (4 * (n + blocks) * below + 4)
    return SLACK * values, SLACK * (relative + 5 * float(unit) * (log_size + 1.5 * extent))


def relative_error(extent: Any, lengths: Any, dim: int, n: int, block: tuple[int, int]) -> tuple[Any, Any]:
    """ρ/(1 − ρ) and S of the statement, for NumPy or JAX arrays.

    Arguments:
        extent: 2(|q| max|k| + max|log a|).
        lengths: |q| + max|k|.
        dim: the dimension of queries and keys.
        n: the number of keys.
        block: keys in one block, and the number of blocks.
    """
    xp = namespace(extent)
    info = jnp.finfo(extent.dtype)
    unit, tiny, (size, blocks) = info.eps / 2, float(info.tiny), block

    def gamma(count: int) -> float:
        return float(count * unit / (1 - count * unit)) if count * unit < 1 else math.inf

    exponent = (gamma(dim + 2) / 2 + 4 * float(unit)) * extent
    exponent += tiny * math.sqrt(dim) * lengths + tiny * (2 * dim + 4)
    constant = (blocks + 2) * (EXP + 2) * float(unit) + gamma(size + blocks + 1)
    below = xp.exp(xp.minimum(2 * extent, reach(extent.dtype)))
    rho = xp.expm1(exponent + constant) + 2 * n * tiny * below
    return xp.where(rho < 1, rho / xp.where(rho < 1, 1 - rho, 1), xp.inf), below


def largest_norm(rows: Float[Array, "n c"], log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """The largest norm of a row with mass, enlarged by what is lost where entries below `tiny` are taken for 0."""
    lost = math.sqrt(max(rows.shape[1], 1)) * float(jnp.finfo(rows.dtype).tiny)
    return jnp.max(jnp.where(log_weights > -jnp.inf, norms(rows), 0)) + lost
