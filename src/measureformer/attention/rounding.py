"""Error bounds of streaming attention in a stated model of floating-point arithmetic.

Model       every operation is correct to one unit roundoff u (2^−53 or 2^−24), sums may be taken in any order and with
            fused multiply-adds, `exp` and `log` are correct to EXP units, nothing overflows, what underflows is
            counted separately.
Statement   with D = 2(|q| max|k| + max|log a|),
            r = (γ_{k+2}/2 + 4u) D + (blocks + 2)(EXP + 2) u + γ_{block + blocks + 1},
            ρ = e^r − 1 + n·tiny·e^{reach}:
                |computed values − values| ≤ (2ρ/(1−ρ) + 4u) max|v|,
                |computed log Z − log Z| ≤ ρ/(1−ρ) + 5u (|log Z| + 3D/2).
Proof       a dot product of length k with a log-weight added is off by γ_{k+2}(|q||k| + |log a|) ≤ γ_{k+2} D/2. The
            level is a largest logit, in [−D/2, D/2], or a bound ⟨q,c⟩ + |q| r + log a with |c| ≤ max|k| and
            r ≤ 2 max|k|, at most 3D/2; how it was rounded does not matter, because every term sees the same level.
            Subtracting it rounds by at most 2uD, and the rescalings, whose exponents add up to a rise of at most 2D, by
            2uD more; each multiplies by one more computed exponential. The largest term is at least e^{−reach}, so what
            underflows is n·tiny·e^{reach} of the sum. So every weight has a relative error that both sums see, and the
            sums of one block and over blocks add γ_{block + blocks + 1}. A quotient of two sums of positive terms, both
            relatively ρ-accurate, gives the factor 2ρ/(1−ρ). log Z is the level plus the logarithm of a sum, which is
            at most |log Z| + 3D/2 in size and off by EXP units.
Ref         higham2002, Sections 3.1 and 4.2.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.streaming import block_of, reach

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

    def gamma(count: int) -> float:
        return float(count * unit / (1 - count * unit))

    massive = keys.log_weights > -jnp.inf
    largest_k = jnp.max(jnp.where(massive, jnp.linalg.norm(keys.k, axis=1), 0))
    largest_v = jnp.max(jnp.where(massive, jnp.linalg.norm(keys.v, axis=1), 0), initial=0)
    largest_weight = jnp.max(jnp.where(massive, jnp.abs(keys.log_weights), 0))
    extent = 2 * (jnp.linalg.norm(queries.q, axis=1) * largest_k + largest_weight)
    dim = queries.q.shape[1]
    exponent = (gamma(dim + 2) / 2 + 4 * float(unit)) * extent
    constant = (blocks + 2) * (EXP + 2) * float(unit) + gamma(size + blocks + 1)
    lost = n * float(jnp.finfo(queries.q.dtype).tiny) * math.exp(reach(queries.q.dtype))
    rho = jnp.expm1(exponent + constant) + lost
    relative = jnp.where(rho < 1, rho / jnp.where(rho < 1, 1 - rho, 1), jnp.inf)
    log_size = jnp.where(log_z == -jnp.inf, 0, jnp.abs(log_z))
    values = (2 * relative + 4 * float(unit)) * largest_v
    return SLACK * values, SLACK * (relative + 5 * float(unit) * (log_size + 1.5 * extent))
