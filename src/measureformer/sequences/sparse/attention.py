"""`SparseAttention`: attention along a pattern of connections, at the cost of the connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from measureformer.errors import DtypeError, NothingVisibleError, ShapeError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.call import at_own_atoms
from measureformer.maps.compose import AbstractWrapper
from measureformer.maps.heads import AbstractHeads
from measureformer.maps.rows import all_rows
from measureformer.maps.variants import HardmaxAttention
from measureformer.measures import AbstractMeasure
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import host, is_traced, owned, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike
from measureformer.sequences.slots import refuse_off_slots, slot, slots
from measureformer.sequences.sparse.patterns import as_pattern

BLOCK, GROUPS = 1 << 15, 4
"""Connections that are looked at together; most groups of queries with lists of nearly their own lengths."""


class Connections(NamedTuple):
    """A pattern as a list: query k sees token j for each pair (k, j). For patterns whose matrix would be too large.

    Arguments:
        queries: k of each pair, (c,).
        tokens: j of each pair, (c,).
        n: number of tokens.

    >>> import measureformer as mf
    >>> from measureformer.sequences.sparse.attention import Connections
    >>> head = mf.Attention.head([[0.0]], [[0.0]], [[1.0]])
    >>> some = Connections([0, 1, 1], [0, 0, 1], 2)
    >>> mf.sequences.SparseAttention(head, some).tokens([[1.0], [3.0]]).tolist()
    [[1.0], [2.0]]
    """

    queries: ArrayLike
    tokens: ArrayLike
    n: int

    def in_order(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Each pair once, by increasing queries."""
        n, pairs = positive_int(self.n, "n"), np.stack([np.asarray(self.queries), np.asarray(self.tokens)])
        if pairs.ndim != 2 or pairs.dtype.kind not in "iu" or (pairs < 0).any() or (pairs >= n).any():
            raise ShapeError(
                got=f"connections of shape {pairs.shape} and dtype {pairs.dtype}",
                need=f"two lists of whole numbers from 0 to {n - 1}",
                do="One query and one token for each connection.",
            )
        queries, tokens = np.divmod(np.unique(pairs[0].astype(np.int64) * n + pairs[1]), n)
        return queries, tokens, n


def _of_matrix(pattern: ArrayLike) -> tuple[np.ndarray, np.ndarray, int]:
    masks = as_pattern(pattern)
    if len(masks) != 1:
        raise ShapeError(
            got=f"{len(masks)} patterns", need="the one of this layer", do="Make a layer of each: pattern[0], …"
        )
    queries, tokens = np.nonzero(masks[0])
    return queries, tokens, masks.shape[1]


