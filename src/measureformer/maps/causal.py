"""`Causal`: a map on space–time behind a mask."""

from __future__ import annotations

from typing import cast

from jaxtyping import Array

from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.call import value
from measureformer.maps.compose import AbstractWrapper
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure, SpaceTime
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.checked import check_fields


class Causal(AbstractWrapper):
    """Causal mask: a query at time t sees, in every layer inside, only the atoms with times ≤ t.

    For one layer, one of your own included, Causal(G)(sigma, x, t) = G(sigma restricted to times ≤ t, x). For a
    composition each layer is masked, as in a decoder: Causal(G2 @ G1) = Causal(G2) @ Causal(G1). Tokens with equal
    times see each other.

    Arguments:
        map: the map to mask.

    Statement   Γ[σ](x,t) = ∫ 1_{s≤t} e^{⟨Qx,Ky⟩} V y dσ(y,s) / ∫ 1_{s≤t} e^{⟨Qx,Ky⟩} dσ(y,s)
    Ref         furuya2024.

    >>> import measureformer as mf
    >>> G = mf.Causal(mf.Attention.head([[1.0]], [[1.0]], [[1.0]]))
    >>> sigma = mf.SpaceTime.uniform([[0.0], [1.0]], times=[0.5, 1.0])
    >>> G(sigma, [[0.0], [0.0]], [0.5, 1.0]).tolist()
    [[0.0], [0.5]]
    """

    map: AbstractInContextMap

    def __check_init__(self) -> None:
        check_fields(self)

    @property
    def needs_time(self) -> bool:
        return True

    @property
    def masks(self) -> bool:
        return True

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        # `check_meets` has refused measures without times
        return value(self.map, cast(SpaceTime, mu).masked(), x, t)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return False
