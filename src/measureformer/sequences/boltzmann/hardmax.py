"""`hardmax_collision`: two contexts that one layer of hard attention cannot distinguish."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from measureformer.errors import ShapeError
from measureformer.maps.heads import AbstractHeads
from measureformer.numerics.arrays import finite, floats, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@dataclass(frozen=True, eq=False)
class Collision:
    """A token and two of its contexts that a layer of hard attention cannot distinguish.

    >>> import measureformer as mf
    >>> found = mf.sequences.hardmax_collision([[1.0], [1.5], [2.0]], 2)
    >>> found.token.tolist(), found.first.tolist(), found.second.tolist()
    ([2.0], [[1.0], [2.0]], [[1.5], [2.0]])
    """

    token: np.ndarray
    first: np.ndarray
    """(n, d)"""
    second: np.ndarray


@checked
def hardmax_collision(tokens: ArrayLike, n: int, heads: AbstractHeads | None = None) -> Collision | None:
    """Find two contexts of a token for which one layer of hard attention gives it the same value, or None.

    Each head shows a query one token of its context, so contexts that differ only in the others are the same to it.

    Arguments:
        tokens: the vocabulary, (V, d).
        n: number of tokens in a context, at most V.
        heads: attention heads on R^d; by default one head whose keys and queries are the tokens themselves.

    Ref         kajitsuka2024, Theorem 1.

    >>> import jax, numpy as np, measureformer as mf
    >>> circle = np.stack([np.cos(np.arange(5)), np.sin(np.arange(5))], axis=1)
    >>> heads = mf.Attention.random(jax.random.key(0), 2)
    >>> mf.sequences.hardmax_collision(circle, 3, heads) is not None
    True
    """
    V = np.asarray(floats(tokens, "tokens"), float)
    finite(V, "tokens")
    if V.ndim != 2 or len(V) < positive_int(n, "n"):
        raise ShapeError(got=f"tokens of shape {V.shape}", need=f"(V, d) with V ≥ n = {n}", do="Tokens are rows.")
    A = np.eye(V.shape[1])[None] if heads is None else np.asarray(heads.A, float)
    scores = np.einsum("xi,hij,yj->hyx", V, A, V)  # [head, query, key]: ⟨A query, key⟩
    contexts = np.array(list(itertools.combinations(range(len(V)), n)))
    for query in range(len(V)):
        mine = contexts[(contexts == query).any(axis=1)]
        # the tokens that each head picks, several in a tie: all that the layer sees of a context
        among = scores[:, query][:, mine]
        picks = [
            tuple(sorted(set(map(int, c[s == s.max()]))) for s in a)
            for a, c in zip(among.transpose(1, 0, 2), mine, strict=True)
        ]
        met: dict[str, np.ndarray] = {}
        for pick, context in zip(map(str, picks), mine, strict=True):
            if pick in met:
                return Collision(V[query], V[met[pick]], V[context])
            met[pick] = context
    return None
