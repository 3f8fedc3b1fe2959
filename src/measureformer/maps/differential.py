"""`DifferentialAttention`: the difference of two softmax heads with the same values."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from measureformer.maps.attention import Attention
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype, floats, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


class DifferentialAttention(AbstractHeads):
    """Softmax attention minus a multiple of another one: Σ_h W_h (Γ_{Q_h, K_h} − weight · Γ_{Q'_h, K'_h}), shared V.

    What both look at cancels. It is the difference of two `Attention` maps, and has their closed forms.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        minus: queries and keys of what is subtracted, a pair of stacks (h, k, d).
        weight: its factor, λ in the paper.
        scale: factor of all logits.

    Statement   on N(m, Σ): x ↦ Σ_h W_h V_h ((1 − weight) m + Σ (A_h − weight A'_h) x)
    Ref         ye2024, Section 2.1.

    >>> import measureformer as mf
    >>> one, zero = [[[1.0]]], [[[0.0]]]
    >>> G = mf.DifferentialAttention(one, one, one, one, minus=(zero, zero), weight=0.5)
    >>> G(mf.Gaussian([1.0], [[2.0]]), [3.0]).tolist()
    [6.5]
    """

    Q_minus: Float[Array, "h k d"]
    K_minus: Float[Array, "h k d"]
    weight: Float[Array, ""]

    @checked
    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        minus: tuple[ArrayLike, ArrayLike],
        weight: ArrayLike = 0.8,
        scale: ArrayLike = 1.0,
    ) -> None:
        super().__init__(Q, K, V, W, scale=scale)
        parts: list[Any] = [*minus, V, W]
        second, dtype = Attention(*parts), common_dtype(self.Q, *map(floats, minus, ("Q", "K")))
        self.Q, self.K, self.V, self.W = cast((self.Q, self.K, self.V, self.W), dtype)
        self.Q_minus, self.K_minus = cast((second.Q, second.K), dtype)
        self.weight = scalar(weight, "weight")

    @property
    def both(self) -> tuple[Attention, Attention]:
        """What is added and what is subtracted, before the factor."""
        first = Attention(self.Q, self.K, self.V, self.W, scale=self.scale)
        return first, Attention(self.Q_minus, self.K_minus, self.V, self.W, scale=self.scale)

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        first, second = (G.on_atoms(mu, x, t) for G in self.both)
        return first - self.weight * second

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        first, second = (G.on_gaussian(mu, x) for G in self.both)
        return first - self.weight * second

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return isinstance(mu, Gaussian)
