"""`coverage`: how few keys, and how small a part of the mass, hold most of the attention of a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from measureformer.attention.attend import check_one_dimension, refuse_overflow
from measureformer.errors import NothingVisibleError, OptionError, ShapeError, ZeroMassError
from measureformer.numerics.arrays import finite, floats, host
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Extended

LOGITS = 1 << 21
"""Logits that are sorted at once."""
ROUNDING = 1e-12
"""A sum of shares that should be 0.9 may be less by rounding."""


class Coverage(eqx.Module):
    """The fewest keys, and the smallest part of the mass, that hold a share of the attention, per query.

    Splitting an atom in two changes the count, and not the mass, which belongs to the measure.

    Arguments:
        count: the fewest keys whose attention weights sum to the share (k₉₀), (…, m).
        mass: min a(B)/a over parts B of the visible measure whose attention is the share, between 0 and 1, (…, m). B
            takes the keys with the largest logits, the last one in part; for n equal keys, n·mass rounds up to count.

    >>> import numpy as np, measureformer as mf
    >>> mf.coverage(np.zeros((1, 2)), np.ones((10, 2))).count.tolist()
    [9]
    """

    count: Int[np.ndarray, "*h m"]
    mass: Float[np.ndarray, "*h m"]


@checked
def coverage(
    q: ArrayLike,
    k: ArrayLike,
    log_weights: Extended | None = None,
    *,
    times: tuple[Extended, Extended] | None = None,
    share: float = 0.9,
) -> Coverage:
    """How few keys, and how little mass, hold most of the attention of each query.

    Memory is linear: queries are taken in blocks and their logits sorted, in time m·n·log n.

    Arguments:
        q: queries, (…, m, c); leading axes are heads or batches.
        k: keys, (…, n, c).
        log_weights: logarithms of the weights of the keys, (n,) or (…, n); all 0 by default, −inf hides a key.
        times: times of the queries (m,) and of the keys (n,); a query sees the keys whose times are not later.
        share: part of the attention that the keys must hold, between 0 and 1.

    >>> import numpy as np, measureformer as mf
    >>> found = mf.coverage([[0.0]], np.zeros((2, 1)), np.log([1.0, 3.0]))
    >>> found.count.tolist(), found.mass.round(12).tolist()
    ([2], [0.9])
    """
    rows, keys = (np.asarray(host(floats(part, name)), np.float64) for part, name in ((q, "q"), (k, "k")))
    if min(rows.ndim, keys.ndim) < 2 or rows.shape[:-2] != keys.shape[:-2] or 0 in (*rows.shape, *keys.shape):
        raise ShapeError(
            got=f"q and k of shapes {rows.shape} and {keys.shape}",
            need="(…, m, c) and (…, n, c) with the same leading axes, not empty",
            do="Tokens are rows; put heads first.",
        )
    check_one_dimension(rows, keys)
    if not 0 < share < 1:
        raise OptionError(got=f"share = {share}", need="a number between 0 and 1", do="The usual one is 0.9.")
    finite(rows, "q")
    finite(keys, "k")
    (*lead, m, _), n = rows.shape, keys.shape[-2]
    log_a = np.zeros(n) if log_weights is None else np.asarray(host(floats(log_weights, "log_weights")), np.float64)
    if log_a.shape not in ((n,), (*lead, n)):
        raise ShapeError(
            got=f"log_weights of shape {log_a.shape}", need=f"({n},) or {(*lead, n)}", do="Give one log-weight per key."
        )
    if np.isnan(log_a).any() or (log_a == np.inf).any() or (log_a.max(axis=-1) == -np.inf).any():
        raise ZeroMassError(
            got="log_weights with NaN or +inf, or all −inf", need="mass at some key", do="Pass np.log of the weights."
        )
    log_a = np.broadcast_to(log_a, (*lead, n))
    seen = None if times is None else tuple(np.asarray(host(floats(part, "times"))) for part in times)
    count, mass = np.zeros((*lead, m), int), np.zeros((*lead, m))
    for head in np.ndindex(*lead):
        for block in _blocks(m, n):
            visible = None if seen is None else seen[1][None, :] <= seen[0][block, None]
            with np.errstate(over="ignore", invalid="ignore"):
                logits = rows[head][block] @ keys[head].T
            if not np.isfinite(logits).all():
                refuse_overflow(rows, keys)
            found = _covered(logits, log_a[head], visible, share)
            count[head][block], mass[head][block] = found
    return Coverage(count, mass)


def fewest(p: ArrayLike, share: float = 0.9) -> np.ndarray:
    """The fewest entries of each row that sum to the share.

    Arguments:
        p: probabilities, (…, n).
        share: the sum to reach, between 0 and 1.

    >>> fewest([[0.5, 0.45, 0.05], [0.2, 0.2, 0.6]]).tolist()
    [2, 3]
    """
    falling = -np.sort(-np.asarray(p, np.float64), axis=-1)
    return np.asarray(1 + np.sum(np.cumsum(falling, axis=-1)[..., :-1] < share - ROUNDING, axis=-1))


def _blocks(m: int, n: int) -> Iterator[slice]:
    size = max(1, LOGITS // n)
    return (slice(i, i + size) for i in range(0, m, size))


def _covered(logits: np.ndarray, log_a: np.ndarray, visible: Any, share: float) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.broadcast_to(log_a == -np.inf, logits.shape)
    hidden = hidden if visible is None else hidden | ~visible
    if hidden.all(axis=1).any():
        raise NothingVisibleError(
            got=f"query {int(hidden.all(axis=1).argmax())}, which sees no mass",
            need="a key with mass and a time ≤ the query's",
            do="Ask at a later time, or add an earlier token.",
        )
    scores = np.where(hidden, -np.inf, logits + log_a)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    a = np.where(hidden, 0.0, np.exp(log_a - log_a.max()))
    # the density of the attention with respect to the measure is largest where the logit is
    order = np.argsort(-np.where(hidden, -np.inf, logits), axis=1, kind="stable")
    p_sorted, a_sorted = (np.take_along_axis(part, order, axis=1) for part in (p, a))
    p_sum, a_sum = np.cumsum(p_sorted, axis=1), np.cumsum(a_sorted, axis=1)
    last = np.minimum(np.sum(p_sum < share - ROUNDING, axis=1), logits.shape[1] - 1)[:, None]
    p_last, a_last, p_all, a_all = (
        np.take_along_axis(x, last, axis=1)[:, 0] for x in (p_sorted, a_sorted, p_sum, a_sum)
    )
    # the last key is needed in part only
    spare = np.clip((p_all - share) / np.where(p_last > 0, p_last, 1), 0, 1)
    return fewest(p, share), (a_all - spare * a_last) / a_sum[:, -1]
