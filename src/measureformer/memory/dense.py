"""`Dense`: dense associative memories of patterns of ±1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int8

from measureformer.attention import attend
from measureformer.errors import OptionError
from measureformer.memory.base import Walk, iterate
from measureformer.memory.bits import (
    AbstractBinaryMemory,
    BinaryCertificate,
    Mode,
    binary_certificate,
    binary_patterns,
    binary_states,
    changed_bits,
)
from measureformer.memory.interactions import AbstractInteraction, Exponential, Polynomial, fields
from measureformer.numerics import edge
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key

OVERLAPS = 1 << 22
"""Largest number of overlaps of queries and patterns in memory at once."""
MANY = 1 << 26
"""Number of overlaps, or of bits of all patterns, above which an exponential memory uses float32."""
CHUNKS, WHOLE = 16, 1 << 24
"""Patterns take one byte per bit; matrix products convert them to floats, in chunks above `WHOLE` bits."""


class Dense(AbstractBinaryMemory):
    """E(ξ) = −Σ_i F(⟨x_i, ξ⟩); each bit takes the sign with the lower energy, ties keep it.

    Statement   E never rises in asynchronous updates. n independent uniform patterns are fixed points up to
                n ~ d^{a−1}/(2 (2a−3)!! ln d) for F = z^a, and up to 2^{d/2} for F = e^z
    Ref         krotov2016; demircigil2017; ramsauer2020, Appendix A.

    For F = e^z the energy is −log Σ_i e^{⟨x_i, ξ⟩}, a monotone function of −Σ_i F, which would overflow for d ≥ 710.
    Memory is linear in n; one asynchronous update of all bits takes d steps of length n.

    >>> import measureformer as mf
    >>> memory = mf.memory.Dense.store([[1, 1, 1, 1], [1, -1, 1, -1]], interaction=mf.memory.Polynomial(3))
    >>> memory.retrieve([-1, 1, 1, 1]).state.tolist(), memory.energy([1, 1, 1, 1]).tolist()
    ([1.0, 1.0, 1.0, 1.0], -64.0)
    """

    patterns: Int8[np.ndarray, "n d"]
    interaction: AbstractInteraction

    @staticmethod
    @checked
    def store(patterns: ArrayLike, *, interaction: AbstractInteraction | None = None) -> Dense:
        """Store patterns.

        Arguments:
            patterns: entries ±1, (n, d).
            interaction: F, as `Polynomial(a)` or `Exponential()`; the exponential by default.
        """
        patterns = binary_patterns(patterns)
        interaction = Exponential() if interaction is None else interaction
        n, d = patterns.shape
        if isinstance(interaction, Polynomial) and interaction.degree * math.log(d + 2) + math.log(2 * n) > 700:
            raise OptionError(
                got=f"degree {interaction.degree} for {n} patterns of {d} bits",
                need="an energy n·d^a below 10^304",
                do="Use mf.memory.Exponential(), which is computed with logarithms.",
            )
        return Dense(patterns, interaction)

    def energy(self, state: ArrayLike) -> np.ndarray:
        """−Σ_i F(⟨x_i, ξ⟩), or −log Σ_i e^{⟨x_i, ξ⟩} for the exponential."""
        rows, single = binary_states(state, self.dim)
        if isinstance(self.interaction, Polynomial):
            a = self.interaction.degree
            energies = np.concatenate([-np.sum(self._overlaps(part) ** a, axis=1) for part in _blocks(rows, self.n)])
        else:
            X = self.patterns.astype(self._precision(len(rows)))
            energies = -np.asarray(attend(rows.astype(X.dtype), X, X[:, :1]).log_normalizer)
        return np.asarray(energies[0]) if single else energies

    def fields(self, state: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The field at every bit, and for each state a bound of its rounding errors.

        The exponential measures fields in units of Σ_i e^{⟨x_i, ξ⟩} · 2 sinh 1, in which they lie between −e and e.
        """
        rows, single = binary_states(state, self.dim)
        felt, error = self._felt(rows, self._precision(len(rows)))
        return (felt[0], np.asarray(error[0])) if single else (felt, error)

    def _felt(self, rows: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.interaction, Exponential):
            X = self.patterns.astype(dtype)
            out = attend(rows.astype(dtype), X, X)
            felt = np.cosh(rows) * np.asarray(out.values, np.float64) - np.sinh(rows)
            return felt, math.cosh(1) * np.asarray(out.error_bound, np.float64) + 1e-15
        mass, partial = np.ones(self.n), bool((rows == 0).any())
        parts = [
            fields(self.interaction, self._overlaps(part), mass, part, self._times_patterns, partial=partial)
            for part in _blocks(rows, self.n)
        ]
        felt, size = (np.concatenate(part) for part in zip(*parts, strict=True))
        rounding = 0.0 if self.interaction.exact(self.n, self.dim) else 4 * (self.n + 8) * np.finfo(float).eps
        return felt, rounding * size

    def _precision(self, m: int) -> Any:
        """Overlaps are integers, exact in both; `attend` bounds the float32 errors of the rest."""
        return np.float32 if self.n * max(m, self.dim) > MANY else np.float64

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        size = max(1, WHOLE // self.dim)
        for i in range(0, self.n, size):
            yield slice(i, i + size), self.patterns[i : i + size].astype(np.float64)

    def _overlaps(self, rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows @ X.T for _, X in self._chunks()], axis=1)

    def _times_patterns(self, weights: np.ndarray) -> np.ndarray:
        return np.sum([weights[:, part] @ X for part, X in self._chunks()], axis=0)

    def update(self, state: ArrayLike, *, mode: Mode = "asynchronous", key: Key | None = None) -> np.ndarray:
        """Update all bits once; see `retrieve` for `mode` and `key`."""
        rows, single = binary_states(state, self.dim)
        if mode == "synchronous":
            felt, error = self._felt(rows, self._precision(len(rows)))
            new = np.where(np.abs(felt) <= error[:, None], rows, np.sign(felt))
            return new[0] if single else new
        return self.retrieve(state, mode=mode, key=key, steps=1).state

    def walked(
        self, start: np.ndarray, limit: np.ndarray, key: Key | None, *, synchronous: bool, size: int
    ) -> tuple[Walk, Array]:
        slack = 0.0 if self.interaction.exact(self.n, self.dim) else 4 * (bucket(self.n) + 8) * np.finfo(float).eps
        network = edge.Layer((self.interaction, np.asarray(slack), synchronous, size))
        atoms = _PATTERNS, (self.patterns, np.zeros(self.n))
        return edge.run(network, _walk, atoms, (start, limit, key), edge.Layout((0, 0), (1,), (0,)))

    def certificate(self, state: ArrayLike) -> BinaryCertificate:
        rows, single = binary_states(state, self.dim)
        felt, error = self._felt(rows, self._precision(len(rows)))
        return binary_certificate(self.patterns, rows, rows * felt, error, single=single)

    def stable(self) -> np.ndarray:
        """Which of the stored patterns are fixed points, in linear memory.

        Large exponential memories compute in float32, and again in float64 where the float32 error bound does not
        decide.
        """
        rows = self.patterns.astype(np.float64)
        felt, error = self._felt(rows, self._precision(self.n))
        margin = np.min(rows * felt, axis=1)
        if (undecided := (np.abs(margin) <= error) & (error > 0)).any():
            again, error[undecided] = self._felt(rows[undecided], np.float64)
            margin[undecided] = np.min(rows[undecided] * again, axis=1)
        return margin >= -error


