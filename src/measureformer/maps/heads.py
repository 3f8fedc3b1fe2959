"""`AbstractHeads`: what all attention maps share. Stacked heads, projections, dispatch on the kind of measure."""

from __future__ import annotations

import abc
import math
from typing import Any, Self
from typing import cast as cast_type

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, scalar, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.random import normal
from measureformer.numerics.types import ArrayLike, Key, Size


class AbstractHeads(AbstractInContextMap):
    """Attention with stacked heads: Σ_h W_h ∫ (kernel of head h at (x, y)) V_h y dmu(y), logits scale · ⟨Qx, Ky⟩.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.
    """

    Q: Float[Array, "h k d"]
    K: Float[Array, "g k d"]
    V: Float[Array, "g e d"]
    W: Float[Array, "h o e"]
    scale: Float[Array, ""]

    def __init__(self, Q: ArrayLike, K: ArrayLike, V: ArrayLike, W: ArrayLike, *, scale: ArrayLike = 1.0) -> None:
        stacks = [shaped(floats(a, name), name, "h i j") for name, a in zip("QKVW", (Q, K, V, W), strict=True)]
        for name, stack in zip("QKVW", stacks, strict=True):
            finite(stack, name)
        (h, *of_queries), (g, *of_keys), (of_values, e, d), (of_outputs, _, columns) = (s.shape for s in stacks)
        matching = h == of_outputs and g == of_values and self._may_share(h, g)
        if not matching or of_queries != of_keys or d != of_queries[1] or columns != e:
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
    # the settings are those of the constructor of the class, which differ
    def head(cls, Q: ArrayLike, K: ArrayLike, V: ArrayLike, **settings: Any) -> Self:
        """One head from matrices, with values ∫ … V y dmu.

        Arguments:
            Q: query matrix, (k, d).
            K: key matrix, (k, d).
            V: value matrix, (e, d).
            settings: keyword arguments of the constructor, such as `scale`.
        """
        q, k, v = (shaped(floats(a, name), name, "i j") for name, a in zip("QKV", (Q, K, V), strict=True))
        return cls(q[None], k[None], v[None], np.eye(v.shape[0], dtype=v.dtype)[None], **settings)

    @classmethod
    # as above
    @checked
    def random(cls, key: Key, dim: Size, *, heads: Size = 1, head_dim: Size | None = None, **settings: Any) -> Self:
        """Gaussian heads from R^dim to itself, scaled so that logits and values of unit tokens are of order 1.

        Arguments:
            key: a JAX random key.
            dim: dimension of the tokens.
            heads: number of heads.
            head_dim: dimension k of queries and keys; dim/heads by default, at least 1.
            settings: keyword arguments of the constructor, such as `scale`.
        """
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
    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Float[Array, "h m e"]:
        """Values of the heads on a measure with atoms, before W.

        Arguments:
            mu: the context.
            x: queries, (m, d).
            t: times of the queries, (m,), or None off space–time; `mu.visible(t)` says what a mask hides.
        """

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Float[Array, "h m e"]:
        """Values of the heads on a Gaussian or mixture in closed form, before W; refused where there is none.

        Arguments:
            mu: the context.
            x: queries, (m, d).
        """
        raise no_closed_form(self, mu)

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if isinstance(mu, AbstractGaussianLike):
            values = self.on_gaussian(mu, x)
        else:
            values = self.on_atoms(cast_type(AbstractAtomic, mu), x, t)
        return jnp.einsum("hme,hoe->mo", values, self.W)

    def project(self, mu: AbstractAtomic, x: Array) -> tuple[Array, Array, Array]:
        """scale·Qx (h, m, k), Ky (h, n, k), Vy (h, n, e).

        Arguments:
            mu: the context, whose atoms are the y.
            x: queries, (m, d).
        """
        q = self.scale * jnp.einsum("hkd,md->hmk", self.Q, x)
        return q, jnp.einsum("hkd,nd->hnk", self.K, mu.points), jnp.einsum("hed,nd->hne", self.V, mu.points)
