"""`AbstractMemory`: stored patterns, an energy that updates do not raise, retrieval with a trace and a certificate."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError, ShapeError
from measureformer.numerics.arrays import finite, floats
from measureformer.numerics.buckets import bucket
from measureformer.numerics.types import ArrayLike

State = TypeVar("State", covariant=True)
Certificate = TypeVar("Certificate", covariant=True)


class Trace(eqx.Module):
    """The updates between a query and its answer; the axis of queries is the last one, absent for a single query.

    >>> import measureformer as mf
    >>> found = mf.memory.Classical.store([[1, 1, 1, 1]]).retrieve([1, 1, 1, -1])
    >>> found.trace.energies.tolist(), found.trace.moves.tolist(), bool(found.trace.converged)
    ([0.0, -6.0, -6.0], [1.0, 0.0], True)
    """

    energies: np.ndarray
    """Energy of the query and after every update, (steps + 1, m)."""
    moves: np.ndarray
    """Bits that each update changed, or the Euclidean distance it moved; (steps, m)."""
    steps: np.ndarray
    """Updates that changed the state."""
    converged: np.ndarray
    """Whether the last update changed nothing; false for a two-cycle and where `steps` ran out."""
    cycles: np.ndarray
    """Whether the updates entered a two-cycle; synchronous updates only."""


@dataclass(frozen=True)
class Retrieval(Generic[State, Certificate]):
    """The answer of a memory: its `state`, the `trace` of the updates, and a `certificate`.

    >>> import measureformer as mf
    >>> found = mf.memory.Modern.store([[1.0, 0.0], [0.0, 1.0]], beta=20.0).retrieve([0.9, 0.2])
    >>> found.state.round(4).tolist(), int(found.certificate.nearest)
    ([1.0, 0.0], 0)
    """

    state: State
    trace: Trace
    certify: Callable[[], Certificate] = field(repr=False)

    @cached_property
    def certificate(self) -> Certificate:
        """What is certain about the answer, computed on first access."""
        return self.certify()


class AbstractMemory(eqx.Module):
    """Stored patterns, retrieved from queries close to them.

    All three generations have `store`, `energy`, `update` and `retrieve`. States and queries are (d,) or (m, d).
    """

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """Number of patterns."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Dimension of the patterns."""

    @abc.abstractmethod
    def energy(self, state: ArrayLike) -> np.ndarray | Array:
        """The energy of one state, or of several."""

    @abc.abstractmethod
    def update(self, state: ArrayLike) -> np.ndarray | Array:
        """One update of one state, or of several."""

    @abc.abstractmethod
    def retrieve(self, query: ArrayLike) -> Retrieval[np.ndarray | Array, object]:
        """Update the query until nothing changes."""


class Walk(NamedTuple):
    """A finished loop of updates, on queries in rows."""

    state: Any
    first: Any
    energies: Any
    moves: Any
    steps: Any
    converged: Any
    cycles: Any


def iterate(
    step: Callable[[Array, Array], tuple[Array, Array]],
    distance: Callable[[Array, Array], Array],
    start: Array,
    limit: Array,
    *,
    tol: Any,
    size: int,
) -> tuple[Walk, Array]:
    """Update all rows of `start` until each has settled, at most `limit` ≤ `size` times. To be called under jit.

    `step(state, t)` gives the energies of the states and the states after the update. A row has settled if it moved by
    at most `tol`, or is back where it was two updates ago; it then stays fixed, so that the answer to a query does not
    depend on the other queries. Also returns the number of updates.
    """
    m = start.shape[0]
    rows = jnp.zeros((size + 1, m), start.dtype)

    def going(carry: Any) -> Array:
        t, done = carry[0], carry[-1][0]
        return (t < limit) & ~jnp.all(done)

    def body(carry: Any) -> Any:
        t, state, before, first, energies, moves, (done, converged, cycles) = carry
        energy, new = step(state, t)
        new = jnp.where(done[:, None], state, new)
        first = jnp.where(t == 0, new, first)
        move = distance(state, new)
        still = move <= tol
        back = (t > 0) & jnp.all(new == before, axis=1) & ~still & ~done
        energies = energies.at[t].set(energy)
        moves = moves.at[t].set(move)
        flags = done | still | back, converged | (still & ~done), cycles | back
        return t + 1, new, state, first, energies, moves, flags

    no = jnp.zeros(m, bool)
    carry = (jnp.zeros((), int), start, start, start, rows, rows[1:], (no, no, no))
    t, state, _, first, energies, moves, (_, converged, cycles) = jax.lax.while_loop(going, body, carry)
    # other blocks of queries may need more updates
    energies = jnp.where(jnp.arange(size + 1)[:, None] >= t, step(state, t)[0], energies)
    steps = jnp.sum(moves > tol, axis=0)
    return Walk(state, first, energies, moves, steps, converged, cycles), t


def cut_walk(walk: Walk, t: Any, m: int, *, single: bool) -> Walk:
    """The walk without its padding, in NumPy; for one query without the axis of queries."""
    t = int(t)
    state, first = (np.asarray(part)[:m] for part in walk[:2])
    energies, moves = np.asarray(walk.energies)[: t + 1, :m], np.asarray(walk.moves)[:t, :m]
    rest = [np.asarray(part)[:m] for part in walk[4:]]
    if single:
        state, first, energies, moves = state[0], first[0], energies[:, 0], moves[:, 0]
        rest = [np.asarray(part[0]) for part in rest]
    return Walk(state, first, energies, moves, *rest)


LEAST = 100
"""Least number of updates that a program has room for: one update and many share a program."""


def room(steps: int) -> int:
    return bucket(max(steps, LEAST))


def trace_of(walk: Walk) -> Trace:
    return Trace(walk.energies, walk.moves, walk.steps, walk.converged, walk.cycles)


def rows_of(state: Any, dim: int, name: str) -> tuple[Any, bool]:
    """States as (m, d), and whether a single one was given."""
    rows = floats(state, name)
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ShapeError(
            got=f"a {name} of shape {rows.shape}", need="(d,) or (m, d), not empty", do="One state in each row."
        )
    if rows.shape[-1] != dim:
        raise DimensionMismatchError(
            got=f"a {name} in dimension {rows.shape[-1]} and patterns in dimension {dim}",
            need="one dimension",
            do="Flatten pictures to vectors, and give every pixel; an unknown bit is 0.",
        )
    finite(rows, name)
    return (rows[None] if rows.ndim == 1 else rows), rows.ndim == 1
