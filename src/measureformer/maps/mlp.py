"""Maps that look at the point alone: affine maps and perceptrons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from typing import cast as cast_type

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.random import normal
from measureformer.numerics.types import ArrayLike, Key, Size

Activation = Callable[[Array], Array]


class Linear(AbstractInContextMap):
    """x ↦ M x + b, for every measure; exact on Gaussians and mixtures.

    Arguments:
        matrix: M, (e, d).
        bias: b, (e,); 0 by default.

    >>> import measureformer as mf
    >>> F = mf.Linear([[2.0, 0.0]], [1.0])
    >>> F(mf.Discrete.dirac([0.0, 0.0]), [3.0, 4.0]).tolist()
    [7.0]
    >>> F.push(mf.Gaussian([0, 0], [[1, 0], [0, 1]])).cov.tolist()
    [[4.0]]
    """

    matrix: Float[Array, "e d"]
    bias: Float[Array, " e"]

    @checked
    def __init__(self, matrix: ArrayLike, bias: ArrayLike | None = None) -> None:
        self.matrix, self.bias = _affine(shaped(floats(matrix, "matrix"), "matrix", "e d"), bias, "matrix", "bias")

    @property
    def in_dim(self) -> int:
        return self.matrix.shape[1]

    def out_dim(self, dim: int) -> int:
        return self.matrix.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return x @ self.matrix.T + self.bias

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return True


class MLP(AbstractInContextMap):
    """A perceptron with one hidden layer, x ↦ W2 σ(W1 x + b1) + b2.

    Arguments:
        W1: (w, d).
        b1: (w,); None for 0.
        W2: (e, w).
        b2: (e,); None for 0.
        activation: σ, the name of a function in `jax.nn`, or a function.
        skip: add x to the values.

    >>> import jax, measureformer as mf
    >>> F = mf.MLP([[1.0], [-1.0]], [0.0, 0.0], [[1.0, 1.0]], [0.0], activation="relu")
    >>> F(mf.Discrete.dirac([0.0]), [[-3.0], [2.0]]).tolist()
    [[3.0], [2.0]]
    >>> mf.MLP.random(jax.random.key(0), 2, width=8, activation="gelu").out_dim(2)
    2
    """

    W1: Float[Array, "w d"]
    b1: Float[Array, " w"]
    W2: Float[Array, "e w"]
    b2: Float[Array, " e"]
    activation: Activation = eqx.field(static=True)
    skip: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        W1: ArrayLike,
        b1: ArrayLike | None,
        W2: ArrayLike,
        b2: ArrayLike | None,
        *,
        activation: str | Activation = "relu",
        skip: bool = False,
    ) -> None:
        first, second = shaped(floats(W1, "W1"), "W1", "w d"), shaped(floats(W2, "W2"), "W2", "e w")
        if second.shape[1] != first.shape[0] or (skip and second.shape[0] != first.shape[1]):
            raise DimensionMismatchError(
                got=f"W1 of shape {first.shape} and W2 of shape {second.shape}" + (" with a skip" if skip else ""),
                need="(w, d) and (e, w)" + (" with e = d" if skip else ""),
                do="Check the widths.",
            )
        parts = [*_affine(first, b1, "W1", "b1"), *_affine(second, b2, "W2", "b2")]
        self.W1, self.b1, self.W2, self.b2 = cast(parts, common_dtype(parts))
        self.activation = named_activation(activation)
        self.skip = bool(skip)

    @staticmethod
    @checked
    def random(key: Key, dim: Size, *, width: Size | None = None, activation: str | Activation = "relu") -> MLP:
        """Gaussian weights and zero biases, from R^dim to itself, without skip.

        Arguments:
            key: a JAX random key.
            dim: dimension of the tokens.
            width: hidden units; 4·dim by default.
            activation: the name of a function in `jax.nn`, or a function.
        """
        width = 4 * dim if width is None else width
        draws = normal(key, (2, width, dim))
        return MLP(draws[0] * math.sqrt(2 / dim), None, draws[1].T / math.sqrt(width), None, activation=activation)

    @property
    def in_dim(self) -> int:
        return self.W1.shape[1]

    def out_dim(self, dim: int) -> int:
        return self.W2.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        y = self.activation(x @ self.W1.T + self.b1) @ self.W2.T + self.b2
        return x + y if self.skip else y


def named_activation(activation: str | Activation) -> Activation:
    """The activation as a function.

    Arguments:
        activation: the name of a function in `jax.nn`, or a function.
    """
    if callable(activation):
        return activation
    found = getattr(jax.nn, activation, None) if not activation.startswith("_") else None
    if not callable(found):
        raise OptionError(
            got=f"activation = {activation!r}",
            need="the name of a function in jax.nn, or a function",
            do='Try "relu", "gelu", "silu", "tanh" or jnp.tanh.',
        )
    return cast_type(Activation, found)


def _affine(matrix: Any, bias: ArrayLike | None, matrix_name: str, bias_name: str) -> tuple[Array, Array]:
    """A matrix (e, d) and its bias (e,), zero if None, in one dtype."""
    shift = np.zeros(matrix.shape[0], matrix.dtype) if bias is None else floats(bias, bias_name)
    if shift.shape != matrix.shape[:1]:
        raise ShapeError(
            got=f"{bias_name} of shape {shift.shape} for {matrix_name} of shape {matrix.shape}",
            need=f"({matrix.shape[0]},)",
            do="Give one entry per row of the matrix, or leave it out.",
        )
    finite(matrix, matrix_name)
    finite(shift, bias_name)
    return cast((owned(matrix), owned(shift)), common_dtype(matrix, shift))
