"""`GatedMLP`: a perceptron whose hidden layer is a product of two."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.mlp import Activation, named_activation
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


class GatedMLP(AbstractInContextMap):
    """x ↦ W_down (σ(W_gate x) ⊙ W_up x), without biases; with σ = silu this is SwiGLU.

    Arguments:
        W_gate: (w, d).
        W_up: (w, d).
        W_down: (e, w).
        activation: σ, the name of a function in `jax.nn`, or a function.

    Ref         shazeer2020.

    >>> import measureformer as mf
    >>> F = mf.GatedMLP([[1.0]], [[2.0]], [[1.0]], activation="relu")
    >>> F(mf.Discrete.dirac([0.0]), [[3.0], [2.0]]).tolist()
    [[18.0], [8.0]]
    """

    W_gate: Float[Array, "w d"]
    W_up: Float[Array, "w d"]
    W_down: Float[Array, "e w"]
    activation: Activation = eqx.field(static=True)

    @checked
    def __init__(
        self, W_gate: ArrayLike, W_up: ArrayLike, W_down: ArrayLike, *, activation: str | Activation = "silu"
    ) -> None:
        names = "W_gate", "W_up", "W_down"
        parts = [shaped(floats(m, name), name, "i j") for m, name in zip((W_gate, W_up, W_down), names, strict=True)]
        gate, up, down = parts
        if gate.shape != up.shape or down.shape[1] != gate.shape[0]:
            raise DimensionMismatchError(
                got=f"W_gate, W_up, W_down of shapes {gate.shape}, {up.shape}, {down.shape}",
                need="(w, d), (w, d) and (e, w)",
                do="Check the widths.",
            )
        for part, name in zip(parts, names, strict=True):
            finite(part, name)
        self.W_gate, self.W_up, self.W_down = cast([owned(part) for part in parts], common_dtype(parts))
        self.activation = named_activation(activation)

    @property
    def in_dim(self) -> int:
        return self.W_gate.shape[1]

    def out_dim(self, dim: int) -> int:
        return self.W_down.shape[0]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return (self.activation(x @ self.W_gate.T) * (x @ self.W_up.T)) @ self.W_down.T
