"""Where rescaled tokens end: the token that each one follows, and the vertices of their hull."""

from __future__ import annotations

import numpy as np

from measureformer.errors import DtypeError
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

LOGITS = 1 << 22
"""Logits that `leaders` holds in memory at a time."""


@checked
def leaders(G: Attention | Rescaled, mu: Discrete) -> tuple[np.ndarray, np.ndarray]:
    """For every token, the token it attends to most, and the share of its attention there.

    Arguments:
        G: one softmax head, or `mf.Rescaled` of one at the time of mu.
        mu: the tokens.

    >>> import measureformer as mf
    >>> G = mf.Rescaled(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), time=1.0)
    >>> index, share = mf.clustering.leaders(G, mf.Discrete.uniform([[-1.0], [0.0], [1.0]]))
    >>> index[[0, 2]].tolist(), share.round(3).tolist()
    ([0, 2], [0.999, 0.333, 0.999])
    """
    if isinstance(G, Attention) and G.Q.shape[0] != 1:
        raise DtypeError(
            got=f"G = {G}",
            need="one softmax head",
            do="Pass mf.Attention.head(Q, K, V).",
        )
    concrete((G, mu), "leaders")
    G.check_meets(mu, None)
    A, points = np.asarray(G.logits if isinstance(G, Rescaled) else G.A[0]), np.asarray(mu.points)
    q, k, lw = points @ A.T, points - points.mean(axis=0), np.asarray(mu.log_weights)
    rows = max(1, LOGITS // len(points))
    index, share = np.zeros(len(points), int), np.zeros(len(points))
    for start in range(0, len(points), rows):
        here = slice(start, start + rows)
        logits = q[here] @ k.T + lw
        index[here] = logits.argmax(axis=1)
        share[here] = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return index, share


@checked
def polytope_vertices(points: ArrayLike) -> np.ndarray:
    """Indices of the points that are vertices of their convex hull, in increasing order.

    Arguments:
        points: a cloud (n, d), which may lie in a subspace.

    Cost        that of Qhull, about n^{d/2}: for dimensions up to 8 or so.

    >>> import measureformer as mf
    >>> mf.clustering.polytope_vertices([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]]).tolist()
    [0, 1, 2]
    """
    from scipy.spatial import ConvexHull

    concrete(points, "polytope_vertices")
    X = np.asarray(checked_points(points), np.float64)
    X = X - X.mean(axis=0)
    _, sizes, axes = np.linalg.svd(X, full_matrices=False)
    rank = int((sizes > max(X.shape) * np.finfo(np.float64).eps * sizes[0]).sum()) if sizes[0] > 0 else 0
    if rank == 0:
        return np.array([0])
    flat = X @ axes[:rank].T
    if rank == 1:
        return np.unique([flat[:, 0].argmin(), flat[:, 0].argmax()])
    return np.sort(ConvexHull(flat).vertices)
