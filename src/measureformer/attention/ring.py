"""Ring streaming: every device keeps its queries, the keys travel round, and partial answers are merged.

With keys in D shards, Z = Σ_i Z_i and values = Σ_i Z_i values_i / Z, so a device that has met every shard once has the
answer. In each of the D rounds it streams over the shard that it holds, merges, and hands the shard on. Memory per
device is that of its own rows, in the forward pass and in every derivative.

Everything here is seen from one device: `axis` names the devices, under `shard_map` or, on one device, under
`vmap(…, axis_name=axis)`.

Ref         liu2023; milakov2018.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.rounding import EXP, SLACK, rounding_bounds
from measureformer.attention.streaming import stream


class Ring(NamedTuple):
    """Who takes part: the name of the axis, the number of devices on it, and the blocks that each one streams in."""

    axis: str
    size: int
    block: tuple[int, int] | None


class Partial(NamedTuple):
    """What a device knows of its queries after some shards: with a = e^{log Z_i − top}, Σ a and Σ a·values_i."""

    top: Array
    total: Array
    sums: Array


class Worst(NamedTuple):
    """The largest error bounds of the shards, for values and for the log-normaliser, per query."""

    values: Array
    log_normalizer: Array


def merged(known: Partial, values: Float[Array, "m c"], log_z: Float[Array, " m"]) -> Partial:
    """One more shard's answer among those known."""
    top = jnp.maximum(known.top, log_z)
    # a query that has seen no mass so far has top = −inf, and −inf − (−inf) would be NaN
    base = jnp.where(top == -jnp.inf, 0, top)
    old, new = jnp.exp(known.top - base), jnp.exp(log_z - base)
    return Partial(top, known.total * old + new, known.sums * old[:, None] + values * new[:, None])


def nothing(rows: int, columns: int, dtype: Any) -> Partial:
    """What is known before the first shard."""
    return Partial(jnp.full(rows, -jnp.inf, dtype), jnp.zeros(rows, dtype), jnp.zeros((rows, columns), dtype))


def finished(known: Partial) -> tuple[Float[Array, "m c"], Float[Array, " m"]]:
    """Values and log-normaliser; zeros and −inf where a query saw no mass."""
    some = known.total > 0
    total = jnp.where(some, known.total, 1)
    return known.sums / total[:, None], jnp.where(some, known.top + jnp.log(total), -jnp.inf)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def ring_stream(ring: Ring, queries: Queries, keys: Keys) -> tuple[Array, Array, Worst]:
    """Values (m, c) and log-normaliser (m,) of this device's queries over the keys of all devices."""

    def step(carry: tuple[Keys, Partial, Worst], _: None) -> tuple[Any, None]:
        shard, known, worst = carry
        values, log_z = stream(ring.block, queries, shard)
        bounds = rounding_bounds(queries, shard, log_z, ring.block)
        known, worst = merged(known, values, log_z), Worst(*map(jnp.maximum, worst, bounds))
        return (handed_on(ring, shard, 1), known, worst), None

    m, dtype = queries.q.shape[0], queries.q.dtype
    start = (keys, nothing(m, keys.v.shape[1], dtype), Worst(jnp.zeros(m, dtype), jnp.zeros(m, dtype)))
    (_, known, worst), _ = jax.lax.scan(step, start, None, length=ring.size)
    return *finished(known), worst


