"""`head_class`: whether a head averages globally or retrieves single patterns."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from measureformer.attention import coverage
from measureformer.errors import DtypeError, NoClosedFormError, OptionError
from measureformer.maps import AbstractInContextMap, Attention, Causal, L2Attention, Residual
from measureformer.maps.heads import AbstractHeads
from measureformer.maps.queries import queries_of
from measureformer.measures import AbstractMeasure, Gaussian, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import floats
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

CLASSES = ("IV", "III", "II", "I")
LIMITS = (1 / 32, 1 / 8, 1 / 2)
"""Shares of the context at which the class changes: N/32, N/8 and N/2 of N tokens."""


class HeadClasses(eqx.Module):
    """The classes of the heads of a layer, and the shares of the context that determine them.

    >>> import numpy as np, measureformer as mf
    >>> G = mf.Attention.head(np.zeros((2, 2)), np.eye(2), np.eye(2))
    >>> mf.memory.head_class(G, mf.Discrete.uniform(np.eye(2))).classes
    ('I',)
    """

    classes: tuple[str, ...] = eqx.field(static=True)
    """"I" (global averages) to "IV" (single patterns), one per head."""
    share: Float[np.ndarray, " h"]
    """Median over the queries of the smallest share of the mass that holds 90 % of the attention."""
    k90: Float[np.ndarray, " h"]
    """Median over the queries of the fewest atoms that hold 90 %; NaN for a measure without atoms."""
    shares: Float[np.ndarray, "h m"]
    counts: Int[np.ndarray, "h m"] | None


@checked
def head_class(
    attention: AbstractInContextMap, mu: AbstractMeasure, x: ArrayLike | None = None, *, share: float = 0.9
) -> HeadClasses:
    """Classes I–IV of the heads of an attention layer: from global averages to the retrieval of single patterns.

    Arguments:
        attention: `Attention` or `L2Attention`, also inside `Residual` and, for a `SpaceTime`, inside `Causal`.
        mu: the context: a measure with atoms, or a `Gaussian` for `Attention`.
        x: queries, (m, d); the tokens of mu by default.
        share: share of the attention that the fewest tokens have to hold.

    Statement   with k the fewest of N softmax weights that sum to 0.9, and k̄ its median over the queries: class I if
                k̄ > N/2, II if N/8 < k̄ ≤ N/2, III if N/32 < k̄ ≤ N/8, IV if k̄ ≤ N/32
    Ref         ramsauer2020, Section 3 and Appendix A.5.1.

    On a measure, k/N becomes the smallest share of the mass that holds 90 % of the attention. Classes are the same for
    equal atoms if 32 divides N, and splitting an atom changes nothing. On N(m, Σ) the share is Φ(Φ⁻¹(0.9) − s),
    s = |Σ^{1/2}Ax|: attention moves the Gaussian by ΣAx, and the likelihood ratio grows along that direction.

    >>> import numpy as np, measureformer as mf
    >>> mu = mf.Discrete.uniform(np.eye(64))
    >>> G = mf.Attention(*(np.stack([a * np.eye(64) for a in scales]) for scales in ((1, 40), (1, 1), (1, 1), (1, 1))))
    >>> found = mf.memory.head_class(G, mu)
    >>> found.classes, found.k90.tolist()
    (('I', 'IV'), [58.0, 1.0])
    """
    layer, causal = attention, False
    while isinstance(layer, (Causal, Residual)):
        causal, layer = causal or isinstance(layer, Causal), layer.map
    if not isinstance(layer, (Attention, L2Attention)):
        raise DtypeError(
            got=f"a {type(layer).__name__}",
            need="softmax attention: mf.Attention or mf.L2Attention, alone or in Residual or Causal",
            do="Take the attention out of the composition; classes are about its weights.",
        )
    attention.check_meets(mu, 0.0 if causal else None)
    if isinstance(mu, Gaussian) and isinstance(layer, Attention):
        shares, counts, weights = _on_gaussian(layer, mu, x, share), None, None
    elif isinstance(mu, AbstractAtomic):
        shares, counts, weights = _on_atoms(layer, mu, x, share, causal=causal)
    else:
        raise NoClosedFormError(
            got=f"{type(layer).__name__} on a {type(mu).__name__}",
            need="a measure with atoms, or softmax attention on a Gaussian",
            do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
        )
    median = np.array([_median(row, weights) for row in shares])
    k90 = np.full(len(shares), np.nan) if counts is None else np.array([_median(row, weights) for row in counts])
    # a median on a limit may exceed it by rounding
    classes = tuple(CLASSES[int(np.sum(part > np.array(LIMITS) + 1e-12))] for part in median)
    return HeadClasses(classes, median, k90.astype(float), shares, counts)


def _on_atoms(layer: AbstractHeads, mu: AbstractAtomic, x: Any, share: float, *, causal: bool) -> Any:
    weights = np.asarray(mu.probabilities()) if x is None else None
    times = None
    if causal:
        if x is not None:
            raise OptionError(
                got="queries for a causal layer",
                need="no queries: each token is its own query, at its time",
                do="Leave x out.",
            )
        assert isinstance(mu, SpaceTime)  # check_meets has refused everything else
        times = np.asarray(mu.times), np.asarray(mu.times)
    rows = np.asarray(mu.points if x is None else queries_of(mu, x, None)[0], np.float64)
    points, scale = np.asarray(mu.points, np.float64), float(layer.scale)
    Q, K = np.asarray(layer.Q, np.float64), np.asarray(layer.K, np.float64)
    q, k = scale * rows @ Q.transpose(0, 2, 1), points @ K.transpose(0, 2, 1)
    if isinstance(layer, L2Attention):
        # −s|q − k|² = 2s⟨q, k⟩ − s|k|² up to a function of the query: one more coordinate
        q = np.concatenate([2 * q, np.ones((*q.shape[:2], 1))], axis=2)
        k = np.concatenate([k, -scale * np.sum(k * k, axis=2, keepdims=True)], axis=2)
    found = coverage(q, k, np.asarray(mu.log_weights), times=times, share=share)
    return found.mass, found.count, weights


def _on_gaussian(layer: Attention, mu: Gaussian, x: Any, share: float) -> np.ndarray:
    from scipy.special import ndtr, ndtri

    if x is None:
        raise OptionError(
            got="a Gaussian context and no queries", need="queries x", do="Draw some: mu.sample(key, n).points."
        )
    rows = np.asarray(queries_of(mu, floats(x, "x"), None)[0], np.float64)
    tilt = np.einsum("hij,mj->hmi", np.asarray(layer.A, np.float64), rows)
    s = np.sqrt(np.maximum(np.einsum("hmi,ij,hmj->hm", tilt, np.asarray(mu.cov, np.float64), tilt), 0.0))
    return ndtr(ndtri(share) - s)


def _median(values: np.ndarray, weights: np.ndarray | None) -> float:
    """The smallest value that at least half of the mass does not exceed."""
    order = np.argsort(values, kind="stable")
    mass = np.full(len(values), 1 / len(values)) if weights is None else weights
    at = int(np.sum(np.cumsum(mass[order]) < 0.5 - 1e-12))
    return float(values[order][min(at, len(values) - 1)])
