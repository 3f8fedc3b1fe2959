"""`capacity` and `basin_curve`: measured capacities of memories, and measured sizes of their basins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from measureformer.errors import OptionError
from measureformer.memory.base import iterate
from measureformer.memory.bits import AbstractBinaryMemory, changed_bits
from measureformer.memory.classical import sweeper
from measureformer.memory.interactions import AbstractInteraction, Polynomial
from measureformer.memory.modern import Modern
from measureformer.numerics.arrays import finite, floats, positive_int
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.intervals import Z95, wilson
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Count, Key, Real

Criterion = Literal["all", "each", "errors"]
RECOGNISED = 0.9
"""Overlap with the pattern, per bit, above which an answer with errors still counts as the pattern."""
FOLLOWED = 16
"""Patterns per trial whose updates are followed to the end."""
SWEEPS = 64
LOGITS = 1 << 22


class CapacityCurve(eqx.Module):
    """Share of patterns, or of trials, held at each number of patterns, with 95 % confidence intervals.

    >>> import jax, measureformer as mf
    >>> curve = mf.memory.capacity(mf.memory.Polynomial(2), 16, [1, 16], jax.random.key(0), trials=50)
    >>> float(curve.held[0]), bool(curve.held[1] < 0.1), bool(1 < curve.capacity < 16)
    (1.0, True, True)
    """

    dim: int = eqx.field(static=True)
    criterion: str = eqx.field(static=True)
    counts: Int[np.ndarray, " k"]
    held: Float[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]
    bit_errors: Float[np.ndarray, " k"]
    """Share of the bits of stored patterns that change in the first update."""
    bit_errors_error: Float[np.ndarray, " k"]
    """Its standard error, over the trials."""

    @property
    def capacity(self) -> float:
        """Number of patterns at which half is held, interpolated in its logarithm; NaN outside the counts."""
        return _crossing(self.counts, self.held)

    @property
    def interval(self) -> tuple[float, float]:
        """Numbers of patterns at which the ends of the confidence intervals cross one half."""
        return _crossing(self.counts, self.low), _crossing(self.counts, self.high)


@checked
def capacity(
    interaction: AbstractInteraction,
    dim: int,
    counts: Annotated[ArrayLike, Real(filled=True, least=1, most=1e6)],
    key: Key,
    *,
    trials: int = 100,
    criterion: Criterion = "all",
) -> CapacityCurve:
    """Share of n independent uniform patterns in {−1, 1}^dim that a memory holds, for each n in `counts`.

    Arguments:
        interaction: F of the memory; `Polynomial(2)` is the classical memory without its diagonal.
        dim: number of bits.
        counts: numbers of patterns, (k,).
        key: randomness of the patterns.
        trials: independent sets of patterns.
        criterion: "all" is the share of trials in which all patterns are fixed points; "each" is the share of patterns
            that are fixed points; "errors" is the share of patterns from which asynchronous updates end with at least
            95 % of the bits right (classical memories only).

    Intervals are Wilson's for shares of trials. Patterns are not independent within a trial: intervals for their shares
    are normal ones, over trials. Memory is linear in n, time is counts · trials · n² · dim.

    >>> import jax, measureformer as mf
    >>> curve = mf.memory.capacity(mf.memory.Exponential(), 8, [4, 16], jax.random.key(1), trials=50, criterion="each")
    >>> bool((curve.low <= curve.held).all() and (curve.held <= curve.high).all())
    True
    """
    dim, trials = positive_int(dim, "dim"), positive_int(trials, "trials")
    counts = np.array([positive_int(count, "counts") for count in np.atleast_1d(np.asarray(counts))])
    if criterion == "errors" and not (isinstance(interaction, Polynomial) and interaction.degree == 2):
        raise OptionError(
            got=f"{interaction} with errors", need="Polynomial(2), the classical memory", do='Use criterion="each".'
        )
    most = bucket(int(counts.max()))
    program = _followed if criterion == "errors" else _fixed
    batch = max(1, min(trials, LOGITS // (most * max(most, dim))))
    drawn = (2 * generator(key).integers(0, 2, (trials, most, dim), dtype=np.int8) - 1).astype(np.int8)
    fixed, whole, wrong = (np.asarray(part) for part in program(interaction, drawn, counts, batch))
    held = (whole if criterion == "all" else fixed).mean(axis=0)
    if criterion == "all":
        low, high = wilson(held, trials)
    else:
        spread = Z95 * fixed.std(axis=0, ddof=1) / math.sqrt(trials) if trials > 1 else np.full(len(counts), 1.0)
        # if all trials agree, the spread is 0: use Wilson's interval
        outer = wilson(held, trials)
        spread = np.where(spread > 0, spread, np.maximum(held - outer[0], outer[1] - held))
        low, high = np.maximum(held - spread, 0), np.minimum(held + spread, 1)
    errors = wrong.std(axis=0, ddof=1) / math.sqrt(trials) if trials > 1 else np.full(len(counts), np.inf)
    return CapacityCurve(dim, criterion, counts, held, low, high, wrong.mean(axis=0), errors)


def _crossing(counts: np.ndarray, values: np.ndarray) -> float:
    """Where the values, which should fall, cross one half."""
    order = np.argsort(counts)
    n, falling = np.log(counts[order].astype(float)), np.minimum.accumulate(values[order])
    if not falling[0] >= 0.5 > falling[-1]:
        return math.nan
    i = int(np.argmax(falling < 0.5))
    part = (falling[i - 1] - 0.5) / (falling[i - 1] - falling[i])
    return float(np.exp(n[i - 1] + part * (n[i] - n[i - 1])))


@eqx.filter_jit
def _fixed(interaction: AbstractInteraction, drawn: Any, counts: Any, batch: int) -> Any:
    """For each trial and count: share of patterns that are fixed, whether all are, share of bits that change."""
    _, most, dim = drawn.shape
    slack = 0.0 if interaction.exact(most, dim) else 4 * (most + 8) * float(jnp.finfo(float).eps)
    # patterns in blocks, whose overlaps with all others fit; buckets are multiples of large powers of two
    size = math.gcd(most, 1 << (max(1, LOGITS // most).bit_length() - 1))

    def trial(X: Array) -> Any:
        X = X.astype(float)

        def block(part: tuple[Array, Array]) -> tuple[Array, Array]:
            rows, index = part
            # no overlap exceeds that of a pattern with itself
            even, odd = interaction.even_and_odd(rows @ X.T, float(dim))

            def at(count: Array) -> tuple[Array, Array]:
                mass = (jnp.arange(most) < count).astype(X.dtype)
                felt = (even * mass) @ X + rows * (odd @ mass)[:, None]
                terms = 2 * (jnp.abs(even) + jnp.abs(odd)) @ mass
                wrong = (rows * felt < -slack * terms[:, None]) & (index < count)[:, None]
                return jnp.sum(jnp.any(wrong, axis=1)), jnp.sum(wrong)

            return jax.lax.map(at, counts)

        found = _mapped(block, (X.reshape(-1, size, dim), jnp.arange(most).reshape(-1, size)), 1)
        lost, wrong = (jnp.sum(part, axis=0) for part in found)
        return 1 - lost / counts, lost == 0, wrong / (counts * dim)

    return _mapped(trial, drawn, batch)


def _mapped(f: Callable[[Any], Any], xs: Any, batch: int) -> Any:
    """All at once if they fit one batch, otherwise in batches: a loop around one batch would only cost compilation."""
    return jax.vmap(f)(xs) if len(jax.tree.leaves(xs)[0]) <= batch else jax.lax.map(f, xs, batch_size=batch)


@eqx.filter_jit
def _followed(interaction: AbstractInteraction, drawn: Any, counts: Any, batch: int) -> Any:
    """As `_fixed`, for a classical memory: asynchronous updates start from its first patterns."""
    _, most, dim = drawn.shape
    rows = min(FOLLOWED, most)

    def trial(X: Array) -> Any:
        X = X.astype(float)
        first = X[:rows]

        def at(count: Array) -> Any:
            stored = jnp.where((jnp.arange(most) < count)[:, None], X, 0)
            W = stored.T @ stored
            W = W - jnp.diag(jnp.diag(W))
            sweep = sweeper(W, 0)

            def step(state: Array, t: Array) -> tuple[Array, Array]:
                felt = state @ W
                return -0.5 * jnp.sum(state * felt, axis=1), sweep(state, felt, jnp.arange(dim))

            walk, _ = iterate(step, changed_bits, first, jnp.asarray(SWEEPS), tol=0, size=SWEEPS)
            real = jnp.arange(rows) < count
            held = (jnp.mean(walk.state * first, axis=1) >= RECOGNISED) & real
            wrong = (first * (first @ W) < 0) & real[:, None]
            seen = jnp.sum(real)
            return jnp.sum(held) / seen, jnp.sum(held) == seen, jnp.sum(wrong) / (seen * dim)

        return jax.lax.map(at, counts)

    return _mapped(trial, drawn, batch)


class BasinCurve(eqx.Module):
    """Share of queries that return to their pattern from each distance, with 95 % confidence intervals.

    >>> import jax, measureformer as mf
    >>> memory = mf.memory.Classical.store([[1] * 8 + [-1] * 8])
    >>> curve = mf.memory.basin_curve(memory, [1, 3], jax.random.key(0), trials=20)
    >>> curve.returned.tolist()
    [1.0, 1.0]
    """

    distances: Float[np.ndarray, " k"]
    returned: Float[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]


@checked
def basin_curve(
    memory: AbstractBinaryMemory | Modern,
    distances: Annotated[ArrayLike, Real(axes=1, filled=True)],
    key: Key,
    *,
    trials: Count = 200,
) -> BasinCurve:
    """Share of queries at each distance of a random stored pattern that return to it.

    Arguments:
        memory: a query returns to a pattern of a binary memory if all bits are right at the end, and to one of a
            modern memory if it is the nearest at the end.
        distances: numbers of flipped bits for a binary memory, Euclidean distances in random directions for a modern
            one, (k,).
        key: randomness of the patterns and of the queries.
        trials: queries at each distance.

    >>> import jax, numpy as np, measureformer as mf
    >>> memory = mf.memory.Modern.store(4 * np.eye(4), beta=1.0)
    >>> mf.memory.basin_curve(memory, [0.5, 1.0], jax.random.key(0), trials=50).returned.tolist()
    [1.0, 1.0]
    """
    rng, trials = generator(key), positive_int(trials, "trials")
    distances = np.atleast_1d(np.asarray(floats(distances, "distances"), np.float64))
    finite(distances, "distances")
    index = rng.integers(memory.n, size=(len(distances), trials)).reshape(-1)
    apart = np.repeat(distances, trials)
    if isinstance(memory, Modern):
        directions = rng.normal(size=(len(index), memory.dim))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        found = memory.retrieve(np.asarray(memory.patterns)[index] + apart[:, None] * directions).certificate
        back = found.nearest == index
    else:
        if ((apart != np.round(apart)) | (apart < 0) | (apart > memory.dim)).any():
            raise OptionError(
                got=f"distances {distances.tolist()}"[:80],
                need=f"numbers of flipped bits from 0 to {memory.dim}",
                do="Pass whole numbers.",
            )
        # the bits with the lowest random numbers are flipped
        ranks = np.argsort(np.argsort(rng.random((len(index), memory.dim)), axis=1), axis=1)
        patterns = memory.patterns[index]
        answers = memory.retrieve(np.where(ranks < apart[:, None], -patterns, patterns)).state
        back = (answers == patterns).all(axis=1)
    returned = back.reshape(len(distances), trials).mean(axis=1)
    return BasinCurve(distances, returned, *wilson(returned, trials))
