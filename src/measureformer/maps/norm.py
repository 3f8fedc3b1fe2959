"""Normalisations: maps of the point alone that put tokens on an ellipsoid."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError, ZeroVectorError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, host, owned, scalar, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.norms import leveller
from measureformer.numerics.types import ArrayLike


class LayerNorm(AbstractInContextMap):
    """x ↦ weight ⊙ (x − x̄)/√(var(x) + eps) + bias, mean and variance over the coordinates of one token.

    Arguments:
        weight: scales, (d,).
        bias: shifts, (d,); 0 by default.
        eps: number ≥ 0 added to the variance; at 0 tokens with equal coordinates are refused.

    >>> import measureformer as mf
    >>> F = mf.LayerNorm([1.0, 1.0], eps=0.0)
    >>> F(mf.Discrete.dirac([0.0, 1.0]), [1.0, 3.0]).tolist()
    [-1.0, 1.0]
    """

    weight: Float[Array, " d"]
    bias: Float[Array, " d"]
    eps: Float[Array, ""]

    @checked
    def __init__(self, weight: ArrayLike, bias: ArrayLike | None = None, *, eps: ArrayLike = 1e-5) -> None:
        self.weight, self.bias = _vectors(weight, bias)
        self.eps = _eps(eps)

    @property
    def in_dim(self) -> int:
        return self.weight.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        # sums of large entries would overflow, and shares and differences of small ones would underflow
        info, size = jnp.finfo(x.dtype), jnp.max(jnp.abs(x), axis=1, keepdims=True)
        room = 2.0 ** (2 + x.shape[1].bit_length())
        lift = room / float(info.eps) ** 2
        unit = jnp.where(size > float(info.max) / room, 1 / room, jnp.where(size < float(info.tiny) * lift, lift, 1.0))
        unit = unit.astype(x.dtype)
        centred = unit * x - jnp.mean(unit * x, axis=1, keepdims=True)
        return self.weight * _divided(centred, jnp.mean, self.eps, unit) + self.bias

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        if float(self.eps) == 0:
            refuse_zero(self, mu, x, lambda rows: rows.max(axis=1) > rows.min(axis=1), "a token with equal coordinates")


class RMSNorm(AbstractInContextMap):
    """x ↦ weight ⊙ x/√(mean(x²) + eps).

    Arguments:
        weight: scales, (d,).
        eps: number ≥ 0 added to the mean square; at 0 the zero vector is refused.

    >>> import measureformer as mf
    >>> mf.RMSNorm([1.0, 1.0], eps=0.0)(mf.Discrete.dirac([0.0, 1.0]), [3.0, -3.0]).tolist()
    [1.0, -1.0]
    """

    weight: Float[Array, " d"]
    eps: Float[Array, ""]

    @checked
    def __init__(self, weight: ArrayLike, *, eps: ArrayLike = 1e-6) -> None:
        self.weight, _ = _vectors(weight, None)
        self.eps = _eps(eps)

    @property
    def in_dim(self) -> int:
        return self.weight.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return self.weight * _divided(x, jnp.mean, self.eps)

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        if float(self.eps) == 0:
            refuse_zero(self, mu, x, _largest, "the zero vector")


class UnitNorm(AbstractInContextMap):
    """x ↦ scale ⊙ x/|x| + shift, which puts tokens on an ellipsoid. It is not continuous at 0, which is refused.

    Arguments:
        scale: half-axes, (d,).
        shift: the centre, (d,); 0 by default.

    >>> import measureformer as mf
    >>> mf.UnitNorm([1.0, 1.0])(mf.Discrete.dirac([1.0, 0.0]), [0.0, 4.0]).tolist()
    [0.0, 1.0]
    """

    scale: Float[Array, " d"]
    shift: Float[Array, " d"]

    @checked
    def __init__(self, scale: ArrayLike, shift: ArrayLike | None = None) -> None:
        self.scale, self.shift = _vectors(scale, shift)

    @property
    def in_dim(self) -> int:
        return self.scale.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return self.scale * _divided(x, jnp.sum, jnp.zeros((), x.dtype)) + self.shift

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        refuse_zero(self, mu, x, _largest, "the zero vector")


def _largest(rows: np.ndarray) -> np.ndarray:
    return np.abs(rows).max(axis=1)


def _divided(rows: Array, total: Callable[..., Array], eps: Array, unit: Array | float = 1.0) -> Array:
    """rows/√(total of their squares + eps·unit²), none of which over- or underflows, for rows times powers of two.

    0/0 is NaN, which the edge refuses.
    """
    size = jnp.maximum(jnp.max(jnp.abs(rows), axis=1, keepdims=True), unit * jnp.sqrt(jax.lax.stop_gradient(eps)))
    level = leveller(size)
    # a power that overflows belongs to an eps below the normal numbers
    power = jnp.minimum(unit * level, 0.5 / float(jnp.finfo(rows.dtype).tiny))
    rows = rows * level
    return rows / jnp.sqrt(total(rows**2, axis=1, keepdims=True) + eps * power * power)


def refuse_zero(
    G: AbstractInContextMap, mu: AbstractMeasure, x: Array, size: Callable[[np.ndarray], np.ndarray], what: str
) -> None:
    """Refuse queries, and atoms of the context, at which a map would divide by zero.

    Arguments:
        G: the map.
        mu: the context.
        x: queries, (m, d).
        size: what G divides by, a function of rows.
        what: what is refused, in words.
    """
    sets = [("query", x)] + ([("atom", mu.points)] if isinstance(mu, AbstractAtomic) else [])
    for name, rows in sets:
        numbers = host(rows)
        tiny = float(np.finfo(numbers.dtype).tiny)
        # compiled programs take denormals for 0
        zero = size(np.where(np.abs(numbers) < tiny, 0, numbers)) == 0
        if zero.any():
            raise ZeroVectorError(
                got=f"{what} ({name} {int(zero.argmax())}) in {type(G).__name__}",
                need=f"a vector it can normalise; entries below {tiny:.1g} count as 0",
                do="Shift the tokens away from it, or use mf.RMSNorm or mf.LayerNorm with eps > 0.",
            )


def _eps(eps: ArrayLike) -> Array:
    number = scalar(eps, "eps")
    if float(number) < 0:
        raise OptionError(got=f"eps = {eps!r}", need="eps ≥ 0", do="Leave it out for the usual value.")
    return number


def _vectors(weight: ArrayLike, bias: ArrayLike | None) -> tuple[Array, Array]:
    scales = shaped(floats(weight, "weight"), "weight", "d")
    shifts = np.zeros(scales.shape, scales.dtype) if bias is None else shaped(floats(bias, "bias"), "bias", "d")
    if shifts.shape != scales.shape:
        raise DimensionMismatchError(
            got=f"{scales.shape[0]} scales and {shifts.shape[0]} shifts",
            need="as many of one as of the other",
            do="Leave the shift out for zeros.",
        )
    finite(scales, "weight")
    finite(shifts, "bias")
    return cast((owned(scales), owned(shifts)), common_dtype(scales, shifts))
