"""`SparseAttention`: attention along a pattern of connections, at the cost of the connections."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from measureformer.errors import DtypeError, NothingVisibleError, ShapeError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import AbstractWrapper
from measureformer.maps.heads import AbstractHeads
from measureformer.maps.variants import HardmaxAttention
from measureformer.measures import AbstractGaussianLike
from measureformer.numerics.arrays import host, is_traced, owned, positive_int
from measureformer.universality._slots import refuse_off_slots, slot, slots
from measureformer.universality.sparsity._patterns import as_pattern

BLOCK = 1 << 15
"""Connections that are looked at together."""


class Connections(NamedTuple):
    """A pattern as a list: query k sees token j for each pair (k, j). For patterns whose matrix would be too large.

    >>> import measureformer as mf
    >>> head = mf.Attention.head([[0.0]], [[0.0]], [[1.0]])
    >>> some = mf.universality.sparsity.Connections([0, 1, 1], [0, 0, 1], 2)
    >>> mf.universality.sparsity.SparseAttention(head, some).tokens([[1.0], [3.0]]).tolist()
    [[1.0], [2.0]]
    """

    queries: Any
    tokens: Any
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


def _of_matrix(pattern: Any) -> tuple[np.ndarray, np.ndarray, int]:
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
    layer on an (n, d) array. At the tokens themselves time and memory grow like the number of connections; at m other
    queries like m times the largest number of tokens that one query sees.

    Ref         yun2020b; child2019.

    >>> import numpy as np, measureformer as mf
    >>> head = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G = mf.universality.sparsity.SparseAttention(head, np.eye(3, dtype=bool))
    >>> G.tokens([[1.0], [2.0], [5.0]]).tolist()
    [[1.0], [2.0], [5.0]]
    >>> G = mf.universality.sparsity.SparseAttention(head, mf.universality.sparsity.pattern("causal", 3))
    >>> bool(np.allclose(G.tokens([[1.0], [2.0], [5.0]]), mf.Causal(head).tokens([[1.0], [2.0], [5.0]])))
    True
    """

    map: AbstractInContextMap
    queries: Int[Array, "b c"]
    """Queries of all connections in blocks, increasing; padded with n."""
    seen: Int[Array, "b c"]
    """The tokens that they see."""
    starts: Int[Array, " n1"]
    """Where the connections of each query begin."""
    widest: int = eqx.field(static=True)
    """Most tokens that one query sees."""

    def __init__(self, map: AbstractInContextMap, pattern: Any) -> None:
        if not isinstance(map, (Attention, HardmaxAttention)):
            raise DtypeError(
                got=f"a map of type {type(map).__name__}",
                need="an mf.Attention or mf.HardmaxAttention",
                do="Make the attention sparse first, and add a residual after: mf.Residual(SparseAttention(…)).",
            )
        queries, tokens, n = pattern.in_order() if isinstance(pattern, Connections) else _of_matrix(pattern)
        count = len(queries)
        blocks = max(1, -(-count // BLOCK))
        pad = np.full((blocks * BLOCK if blocks > 1 else max(count, 1)) - count, n)
        starts = np.searchsorted(queries, np.arange(n + 1))
        self.map = map
        self.queries = owned(np.concatenate([queries, pad]).reshape(blocks, -1))
        self.seen = owned(np.concatenate([tokens, pad]).reshape(blocks, -1))
        self.starts = owned(starts)
        self.widest = int(np.diff(starts).max())

    @property
    def n(self) -> int:
        """The number of tokens that the pattern is made for."""
        return self.starts.shape[0] - 1

    @property
    def connections(self) -> int:
        return int(self.starts[-1])

    @property
    def needs_time(self) -> bool:
        return True

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return False

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        heads = _heads(self)
        points, lw = slots(mu, self.n)
        at = slot(t, self.n)
        q, k, v = _projected(heads, points, x)
        place = self.starts[at][:, None] + jnp.arange(max(self.widest, 1))
        inside = place < self.starts[at + 1][:, None]
        neighbours = jnp.where(inside, self.seen.reshape(-1)[jnp.where(inside, place, 0)], 0)
        hidden = ~inside | (lw[neighbours] == -jnp.inf)
        logits = jnp.einsum("hmk,hmck->hmc", q, k[:, neighbours])
        top = jnp.max(jnp.where(hidden, -jnp.inf, logits), axis=2)
        size = jnp.max(jnp.where(hidden, 0, jnp.abs(logits)), axis=2)
        shares = _shares(heads, logits, top[..., None], size[..., None], jnp.where(hidden, -jnp.inf, lw[neighbours]))
        total = shares.sum(axis=2)
        values = jnp.einsum("hmc,hmce->hme", shares, v[:, neighbours]) / jnp.where(total > 0, total, 1)[..., None]
        return jnp.einsum("hme,hoe->mo", values, heads.W)

    def at_atoms(self, mu: Any) -> Any:
        heads = _heads(self)
        points, lw = slots(mu, self.n)
        # slot n is the one that padded connections lead to: without mass, and nobody asks for it
        points = jnp.concatenate([points, points[:1]])
        lw = jnp.concatenate([lw, jnp.full(1, -jnp.inf, lw.dtype)])
        q, k, v = _projected(heads, points, points)
        values = _along(heads, (self.queries, self.seen), (q, k, v), lw)
        return jnp.einsum("hme,hoe->mo", values, heads.W)[slot(mu.times, self.n)]

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        refuse_off_slots(mu, t, self.n, type(self).__name__)
        if is_traced(self, mu, t):
            return
        n = self.n
        mass = np.zeros(n + 1, bool)
        felt = host(mu.log_weights) > -np.inf
        mass[np.clip(np.round(host(mu.times)[felt] * n).astype(int) - 1, 0, n - 1)] = True
        visible = np.zeros(n + 1, bool)
        visible[host(self.queries)[mass[host(self.seen)]]] = True
        blind = ~visible[np.clip(np.round(host(t) * n).astype(int) - 1, 0, n - 1)]
        if blind.any():
            raise NothingVisibleError(
                got=f"query {int(blind.argmax())}, whose row of the pattern holds no token with mass",
                need="a token to see",
                do="Let every token see itself: pattern | np.eye(n, dtype=bool).",
            )

    def __str__(self) -> str:
        return f"SparseAttention({self.map}, {self.connections} connections)"


def _heads(G: SparseAttention) -> AbstractHeads:
    assert isinstance(G.map, AbstractHeads)  # see __init__
    return G.map


def _projected(heads: AbstractHeads, points: Array, x: Array) -> tuple[Array, Array, Array]:
    q = heads.scale * jnp.einsum("hkd,md->hmk", heads.Q, x)
    return q, jnp.einsum("hkd,nd->hnk", heads.K, points), jnp.einsum("hed,nd->hne", heads.V, points)


def _shares(heads: AbstractHeads, logits: Array, top: Array, size: Array, log_weights: Array) -> Array:
    """What each connection counts, up to a factor of its query: e^{logit}, or 1 at the top, times the mass."""
    # no mass at all: top is −inf, and every share must be 0 and not NaN
    top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0, top))
    if isinstance(heads, HardmaxAttention):
        slack = 8 * jnp.finfo(logits.dtype).eps * size
        return jnp.where(logits >= top - slack, jnp.exp(log_weights), 0)
    return jnp.exp(logits - top + log_weights)


