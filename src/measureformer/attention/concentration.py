"""`concentration`: on how many keys the attention of a query rests."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention.attend import Method, attend
from measureformer.numerics.arrays import common_dtype, floats, host, namespace, on_device


class Concentration(eqx.Module):
    """How concentrated the weights p_j = a_j e^{⟨q,k_j⟩}/Z are, per query.

    Splitting an atom in two changes the first two, which count keys, and not the third, which belongs to the measure.

    >>> import numpy as np, measureformer as mf
    >>> mf.concentration(np.array([[100.0]]), np.array([[0.0], [1.0]])).effective_size.tolist()
    [1.0]
    """

    effective_size: Float[Array, "*h m"]
    """1/Σ p_j²: the number of equal weights with the same sum of squares, between 1 and n."""
    entropy: Float[Array, "*h m"]
    """−Σ p_j log p_j, between 0 and log n."""
    divergence: Float[Array, "*h m"]
    """Σ p_j log(p_j A/a_j), A = Σ a_j: relative entropy of the attention to the normalised measure, at least 0."""


def concentration(
    q: Any, k: Any, log_weights: Any = None, *, times: Any = None, method: Method = "auto"
) -> Concentration:
    """Effective sample size, entropy and relative entropy of the attention weights of every query, in linear memory.

    The arguments are those of `attend`. Two streams suffice: with ⟨·⟩ the average under p, the entropy is
    log Z − ⟨q, ⟨k⟩⟩ − ⟨log a⟩, and Σ p² = Z'/Z² where Z' has doubled logits and doubled log-weights.

    >>> import numpy as np, measureformer as mf
    >>> spread = mf.concentration(np.zeros((1, 2)), np.eye(2))
    >>> spread.effective_size.tolist(), spread.entropy.round(4).tolist(), spread.divergence.tolist()
    ([2.0], [0.6931], [0.0])
    """
    q, k = floats(q, "q"), floats(k, "k")
    weights = np.zeros(k.shape[-2], k.dtype) if log_weights is None else floats(log_weights, "log_weights")
    xp = namespace(q, k, weights, times)
    dtype = common_dtype(q, k, weights)
    q, k, weights = (host(array).astype(dtype) for array in (q, k, weights))
    # a key without mass never counts, and 0 · (−inf) would
    finite_weights = xp.where(weights == -np.inf, 0, weights)
    columns = xp.broadcast_to(finite_weights, k.shape[:-1])[..., None]
    first = attend(q, k, xp.concatenate([k, columns], axis=-1), weights, times=times, method=method)
    doubled = attend(2 * q, k, columns, 2 * weights, times=times, method=method)
    # the mass that a query sees is what a query of zero finds; without a mask all see the same
    blank = xp.zeros_like(q if times is not None else q[..., :1, :])
    whole = attend(blank, k, columns, weights, times=times, method=method)
    values, log_z = host(first.values), host(first.log_normalizer)
    logit, log_a = (q * values[..., :-1]).sum(axis=-1), values[..., -1]
    # rounding must not make a size below 1 or an entropy negative
    sizes = 2 * log_z - host(doubled.log_normalizer), log_z - logit - log_a, logit - log_z + host(whole.log_normalizer)
    size, entropy, divergence = (xp.maximum(part, 0) for part in sizes)
    return Concentration(*map(on_device, (xp.exp(size), entropy, divergence)))