@ring_stream.defjvp
def _ring_stream_jvp(ring: Ring, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """With w_i = Z_i/Z: d log Z = Σ w_i d log Z_i, d values = Σ w_i (d values_i + values_i d log Z_i) − values d log Z.

    The shards are fetched from their owners in every round instead of being carried from round to round: a scan keeps
    what it carries for reverse mode, which would be the keys of all devices.
    """
    queries, keys = primals
    dqueries, dkeys = tangents
    values, log_z, worst = ring_stream(ring, queries, keys)
    base = jnp.where(log_z == -jnp.inf, 0, log_z)
    moving = keys, dkeys._replace(times=None)  # times have no derivative and need not travel twice

    @jax.checkpoint
    def step(carry: tuple[Array, Array], distance: Array) -> tuple[tuple[Array, Array], None]:
        shard, dshard = _fetched(ring, moving, distance)
        dshard = dshard._replace(times=jax.tree.map(jnp.zeros_like, shard.times))
        (v, lz), (dv, dlz) = jax.jvp(partial(stream, ring.block), (queries, shard), (dqueries, dshard))
        share = jnp.exp(lz - base)
        dlog_z, mixed = carry
        return (dlog_z + share * dlz, mixed + share[:, None] * (dv + dlz[:, None] * v)), None

    start = jnp.zeros_like(log_z), jnp.zeros_like(values)
    (dlog_z, mixed), _ = jax.lax.scan(step, start, jnp.arange(ring.size))
    dvalues = mixed - dlog_z[:, None] * values
    return (values, log_z, worst), (dvalues, dlog_z, jax.tree.map(jnp.zeros_like, worst))


def handed_on(ring: Ring, tree: Any, places: int) -> Any:
    """What the device `places` further along the ring holds."""
    pairs = [((i + places) % ring.size, i) for i in range(ring.size)]
    return jax.tree.map(lambda array: jax.lax.ppermute(array, ring.axis, pairs), tree)


def _fetched(ring: Ring, tree: Any, distance: Array) -> Any:
    """`handed_on` for a traced distance: the binary digits of the distance say which of the jumps 1, 2, 4, … count."""
    for digit in range((ring.size - 1).bit_length()):
        jump = handed_on(ring, tree, 1 << digit)
        counts = (distance >> digit) & 1 == 1
        tree = jax.tree.map(lambda far, near, counts=counts: jnp.where(counts, far, near), jump, tree)
    return tree


def ring_bounds(
    worst: Worst, log_z: Float[Array, " m"], largest_v: Float[Array, ""], size: int
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Bounds for the errors of merged values, in their Euclidean norm, and of the merged log-normaliser.

    Model       that of `measureformer.attention.rounding`, with unit roundoff u.
    Statement   if every one of the D shards has values within E and a log-normaliser within L of the truth, and
                ρ = D (EXP + 4) u + D·tiny:
                    |merged values − values| ≤ E + (e^{2L} − 1) V + (2ρ/(1−ρ) + 2u)(V + E),     V = max|v|,
                    |merged log Z − log Z| ≤ L + ρ/(1−ρ) + u (D·EXP + 2|log Z|).
    Proof       Replacing log Z_i by what was computed multiplies the weights Z_i/Z by factors in [e^{−2L}, e^{2L}],
                which moves an average of vectors of norm ≤ V by at most (e^{2L} − 1) V. In the merge, the weight
                e^{−x} of a shard, x = max_j log Z_j − log Z_i, is a product of at most D computed exponentials, each
                off by EXP·u, and takes part in at most D products and D sums: a relative error of D (EXP + 2) u. The
                rounding of their exponents, which add up to x, is off by u·x; averaged with the weights that is
                at most u·log D. Weights that underflow are off by `tiny` and the largest weight is 1. The quotient of
                two sums that are both ρ-accurate is 2ρ/(1−ρ)-accurate; log Σ ≤ log D ≤ D is off by EXP units.
    Ref         higham2002, Sections 3.1 and 4.2.
    """
    worst, log_z, largest_v = jax.lax.stop_gradient((worst, log_z, largest_v))
    kind = jnp.finfo(log_z.dtype)
    unit = float(kind.eps) / 2
    rho = size * (EXP + 4) * unit + size * float(kind.tiny)
    relative = rho / (1 - rho)
    log_size = jnp.where(log_z == -jnp.inf, 0, jnp.abs(log_z))
    # a bound of inf must not become NaN where all values are zero
    moved = jnp.where(largest_v > 0, jnp.expm1(2 * worst.log_normalizer) * largest_v, 0)
    values = worst.values + moved + (2 * relative + 2 * unit) * (largest_v + worst.values)
    return SLACK * values, SLACK * (worst.log_normalizer + relative + unit * (size * EXP + 2 * log_size))
