"""`attention_sparsity`: on how few tokens probabilities rest; `matrix_sizes`: norms and stable ranks of matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.attention.coverage import fewest
from measureformer.errors import OptionError, ShapeError
from measureformer.numerics.arrays import finite, floats, host
from measureformer.numerics.types import ArrayLike


@dataclass(frozen=True)
class Sparsity:
    """Measures of probabilities along the last axis, of T visible tokens; see `attention_sparsity`."""

    visible: np.ndarray
    """T, the number of visible tokens."""
    entropy: np.ndarray
    """H = −Σ s log s."""
    effective: np.ndarray
    """e^H, between 1 and T."""
    participation: np.ndarray
    """1/Σ s², between 1 and T."""
    k90: np.ndarray
    """The fewest tokens that hold 90 % together."""
    largest: np.ndarray
    gini: np.ndarray
    """0 if all are equal, 1 − 1/T for one token."""
    negligible: np.ndarray
    """Share of the visible tokens with s < 1/(10T)."""


def attention_sparsity(s: ArrayLike, visible: ArrayLike | None = None) -> Sparsity:
    """Entropy, participation ratio, k₉₀, Gini index, … of attention probabilities.

    Arguments:
        s: probabilities along the last axis, (…, T).
        visible: mask of the tokens that count, broadcast to the shape of s; all by default.

    >>> import measureformer as mf
    >>> found = attention_sparsity([[0.25] * 4, [1.0, 0, 0, 0]])
    >>> found.effective.tolist(), found.participation.tolist(), found.k90.tolist(), found.gini.tolist()
    ([4.0, 1.0], [4.0, 1.0], [4, 1], [0.0, 0.75])
    """
    s = np.asarray(host(floats(s, "s")), np.float64)
    finite(s, "s")
    mask = np.broadcast_to(True if visible is None else np.asarray(visible, bool), s.shape)
    total = np.where(mask, s, 0).sum(axis=-1) if s.ndim else np.zeros(1)
    if s.ndim == 0 or (s < 0).any() or np.abs(total - 1).max(initial=0) > 1e-6 or not mask.any(axis=-1).all():
        raise OptionError(
            got=f"rows of shape {s.shape} with sums from {total.min():g} to {total.max():g}",
            need="probabilities along the last axis, which sum to 1 over the visible tokens",
            do="Pass the softmax weights, one query in each row.",
        )
    s = np.where(mask, s, 0)
    T = mask.sum(axis=-1)
    entropy = -np.sum(s * np.log(np.where(s > 0, s, 1)), axis=-1)
    falling = -np.sort(-s, axis=-1)
    # hidden tokens come last in this order and add nothing
    rank = np.arange(1, s.shape[-1] + 1)
    parts = {
        "visible": T,
        "entropy": np.maximum(entropy, 0.0),
        "effective": np.exp(np.maximum(entropy, 0.0)),
        "participation": 1 / np.sum(s**2, axis=-1),
        "k90": fewest(s),
        "largest": falling[..., 0],
        "gini": 1 + 1 / T - 2 * np.sum(rank * falling, axis=-1) / T,
        "negligible": np.sum(mask & (s < 1 / (10 * T[..., None])), axis=-1) / T,
    }
    return Sparsity(**{name: np.asarray(value) for name, value in parts.items()})


@dataclass(frozen=True)
class Sizes:
    """Norms of matrices in the last two axes; see `matrix_sizes`."""

    frobenius: np.ndarray
    spectral: np.ndarray
    nuclear: np.ndarray
    stable_rank: np.ndarray
    """‖W‖_F²/‖W‖₂², between 1 and the rank; 0 for W = 0."""


def matrix_sizes(W: ArrayLike) -> Sizes:
    """Frobenius, spectral and nuclear norms and stable ranks of matrices, such as A = KᵀQ of the heads of a layer.

    Arguments:
        W: matrices in the last two axes, (…, k, q).

    >>> import jax, numpy as np, measureformer as mf
    >>> matrix_sizes(np.diag([3.0, 4.0])).nuclear.tolist()
    7.0
    >>> G = mf.Attention.random(jax.random.key(0), 8, heads=2)
    >>> matrix_sizes(G.A).stable_rank.shape
    (2,)
    """
    W = np.asarray(host(floats(W, "W")), np.float64)
    finite(W, "W")
    if W.ndim < 2 or 0 in W.shape:
        raise ShapeError(got=f"W of shape {W.shape}", need="(…, k, q)", do="Pass a matrix, or a stack of matrices.")
    values = np.linalg.svd(W, compute_uv=False)
    square, top = np.sum(values**2, axis=-1), values[..., 0]
    ratio = np.sum((values / np.where(top > 0, top, 1)[..., None]) ** 2, axis=-1)
    return Sizes(*map(np.asarray, (np.sqrt(square), top, np.sum(values, axis=-1), ratio)))