def _blocks(rows: np.ndarray, n: int) -> Iterator[np.ndarray]:
    size = max(1, OVERLAPS // n)
    return (rows[i : i + size] for i in range(0, len(rows), size))


_PATTERNS = jax.tree.structure((0, 0))


def _walk(network: Any, atoms: Any, start: Any, limit: Any, key: Any) -> Any:
    """The updates of all queries, in blocks of queries whose overlaps fit."""
    (interaction, slack, synchronous, size), (X, log_mass) = network, atoms
    mass = jnp.exp(log_mass)
    (m, bits), n = start.shape, X.shape[0]
    columns, parts = X.T, X.reshape(1 if X.size <= WHOLE else CHUNKS, -1, bits)

    def overlaps_of(state: Array) -> Array:
        found = jax.lax.map(lambda part: state @ part.T.astype(state.dtype), parts)
        return jnp.swapaxes(found, 0, 1).reshape(state.shape[0], n)

    def times_patterns(weights: Array) -> Array:
        pieces = jnp.swapaxes(weights.reshape(weights.shape[0], parts.shape[0], -1), 0, 1)
        return jax.lax.map(lambda pair: pair[0] @ pair[1].astype(weights.dtype), (pieces, parts)).sum(axis=0)

    def sign(felt: Array, error: Array, old: Array) -> Array:
        return jnp.where(jnp.abs(felt) <= error, old, jnp.sign(felt))

    def sweep(state: Array, overlaps: Array, order: Array) -> Array:
        def one(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            state, overlaps = carry
            bit = order[i]
            x, old = columns[bit].astype(state.dtype), state[:, bit]
            rest = overlaps - old[:, None] * x[None]
            level = jnp.max(jnp.where(mass > 0, rest, -jnp.inf), axis=1, keepdims=True)
            rise = interaction.rise(rest, level) * mass
            new = sign(rise @ x, slack * jnp.sum(jnp.abs(rise), axis=1), old)
            return state.at[:, bit].set(new), rest + new[:, None] * x[None]

        return jax.lax.fori_loop(0, bits, one, (state, overlaps))[0]

    def step(state: Array, t: Array) -> tuple[Array, Array]:
        overlaps = overlaps_of(state)
        energies = _energies(interaction, overlaps, mass)
        if synchronous:
            felt, terms = fields(interaction, overlaps, mass, state, times_patterns, partial=True)
            return energies, sign(felt, slack * terms[:, None], state)
        order = jnp.arange(bits) if key is None else jax.random.permutation(jax.random.fold_in(key, t), bits)
        return energies, sweep(state, overlaps, order)

    rows = max(1, min(m, OVERLAPS // n))
    # buckets of queries are whole powers of two, or multiples of 128: the blocks are made to divide them
    rows = math.gcd(m, 1 << (rows.bit_length() - 1))
    walks, t = jax.lax.map(
        lambda block: iterate(step, changed_bits, block, limit, tol=0, size=size), start.reshape(-1, rows, bits)
    )
    return _joined(walks, m), jnp.max(t)


def _energies(interaction: AbstractInteraction, overlaps: Array, mass: Array) -> Array:
    if isinstance(interaction, Polynomial):
        return -jnp.sum(mass * overlaps**interaction.degree, axis=1)
    return -jax.scipy.special.logsumexp(jnp.where(mass > 0, overlaps, -jnp.inf), axis=1)


def _joined(walks: Walk, m: int) -> Walk:
    """The walks of all blocks as one; in two of the arrays time comes before the queries."""

    def rows(part: Array) -> Array:
        return part.reshape(m, *part.shape[2:])

    def times(part: Array) -> Array:
        return jnp.swapaxes(part, 0, 1).reshape(part.shape[1], m)

    state, first, energies, moves, *rest = walks
    return Walk(rows(state), rows(first), times(energies), times(moves), *map(rows, rest))
