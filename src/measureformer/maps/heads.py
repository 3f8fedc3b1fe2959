"""`AbstractHeads`: what all attention maps share. Stacked heads, projections, dispatch on the kind of measure."""

from __future__ import annotations

import abc
import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.measures.spacetime import Prefixes
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, scalar, shaped
from measureformer.numerics.random import normal


class AbstractHeads(AbstractInContextMap):
    """Attention with stacked heads: Q, K (h, k, d), V (h, e, d), W (h, d_out, e), logits scale · ⟨Qx, Ky⟩.

    The value is Σ_h W_h ∫ (kernel of head h at (x, y)) V_h y dmu(y). `head` builds one head from matrices, `random`
    draws Gaussian heads. `scale` is usually 1, as in the theory, or 1/√k, as in trained models.
    """

    Q: Float[Array, "h k d"]
    K: Float[Array, "g k d"]
    V: Float[Array, "g e d"]
    W: Float[Array, "h o e"]
    scale: Float[Array, ""]

    def __init__(self, Q: Any, K: Any, V: Any, W: Any, *, scale: Any = 1.0) -> None:
        stacks = [shaped(floats(a, name), name, "h i j") for name, a in zip("QKVW", (Q, K, V, W), strict=True)]
        for name, stack in zip("QKVW", stacks, strict=True):
            finite(stack, name)
        Q, K, V, W = stacks
        matching = Q.shape[0] == W.shape[0] and K.shape[0] == V.shape[0] and self._may_share(Q.shape[0], K.shape[0])
        if not matching or Q.shape[1:] != K.shape[1:] or V.shape[2] != Q.shape[2] or W.shape[2] != V.shape[1]:
            raise DimensionMismatchError(
                got=f"Q, K, V, W of shapes {', '.join(str(stack.shape) for stack in stacks)}",
                need="(h, k, d), (h, k, d), (h, e, d), (h, d_out, e)",
                do="Stack heads along the first axis; for one head use .head(Q, K, V).",
            )
        self.Q, self.K, self.V, self.W = cast([owned(stack) for stack in stacks], common_dtype(stacks))
        self.scale = scalar(scale, "scale")

    def _may_share(self, heads: int, groups: int) -> bool:
        """Whether so many heads can have so many keys and values."""
        return heads == groups

    @classmethod
    def head(cls, Q: Any, K: Any, V: Any, **settings: Any) -> Self:
        """One head from matrices Q, K (k, d) and V (e, d); its values are ∫ … V y dmu, of dimension e."""
        Q, K, V = (shaped(floats(a, name), name, "i j") for name, a in zip("QKV", (Q, K, V), strict=True))
        return cls(Q[None], K[None], V[None], np.eye(V.shape[0], dtype=V.dtype)[None], **settings)

    @classmethod
    def random(cls, key: Any, dim: int, *, heads: int = 1, head_dim: int | None = None, **settings: Any) -> Self:
        """Gaussian heads from R^dim to itself, scaled so that logits and values of unit tokens are of order 1."""
        if min(dim, heads, 1 if head_dim is None else head_dim) < 1:
            raise OptionError(
                got=f"dim = {dim}, heads = {heads}, head_dim = {head_dim}",
                need="positive integers",
                do="Pass sizes ≥ 1; without head_dim the heads share the dimension.",
            )
        k = max(1, dim // heads) if head_dim is None else head_dim
        draws = normal(key, (4, heads, k, dim))
        Q, K, V = draws[:3] / math.sqrt(dim)
        return cls(Q, K, V, draws[3].transpose(0, 2, 1) / math.sqrt(heads * k), **settings)

    @property
    def in_dim(self) -> int:
        return self.Q.shape[2]

    def out_dim(self, dim: int) -> int:
        return self.W.shape[1]

    def __str__(self) -> str:
        count = self.Q.shape[0]
        return f"{type(self).__name__}[{count} head{'s' if count > 1 else ''}]"

    @property
    def A(self) -> Float[Array, "h d d"]:
        """scale · KᵀQ of each head: the logit of query x and token y is ⟨Ax, y⟩."""
        return self.scale * jnp.einsum("hki,hkj->hij", self.K, self.Q)

    @abc.abstractmethod
    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Any) -> Float[Array, "h m e"]:
        """Values of the heads on a measure with atoms, before W; t is given if and only if mu is masked."""

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Float[Array, "h m e"]:
        """Values of the heads on a Gaussian or mixture in closed form, before W; refused where there is none."""
        raise no_closed_form(self, mu)

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        if isinstance(mu, AbstractGaussianLike):
            values = self.on_gaussian(mu, x)
        else:
            values = self.on_atoms(mu, x, t if isinstance(mu, Prefixes) else None)
        return jnp.einsum("hme,hoe->mo", values, self.W)

    def project(self, mu: AbstractAtomic, x: Array) -> tuple[Array, Array, Array]:
        """scale·Qx (h, m, k), Ky (h, n, k), Vy (h, n, e)."""
        q = self.scale * jnp.einsum("hkd,md->hmk", self.Q, x)
        return q, jnp.einsum("hkd,nd->hnk", self.K, mu.points), jnp.einsum("hed,nd->hne", self.V, mu.points)


def mask_times(mu: AbstractAtomic, t: Any) -> tuple[Array, Array] | None:
    """The pair (query times, atom times) that the engine masks by, for causal contexts."""
    return (t, mu.times) if isinstance(mu, Prefixes) else None
