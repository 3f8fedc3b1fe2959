"""`Tangent`: a layer as a velocity of tokens on the unit sphere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import at_own_atoms, value
from measureformer.maps.compose import AbstractWrapper
from measureformer.maps.norm import refuse_zero
from measureformer.maps.rows import all_rows
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.base import AbstractMeasure
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import host, namespace
from measureformer.numerics.checked import checked


class Tangent(AbstractWrapper):
    """(mu, x) ↦ |x| Proj_u G(mu/|·|, u) with u = x/|x| and Proj_u y = y − ⟨u,y⟩u: a velocity on the unit sphere.

    `mf.flow(Tangent(G), mu, times)` moves tokens on the sphere, as layers with normalisation do in the limit of
    infinite depth.

    Arguments:
        map: the map G, of a space to itself.

    Statement   ⟨x, Tangent(G)(mu, x)⟩ = 0; homogeneous of degree 1 in x, of degree 0 in the atoms of mu; on the unit
                sphere it is Proj_x G(mu, x). A Runge–Kutta step with this velocity, divided by its norm, is a step of
                the method with projection, of the same order.
    Ref         geshkovski2023.

    >>> import numpy as np, measureformer as mf
    >>> v = mf.Tangent(mf.Attention.head(*[np.eye(2)] * 3))
    >>> v(mf.Discrete.dirac([1.0, 0.0]), [[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]]).tolist()
    [[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]
    """

    map: AbstractInContextMap

    @checked
    def __init__(self, map: AbstractInContextMap) -> None:
        if map.in_dim is not None and map.out_dim(map.in_dim) != map.in_dim:
            raise DimensionMismatchError(
                got=f"{type(map).__name__} from R^{map.in_dim} to R^{map.out_dim(map.in_dim)}",
                need="a map of a space to itself, whose values are projected",
                do="Compose it with mf.Linear first.",
            )
        self.map = map

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        unit = self._unit(mu)
        return _lifted(x, value(self.map, unit, unit.points if at_own_atoms(mu, x, t) else normalized(x), t))

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        refuse_zero(self, mu, x, lambda rows: abs(rows).max(axis=1), "the zero vector")
        self.map.examine(self._unit(mu), normalized(x), t)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return False

    def _unit(self, mu: AbstractMeasure) -> Any:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        return mu.with_points(normalized(mu.points))


def normalized(x: Array) -> Array:
    """Rows divided by their norms."""
    x, xp = host(x), namespace(x)
    return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))


def _lifted(x: Array, drift: Array) -> Array:
    norm = jnp.sqrt(jnp.sum(x * x, axis=1, keepdims=True))
    unit = x / norm
    # without the projection x/|x| moves in the same way, but norms grow like e^t
    return norm * (drift - jnp.sum(drift * unit, axis=1, keepdims=True) * unit)
