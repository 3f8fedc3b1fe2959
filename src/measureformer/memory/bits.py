"""What binary memories share: patterns and states of ±1, updates in two modes, and certificates."""

from __future__ import annotations

import abc
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int8

from measureformer.errors import DtypeError, OptionError, PatternError
from measureformer.memory.base import AbstractMemory, Retrieval, Walk, cut_walk, room, rows_of, trace_of
from measureformer.numerics.arrays import default_float, floats, host, positive_int, prng_key, shaped
from measureformer.numerics.types import ArrayLike, Key

Mode = Literal["asynchronous", "synchronous"]


class BinaryCertificate(eqx.Module):
    """What is certain about the answer of a binary memory, per query.

    >>> import measureformer as mf
    >>> found = mf.memory.Classical.store([[1, 1, 1, 1, -1]]).retrieve([1, 1, 1, -1, -1]).certificate
    >>> int(found.nearest), int(found.errors), bool(found.fixed), float(found.margin)
    (0, 0, True, 4.0)
    """

    nearest: np.ndarray
    """The stored pattern that agrees with the answer in most bits."""
    errors: np.ndarray
    """Bits in which they differ."""
    margin: np.ndarray
    """min_l ξ_l·(field at l), the distance of the answer from losing a bit; negative for a state that is not fixed."""
    fixed: np.ndarray
    """Whether the answer is a fixed point; ties, up to rounding, keep the sign."""


class AbstractBinaryMemory(AbstractMemory):
    """Patterns of ±1, whose bits are updated one after the other or all at once."""

    patterns: eqx.AbstractVar[Int8[np.ndarray, "n d"]]

    @property
    def n(self) -> int:
        return self.patterns.shape[0]

    @property
    def dim(self) -> int:
        return self.patterns.shape[1]

    def retrieve(
        self, query: ArrayLike, *, mode: Mode = "asynchronous", key: Key | None = None, steps: int = 100
    ) -> Retrieval[np.ndarray, BinaryCertificate]:
        """Update all bits until nothing changes, or a two-cycle is reached.

        Arguments:
            query: states of ±1, (d,) or (m, d); an unknown bit is 0, and stays 0 only while its field is 0.
            mode: "asynchronous" updates bits one after the other, "synchronous" all at once.
            key: randomness of the order of asynchronous updates; by default bits are updated in order.
            steps: largest number of updates of all bits.
        """
        rows, single = binary_states(query, self.dim, "query")
        steps = positive_int(steps, "steps")
        key = None if key is None else prng_key(key)
        if mode not in ("asynchronous", "synchronous"):
            raise OptionError(got=f"mode = {mode!r}", need='"asynchronous" or "synchronous"', do="Leave it out.")
        walk, t = self.walked(rows, np.asarray(steps), key, synchronous=mode == "synchronous", size=room(steps))
        walk = cut_walk(walk, t, len(rows), single=single)
        return Retrieval(walk.state, trace_of(walk), lambda: self.certificate(walk.state))

    @abc.abstractmethod
    def walked(
        self, start: np.ndarray, limit: np.ndarray, key: Key | None, *, synchronous: bool, size: int
    ) -> tuple[Walk, Array]:
        """The loop of updates on rows, at most `limit` ≤ `size` of them, with its padding, and how many there were."""

    @abc.abstractmethod
    def certificate(self, state: ArrayLike) -> BinaryCertificate:
        """The stored pattern nearest to a state, and whether the state is a fixed point."""

    @abc.abstractmethod
    def stable(self) -> np.ndarray:
        """Which of the stored patterns are fixed points."""


def binary_certificate(
    patterns: np.ndarray, rows: np.ndarray, aligned: np.ndarray, slack: ArrayLike, *, single: bool
) -> BinaryCertificate:
    """The certificate of states in rows; `aligned` are ξ_l·(field at l)."""
    margin = aligned.min(axis=1)
    fixed = (margin >= -np.asarray(slack)) & (rows != 0).all(axis=1)
    # in blocks: states × patterns may be many
    size = max(1, 2**22 // len(patterns))
    X = patterns.astype(np.float32)
    found = [_closest(X, rows[i : i + size].astype(np.float32)) for i in range(0, len(rows), size)]
    nearest, overlap = (np.concatenate(part) for part in zip(*found, strict=True))
    errors = np.rint((rows.shape[1] - overlap) / 2).astype(int)
    parts = nearest, errors, margin, fixed
    return BinaryCertificate(*(np.asarray(part[0]) if single else part for part in parts))


def _closest(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    overlaps = rows @ X.T
    return overlaps.argmax(axis=1), overlaps.max(axis=1)


def changed_bits(old: Array, new: Array) -> Array:
    return jnp.sum(old != new, axis=1).astype(old.dtype)


def binary_patterns(patterns: ArrayLike) -> np.ndarray:
    """(n, d) patterns of ±1 as int8, or a refusal."""
    if default_float() != np.float64:
        raise DtypeError(
            got="JAX without 64-bit numbers", need="float64 for exact energies and fields", do="Unset JAX_ENABLE_X64."
        )
    rows = np.asarray(host(shaped(floats(patterns, "patterns"), "patterns", "n d")))
    if 0 in rows.shape:
        raise PatternError(
            got=f"patterns of shape {rows.shape}",
            need="at least one pattern of at least one bit",
            do="Pass an (n, d) array.",
        )
    _only(rows, "patterns", np.abs(rows) == 1, "entries that are −1 or 1")
    return rows.astype(np.int8)


def binary_states(state: ArrayLike, dim: int, name: str = "state") -> tuple[np.ndarray, bool]:
    """States of ±1, and 0 for an unknown bit, as float64 (m, d), and whether a single one was given."""
    rows, single = rows_of(state, dim, name)
    rows = np.asarray(host(rows), np.float64)
    _only(rows, name, np.isin(rows, (-1, 0, 1)), "entries that are −1, 1, or 0 for an unknown bit")
    return rows, single


def _only(rows: np.ndarray, name: str, good: np.ndarray, need: str) -> None:
    if good.all():
        return
    i, j = (int(part) for part in np.argwhere(~good)[0])
    raise PatternError(
        got=f"{name} with the entry {rows[i, j]:g} in row {i}, column {j}",
        need=need,
        do="Take signs first, as np.where(x > 0, 1, -1); real numbers go into mf.memory.Modern.",
    )
