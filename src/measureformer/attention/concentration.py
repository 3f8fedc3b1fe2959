"""`concentration`: on how many keys the attention of a query rests."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention.attend import Method, attend
from measureformer.numerics.arrays import common_dtype, floats, host, namespace, on_device, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Extended


class Concentration(eqx.Module):
    """How concentrated the weights p_j = a_j e^{⟨q,k_j⟩}/Z are, per query.

    Splitting an atom in two changes the first two, which count keys, and not the third, which belongs to the measure.

    Arguments:
        effective_size: 1/Σ p_j², the number of equal weights with the same sum of squares, between 1 and n, (…, m).
        entropy: −Σ p_j log p_j, between 0 and log n, (…, m).
        divergence: Σ p_j log(p_j A/a_j), A = Σ a_j, relative entropy to the normalised measure, at least 0, (…, m).

    >>> import numpy as np, measureformer as mf
    >>> mf.concentration(np.array([[100.0]]), np.array([[0.0], [1.0]])).effective_size.tolist()
    [1.0]
    """

    effective_size: Float[Array, "*h m"]
    entropy: Float[Array, "*h m"]
    divergence: Float[Array, "*h m"]


@checked
def concentration(
    q: ArrayLike,
    k: ArrayLike,
    log_weights: Extended | None = None,
    *,
    times: tuple[Extended, Extended] | None = None,
    method: Method = "auto",
) -> Concentration:
    """Effective sample size, entropy and relative entropy of the attention weights of every query, in linear memory.

    With ⟨·⟩ the average under p, the entropy is log Z − ⟨q, ⟨k⟩⟩ − ⟨log a⟩, and Σ p² = Z'/Z² where Z' has doubled
    logits and doubled log-weights. These differences lose digits where logits are large: the error is a few units of
    roundoff times the largest logit, 0.1 in float32 at logits of 10⁶.

    Arguments:
        q: queries, (…, m, c); leading axes are heads or batches.
        k: keys, (…, n, c).
        log_weights: logarithms of the weights of the keys, (n,) or (…, n); all 0 by default, −inf hides a key.
        times: times of the queries (m,) and of the keys (n,); a query sees the keys whose times are not later.
        method: as in `attend`.

    >>> import numpy as np, measureformer as mf
    >>> spread = mf.concentration(np.zeros((1, 2)), np.eye(2))
    >>> spread.effective_size.tolist(), spread.entropy.round(4).tolist(), spread.divergence.tolist()
    ([2.0], [0.6931], [0.0])
    """
    rows, keys = floats(q, "q"), floats(k, "k")
    if keys.ndim < 2:
        shaped(keys, "k", "n k")
    weights = np.zeros(keys.shape[-2], keys.dtype) if log_weights is None else floats(log_weights, "log_weights")
    xp = namespace(rows, keys, weights, times)
    dtype = common_dtype(rows, keys, weights)
    rows, keys, weights = (host(array).astype(dtype) for array in (rows, keys, weights))
    # a key without mass never counts, and 0 · (−inf) would
    finite_weights = xp.where(weights == -np.inf, 0, weights)
    columns = xp.broadcast_to(finite_weights, keys.shape[:-1])[..., None]
    first = attend(rows, keys, xp.concatenate([keys, columns], axis=-1), weights, times=times, method=method)
    doubled = attend(2 * rows, keys, columns, 2 * weights, times=times, method=method)
    # the mass that a query sees is what a query of zero finds; without a mask all see the same
    blank = xp.zeros_like(rows if times is not None else rows[..., :1, :])
    whole = attend(blank, keys, columns, weights, times=times, method=method)
    values, log_z = host(first.values), host(first.log_normalizer)
    logit, log_a = (rows * values[..., :-1]).sum(axis=-1), values[..., -1]
    # rounding must not make a size below 1 or an entropy negative
    sizes = 2 * log_z - host(doubled.log_normalizer), log_z - logit - log_a, logit - log_z + host(whole.log_normalizer)
    size, entropy, divergence = (xp.maximum(part, 0) for part in sizes)
    return Concentration(*map(on_device, (xp.exp(size), entropy, divergence)))