def _along(heads: AbstractHeads, connections: tuple[Array, Array], qkv: tuple[Array, Array, Array], lw: Array) -> Array:
    """Values (h, n + 1, e) of all slots, block after block of connections: first the largest logits, then the sums."""
    q, k, v = qkv
    n1, h = lw.shape[0], q.shape[0]

    fixed_q, fixed_k = jax.lax.stop_gradient((q, k))  # which logit is the largest has no derivative

    def logits(q: Array, k: Array, a: Array, b: Array) -> Array:
        return jnp.einsum("hck,hck->ch", q[:, a], k[:, b])

    def highest(carry: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        a, b = block
        found, felt = logits(fixed_q, fixed_k, a, b), (lw[b] > -jnp.inf)[:, None]
        tops = jax.ops.segment_max(jnp.where(felt, found, -jnp.inf), a, n1, indices_are_sorted=True)
        sizes = jax.ops.segment_max(jnp.where(felt, jnp.abs(found), 0), a, n1, indices_are_sorted=True)
        return (jnp.maximum(carry[0], tops), jnp.maximum(carry[1], sizes)), None

    @jax.checkpoint
    def summed(carry: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        a, b = block
        shares = _shares(heads, logits(q, k, a, b), top[a], size[a], lw[b][:, None])
        values = jax.ops.segment_sum(shares[:, :, None] * v[:, b].transpose(1, 0, 2), a, n1, indices_are_sorted=True)
        return (carry[0] + values, carry[1] + jax.ops.segment_sum(shares, a, n1, indices_are_sorted=True)), None

    none = jnp.full((n1, h), -jnp.inf, q.dtype)
    (top, size), _ = jax.lax.scan(highest, (none, jnp.zeros_like(none)), connections)
    start = jnp.zeros((n1, h, v.shape[2]), q.dtype), jnp.zeros((n1, h), q.dtype)
    (values, total), _ = jax.lax.scan(summed, start, connections)
    return (values / jnp.where(total > 0, total, 1)[..., None]).transpose(1, 0, 2)
