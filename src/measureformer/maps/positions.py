"""Positions on space–time: `Positional` and the encodings of times that it adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import finite, floats, owned, scalar, shaped
from measureformer.numerics.checked import check_fields, checked
from measureformer.numerics.types import ArrayLike, Size


class Positional(AbstractInContextMap):
    """(x, t) ↦ x + e(t), with an encoding e of times.

    Arguments:
        encoding: function of times (m,) with values (m, d), e.g. `Sinusoidal(d)`.

    >>> import measureformer as mf
    >>> G = mf.Positional(lambda t: 10 * t[:, None])
    >>> G(mf.SpaceTime.sequence([[1.0], [2.0]]), [1.0], 0.5).tolist()
    [6.0]
    """

    encoding: Callable[[Array], Array]

    def __check_init__(self) -> None:
        check_fields(self)

    @property
    def in_dim(self) -> int | None:
        return getattr(self.encoding, "dim", None)

    @property
    def needs_time(self) -> bool:
        return True

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return x + self.encoding(cast(Array, t)).astype(x.dtype)  # `check_meets` has refused None


class Sinusoidal(eqx.Module):
    """The encoding t ↦ (sin ω_i t, cos ω_i t)_i with frequencies ω_i = `length`·10⁴^{−2i/dim}, for times in [0, 1].

    With times i/n and length n this is the encoding of positions 1, …, n.

    Arguments:
        dim: dimension of the tokens, even and at least 2.
        length: the largest frequency.

    Ref         vaswani2017, Section 3.5.

    >>> import numpy as np, measureformer as mf
    >>> mf.Sinusoidal(4, length=1.0)(np.array([0.0])).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """

    dim: int = eqx.field(static=True)
    length: Float[Array, ""]

    @checked
    def __init__(self, dim: Size, *, length: ArrayLike = 512.0) -> None:
        if dim < 2 or dim % 2:
            raise OptionError(
                got=f"dim = {dim}",
                need="an even dimension ≥ 2",
                do="Sines and cosines come in pairs: add a coordinate.",
            )
        self.dim = dim
        self.length = scalar(length, "length")

    def __call__(self, t: ArrayLike) -> Array:
        times = jnp.asarray(t)
        powers = jnp.arange(0, self.dim, 2).astype(times.dtype) / self.dim
        angles = times[:, None] * self.length.astype(times.dtype) * 10_000.0 ** -powers[None, :]
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


class PositionTable(eqx.Module):
    """Learned positions: the encoding t ↦ row t + `offset` of a table, for times 0, 1, 2, …

    Times beyond the table get its last row.

    Arguments:
        table: one row per position, (length, d).
        offset: row of time 0.

    >>> import measureformer as mf
    >>> G = mf.Positional(mf.PositionTable([[0.0], [10.0], [20.0]]))
    >>> G(mf.SpaceTime.uniform([[1.0], [2.0]], times=[0.0, 2.0]), [1.0], 2.0).tolist()
    [21.0]
    """

    table: Float[Array, "length d"]
    offset: int = eqx.field(static=True)

    @checked
    def __init__(self, table: ArrayLike, *, offset: int = 0) -> None:
        rows = shaped(floats(table, "table"), "table", "length d")
        finite(rows, "table")
        self.table = owned(rows)
        self.offset = offset

    @property
    def dim(self) -> int:
        return self.table.shape[1]

    def __call__(self, t: ArrayLike) -> Array:
        return jnp.take(self.table, jnp.round(jnp.asarray(t)).astype(int) + self.offset, axis=0, mode="clip")
