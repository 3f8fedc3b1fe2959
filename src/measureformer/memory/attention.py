"""A memory as attention, and a head of attention as a memory of its keys."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.memory.base import rows_of
from measureformer.memory.modern import Modern
from measureformer.numerics.arrays import host, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def as_attention(memory: Modern) -> Attention:
    """The layer whose values in the context `memory.mu` are the updates: Q = K = V = I, logits β⟨x, ξ⟩.

    Arguments:
        memory: patterns and inverse temperature; β becomes the scale of the layer.

    >>> import numpy as np, measureformer as mf
    >>> memory = mf.memory.Modern.store(np.eye(3), beta=2.0)
    >>> G = mf.memory.as_attention(memory)
    >>> bool(abs(G(memory.mu, [1.0, 0.5, 0.0]) - memory.update([1.0, 0.5, 0.0])).max() < 1e-14)
    True
    """
    one = np.eye(memory.dim, dtype=memory.patterns.dtype)
    return Attention.head(one, one, one, scale=memory.beta)


class HeadMemory(eqx.Module):
    """An attention head in a context, as a memory of keys: value at x = `readout` · memory.update(`queries` · x).

    >>> import jax, numpy as np, measureformer as mf
    >>> G = mf.Attention.random(jax.random.key(0), 3)
    >>> mu = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(5, 3)))
    >>> head = mf.memory.as_memory(G, mu)
    >>> head.defect < 1e-9, bool(abs(head([1.0, 0.0, 2.0]) - G(mu, [1.0, 0.0, 2.0])).max() < 1e-9)
    (True, True)
    """

    memory: Modern
    """Patterns K y, with the masses of the tokens y, at β = scale."""
    queries: Float[Array, "k d"]
    """Q."""
    readout: Float[Array, "o k"]
    """W V K⁺."""
    defect: float
    """|V − V K⁺K|/|V|: 0 if values are a linear function of the keys, so that the formula above is exact."""

    def __call__(self, x: ArrayLike) -> Array:
        """The value of the head at queries x, (d,) or (m, d)."""
        rows, single = rows_of(x, self.queries.shape[1], "query")
        found = host(self.memory.update(host(rows) @ host(self.queries).T)) @ host(self.readout).T
        return on_device(found[0] if single else found)


@checked
def as_memory(attention: Attention, mu: Discrete, *, head: int = 0) -> HeadMemory:
    """One head of a layer in the context mu as a memory, whose patterns are its keys.

    Arguments:
        attention: softmax attention with a positive scale.
        mu: the context.
        head: number of the head, from 0.

    Statement   softmax(β Qx·(KY)ᵀ) V Y = B f(Qx) with the memory f of the keys K Y and V = B K
    Ref         ramsauer2020, Section 2 and Appendix A.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[2.0]], [[1.0]], [[3.0]])
    >>> head = mf.memory.as_memory(G, mf.Discrete.uniform([[0.0], [1.0]]))
    >>> head.readout.tolist(), head.queries.tolist()
    ([[3.0]], [[2.0]])
    """
    attention.check_meets(mu, None)
    if not 0 <= head < attention.Q.shape[0]:
        raise OptionError(
            got=f"head = {head}", need=f"a head from 0 to {attention.Q.shape[0] - 1}", do="Heads are counted from 0."
        )
    Q, K, V, W = (np.asarray(part)[head] for part in (attention.Q, attention.K, attention.V, attention.W))
    if not float(attention.scale) > 0:
        raise OptionError(got=f"scale = {float(attention.scale):g}", need="scale > 0", do="Turn the sign of Q instead.")
    inverse = np.linalg.pinv(K)
    defect = float(np.linalg.norm(V - V @ inverse @ K) / max(np.linalg.norm(V), np.finfo(V.dtype).tiny))
    keys = mu.push(lambda y: np.asarray(y) @ K.T)
    return HeadMemory(Modern(keys, attention.scale), on_device(Q), on_device(W @ V @ inverse), defect)