class SparseAttention(AbstractWrapper):
    """Softmax or hard attention in which the token k sees the token j only where pattern[k, j].

    A map on space–time: the token at time (i+1)/n is the i-th, as in `mf.SpaceTime.sequence`, and `tokens(X)` is the
    layer on an (n, d) array.

    Arguments:
        map: heads, an `mf.Attention` or `mf.HardmaxAttention`.
        pattern: booleans (n, n) or (1, n, n), or `Connections`.

    Cost        O(connections) in time and memory at the tokens; at m other queries, m times the largest number of
                tokens that one query sees.

    Ref         yun2020b; child2019.

    >>> import numpy as np, measureformer as mf
    >>> head = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G = mf.sequences.SparseAttention(head, np.eye(3, dtype=bool))
    >>> G.tokens([[1.0], [2.0], [5.0]]).tolist()
    [[1.0], [2.0], [5.0]]
    >>> G = mf.sequences.SparseAttention(head, mf.sequences.sparse_pattern("causal", 3))
    >>> bool(np.allclose(G.tokens([[1.0], [2.0], [5.0]]), mf.Causal(head).tokens([[1.0], [2.0], [5.0]])))
    True
    """

    map: AbstractInContextMap
    tokens_seen: Int[Array, " c"]
    """The tokens of all connections, query after query."""
    starts: Int[Array, " n1"]
    """Where the connections of each query begin."""
    groups: tuple[tuple[Int[Array, "b r"], Int[Array, "b r w"]], ...]
    """Queries that see about equally many tokens, and these tokens, in blocks; padded with n."""
    widest: int = eqx.field(static=True)
    """Most tokens that one query sees."""

    @checked
    def __init__(self, map: AbstractInContextMap, pattern: ArrayLike | Connections) -> None:
        if not isinstance(map, (Attention, HardmaxAttention)):
            raise DtypeError(
                got=f"a map of type {type(map).__name__}",
                need="an mf.Attention or mf.HardmaxAttention",
                do="Make the attention sparse first, and add a residual after: mf.Residual(SparseAttention(…)).",
            )
        queries, tokens, n = pattern.in_order() if isinstance(pattern, Connections) else _of_matrix(pattern)
        starts = np.searchsorted(queries, np.arange(n + 1))
        self.map = map
        self.tokens_seen, self.starts = owned(np.append(tokens, n)), owned(starts)
        self.groups = tuple((owned(rows), owned(lists)) for rows, lists in _groups(tokens, starts))
        self.widest = int(np.diff(starts).max())

    @property
    def n(self) -> int:
        """The number of tokens that the pattern is made for."""
        return self.starts.shape[0] - 1

    @property
    def connections(self) -> int:
        return int(host(self.starts)[-1])

    @property
    def needs_time(self) -> bool:
        return True

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return False

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if at_own_atoms(mu, x, t):
            return self._at_slots(mu)
        at = slot(t, self.n)
        place = self.starts[at][:, None] + jnp.arange(max(self.widest, 1))
        inside = place < self.starts[at + 1][:, None]
        neighbours = jnp.where(inside, self.tokens_seen[jnp.where(inside, place, 0)], self.n)
        heads, memory = _heads(self), _memory(self, mu)
        values = _averages(heads, _queries(heads, x), memory, neighbours)
        return jnp.einsum("hme,hoe->mo", values, heads.W)

    def _at_slots(self, mu: AbstractMeasure) -> Array:
        """The values at the tokens, which are found at all slots first."""
        heads, memory = _heads(self), _memory(self, mu)
        q = _queries(heads, memory.points)
        values = jnp.zeros((heads.V.shape[0], self.n + 1, heads.V.shape[1]), q.dtype)

        def one(block: tuple[Array, Array]) -> Array:
            return _averages(heads, q[:, block[0]], memory, block[1])

        checkpointed = cast("Callable[..., Array]", jax.checkpoint(one))
        for rows, lists in self.groups:
            # block after block, so that memory stays linear; padding goes to slot n, which is never read
            if len(rows) == 1:
                found = checkpointed((rows[0], lists[0]))[None]
            else:
                found = cast("Array", jax.lax.map(checkpointed, (rows, lists)))
            flat = found.transpose(1, 0, 2, 3).reshape(values.shape[0], -1, values.shape[2])
            values = values.at[:, rows.reshape(-1)].set(flat)
        return jnp.einsum("hme,hoe->mo", values, heads.W)[slot(cast("Any", mu).times, self.n)]

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        refuse_off_slots(mu, t, self.n, type(self).__name__)
        if is_traced(self, mu, t):
            return
        n, sigma = self.n, cast("Any", mu)  # on space–time
        mass = np.zeros(n + 1, bool)
        mass[_slots(host(sigma.times)[host(sigma.log_weights) > -np.inf], n)] = True
        felt_before = np.append(0, np.cumsum(mass[host(self.tokens_seen)]))
        starts = host(self.starts)
        visible: np.ndarray = felt_before[starts[1:]] > felt_before[starts[:-1]]
        blind = ~visible[_slots(host(t), n)]
        if blind.any():
            raise NothingVisibleError(
                got=f"query {int(blind.argmax())}, whose row of the pattern holds no token with mass",
                need="a token to see",
                do="Let every token see itself: pattern | np.eye(n, dtype=bool).",
            )

    def __str__(self) -> str:
        return f"SparseAttention({self.map}, {self.connections} connections)"


