"""Normalisations: maps of the point alone that put tokens on an ellipsoid."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError, ZeroVectorError
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, host, owned, scalar, shaped


class LayerNorm(AbstractInContextMap):
    """x ↦ weight ⊙ (x − x̄)/√(var(x) + eps) + bias, mean and variance over the coordinates of one token.

    >>> import measureformer as mf
    >>> F = mf.LayerNorm([1.0, 1.0], eps=0.0)
    >>> F(mf.Discrete.dirac([0.0, 1.0]), [1.0, 3.0]).tolist()
    [-1.0, 1.0]
    """

    weight: Float[Array, " d"]
    bias: Float[Array, " d"]
    eps: Float[Array, ""]

    def __init__(self, weight: Any, bias: Any = None, *, eps: Any = 1e-5) -> None:
        self.weight, self.bias = _vectors(weight, bias)
        self.eps = _eps(eps)

    @property
    def in_dim(self) -> int:
        return self.weight.shape[0]

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        return self.weight * _divided(centred, jnp.mean(centred**2, axis=1, keepdims=True) + self.eps) + self.bias

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        if float(self.eps) == 0:
            refuse_zero(self, mu, x, lambda rows: rows.max(axis=1) - rows.min(axis=1), "a token with equal coordinates")


class RMSNorm(AbstractInContextMap):
    """x ↦ weight ⊙ x/√(mean(x²) + eps).

    >>> import measureformer as mf
    >>> mf.RMSNorm([1.0, 1.0], eps=0.0)(mf.Discrete.dirac([0.0, 1.0]), [3.0, -3.0]).tolist()
    [1.0, -1.0]
    """

    weight: Float[Array, " d"]
    eps: Float[Array, ""]

    def __init__(self, weight: Any, *, eps: Any = 1e-6) -> None:
        self.weight, _ = _vectors(weight, None)
        self.eps = _eps(eps)

    @property
    def in_dim(self) -> int:
        return self.weight.shape[0]

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return self.weight * _divided(x, jnp.mean(x**2, axis=1, keepdims=True) + self.eps)

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        if float(self.eps) == 0:
            refuse_zero(self, mu, x, lambda rows: abs(rows).max(axis=1), "the zero vector")


class UnitNorm(AbstractInContextMap):
    """x ↦ scale ⊙ x/|x| + shift: tokens on the sphere. Not continuous at 0, where it is refused.

    >>> import measureformer as mf
    >>> mf.UnitNorm([1.0, 1.0])(mf.Discrete.dirac([1.0, 0.0]), [0.0, 4.0]).tolist()
    [0.0, 1.0]
    """

    scale: Float[Array, " d"]
    shift: Float[Array, " d"]

    def __init__(self, scale: Any, shift: Any = None) -> None:
        self.scale, self.shift = _vectors(scale, shift)

    @property
    def in_dim(self) -> int:
        return self.scale.shape[0]

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return self.scale * _divided(x, jnp.sum(x**2, axis=1, keepdims=True)) + self.shift

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        refuse_zero(self, mu, x, lambda rows: abs(rows).max(axis=1), "the zero vector")


def _divided(rows: Array, squares: Array) -> Array:
    """rows/√squares; NaN at 0/0, which the caller's edge turns into a refusal."""
    return rows / jnp.sqrt(squares)


def refuse_zero(G: AbstractInContextMap, mu: Any, x: Any, size: Any, what: str) -> None:
    """Refuse queries, and atoms of the context, at which G would divide by zero."""
    sets = [("query", x)] + ([("atom", mu.points)] if isinstance(mu, AbstractAtomic) else [])
    for name, rows in sets:
        zero = size(host(rows)) == 0
        if zero.any():
            raise ZeroVectorError(
                got=f"{what} ({name} {int(zero.argmax())}) in {type(G).__name__}",
                need="a vector it can normalise",
                do="Shift the tokens away from it, or use mf.RMSNorm or mf.LayerNorm with eps > 0.",
            )


def _eps(eps: Any) -> Array:
    number = scalar(eps, "eps")
    if float(number) < 0:
        raise OptionError(got=f"eps = {eps!r}", need="eps ≥ 0", do="Leave it out for the usual value.")
    return number


def _vectors(weight: Any, bias: Any) -> tuple[Array, Array]:
    weight = shaped(floats(weight, "weight"), "weight", "d")
    bias = np.zeros(weight.shape, weight.dtype) if bias is None else shaped(floats(bias, "bias"), "bias", "d")
    if bias.shape != weight.shape:
        raise DimensionMismatchError(
            got=f"{weight.shape[0]} scales and {bias.shape[0]} shifts",
            need="as many of one as of the other",
            do="Leave the shift out for zeros.",
        )
    finite(weight, "weight")
    finite(bias, "bias")
    return cast((owned(weight), owned(bias)), common_dtype(weight, bias))