def _slots(times: np.ndarray, n: int) -> np.ndarray:
    return np.clip(np.round(times * n).astype(int) - 1, 0, n - 1)


def _heads(G: SparseAttention) -> AbstractHeads:
    assert isinstance(G.map, AbstractHeads)  # see __init__
    return G.map


class _Memory(NamedTuple):
    """Keys and values of the slots, and of one more, without mass, that stands for no token."""

    points: Array
    k: Array
    v: Array
    log_weights: Array


def _memory(G: SparseAttention, mu: Any) -> _Memory:
    heads, (points, lw) = _heads(G), slots(mu, G.n)
    points = jnp.concatenate([points, points[:1]])
    lw = jnp.concatenate([lw, jnp.full(1, -jnp.inf, lw.dtype)])
    k, v = jnp.einsum("hkd,nd->hnk", heads.K, points), jnp.einsum("hed,nd->hne", heads.V, points)
    return _Memory(points, k, v, lw)


def _queries(heads: AbstractHeads, x: Array) -> Array:
    return heads.scale * jnp.einsum("hkd,md->hmk", heads.Q, x)


def _averages(heads: AbstractHeads, q: Array, memory: _Memory, neighbours: Array) -> Array:
    """Values (h, r, e) of queries (h, r, k) that see the slots neighbours (r, c)."""
    lw = memory.log_weights[neighbours]
    logits = jnp.einsum("hrk,hrck->hrc", q, memory.k[:, neighbours])
    felt = jnp.where(lw > -jnp.inf, logits, -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(felt, axis=2, keepdims=True))
    # no mass at all: every share must be 0 and not NaN
    top = jnp.where(top == -jnp.inf, 0, top)
    if isinstance(heads, HardmaxAttention):
        # logits that differ by less than their rounding errors are ties
        size = jnp.max(jnp.where(lw > -jnp.inf, jnp.abs(logits), 0), axis=2, keepdims=True)
        slack = 8 * float(np.finfo(np.dtype(logits.dtype)).eps) * jax.lax.stop_gradient(size)
        shares = jnp.where(logits >= top - slack, jnp.exp(lw), 0)
    else:
        shares = jnp.exp(logits - top + lw)
    total = shares.sum(axis=2)
    return jnp.einsum("hrc,hrce->hre", shares, memory.v[:, neighbours]) / jnp.where(total > 0, total, 1)[..., None]


def _groups(tokens: np.ndarray, starts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Queries (b, r) by how many tokens they see, rounded up by an eighth, or to powers of two if those are too many
    groups; and the tokens (b, r, w) that they see. Padding is thus at most a factor of two, and a last block."""
    n, degrees = len(starts) - 1, np.diff(starts)
    seeing = np.flatnonzero(degrees)
    widths = _rounded(degrees[seeing], 3)
    if len(np.unique(widths)) > GROUPS:
        widths = _rounded(degrees[seeing], 0)
    if len(seeing) * int(widths.max(initial=0)) <= BLOCK:
        widths = np.full_like(widths, widths.max(initial=0))  # so few that padding costs less than another program
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for width in map(int, np.unique(widths)):
        rows = seeing[widths == width]
        together = min(len(rows), max(1, BLOCK // width))
        blocks = -(-len(rows) // together)
        padded = np.append(rows, np.full(blocks * together - len(rows), n))
        place = starts[np.minimum(padded, n - 1)][:, None] + np.arange(width)
        inside = (place < starts[np.minimum(padded, n - 1) + 1][:, None]) & (padded < n)[:, None]
        lists = np.where(inside, tokens[np.where(inside, place, 0)], n)
        found.append((padded.reshape(blocks, together), lists.reshape(blocks, together, width)))
    return found


def _rounded(degrees: np.ndarray, bits: int) -> np.ndarray:
    """Rounded up to numbers with at most bits + 1 binary digits."""
    unit = np.maximum(1, 2.0 ** (np.ceil(np.log2(degrees)) - bits)).astype(int)
    return -(-degrees // unit) * unit
