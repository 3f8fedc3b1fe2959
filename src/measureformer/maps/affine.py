"""Attention as trained models have it: queries, keys and values are affine in the token, and may turn with time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as cast_type

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DimensionMismatchError, ShapeError
from measureformer.maps.base import no_closed_form
from measureformer.maps.heads import AbstractHeads
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure, Gaussian, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, namespace, owned, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

Biases = Sequence[ArrayLike | None]
"""Of queries, keys, values and output."""


class AbstractAffineHeads(AbstractHeads):
    """Heads with biases: queries Qx + q_bias, keys Ky + k_bias, values Vy + v_bias, and `bias` added to the output.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.
        biases: those of queries (h, k), keys (h, k), values (h, e) and output (d_out,), each None for 0.
    """

    q_bias: Float[Array, "h k"]
    k_bias: Float[Array, "g k"]
    v_bias: Float[Array, "g e"]
    bias: Float[Array, " o"]

    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        biases: Biases = (None, None, None, None),
        scale: ArrayLike = 1.0,
    ) -> None:
        super().__init__(Q, K, V, W, scale=scale)
        if not isinstance(biases, (tuple, list)) or len(biases) != 4:
            raise ShapeError(
                got=f"biases of type {type(biases).__name__}",
                need="four: of queries (h, k), keys (h, k), values (h, e) and the output (d_out,)",
                do="Pass None for those that are zero.",
            )
        shapes = self.Q.shape[:2], self.K.shape[:2], self.V.shape[:2], self.W.shape[1:2]
        names = "q_bias", "k_bias", "v_bias", "bias"
        filled = [_bias(b, shape, name) for b, shape, name in zip(biases, shapes, names, strict=True)]
        dtype = common_dtype(self.Q, filled)
        self.Q, self.K, self.V, self.W = cast((self.Q, self.K, self.V, self.W), dtype)
        self.q_bias, self.k_bias, self.v_bias, self.bias = cast(filled, dtype)

    def project(self, mu: AbstractAtomic, x: Array) -> tuple[Array, Array, Array]:
        k, v = (_projected(M, b, mu.points) for M, b in ((self.K, self.k_bias), (self.V, self.v_bias)))
        return self.scale * _projected(self.Q, self.q_bias, x), k, v

    def merged(self, values: Float[Array, "h m e"]) -> Float[Array, "m o"]:
        """Σ_h W_h v_h + bias."""
        h, m, e = values.shape
        # in this order of the axes no copy of the values has to be turned, and the product is one of two matrices
        return values.transpose(1, 0, 2).reshape(m, h * e) @ self.W.transpose(0, 2, 1).reshape(h * e, -1) + self.bias


def _projected(matrix: Float[Array, "h k d"], bias: Float[Array, "h k"], x: Float[Array, "m d"]) -> Array:
    """M_h x + b_h of all heads, (h, m, k), by one product: trained models have many small heads."""
    h, k, d = matrix.shape
    rows = x @ matrix.reshape(h * k, d).T + bias.reshape(h * k)
    return rows.reshape(-1, h, k).transpose(1, 0, 2)


def _bias(value: ArrayLike | None, shape: tuple[int, ...], name: str) -> Array:
    if value is None:
        # it must not decide the precision of the weights
        return owned(np.zeros(shape, np.float32))
    given = shaped(floats(value, name), name, " ".join("ij"[: len(shape)]))
    if given.shape != shape:
        raise DimensionMismatchError(
            got=f"{name} of shape {given.shape}", need=f"{shape}", do="Give one entry per row of the matrices."
        )
    finite(given, name)
    return owned(given)


class AffineAttention(AbstractAffineHeads):
    """Softmax attention with biases: logits scale·⟨Qx + b_q, Ky + b_k⟩, values Vy + b_v, output Σ_h W_h(…) + b.

    The bias of the keys shifts all logits of a query alike and has no effect; it is kept so that the keys are those of
    the trained model.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.
        biases: those of queries (h, k), keys (h, k), values (h, e) and output (d_out,), each None for 0.

    Statement   on N(m, Σ): x ↦ Σ_h W_h (V_h (m + Σ (A_h x + scale·K_hᵀ b_q)) + b_v) + b
    Ref         vaswani2017; castin2025.

    >>> import measureformer as mf
    >>> zero = [[[0.0]]]
    >>> G = mf.AffineAttention(zero, [[[1.0]]], [[[1.0]]], [[[1.0]]], biases=([[1.0]], None, [[2.0]], [3.0]))
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> round(float(G(mu, [5.0])[0]), 4)
    5.7311
    """

    @checked
    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        biases: Biases = (None, None, None, None),
        scale: ArrayLike = 1.0,
    ) -> None:
        super().__init__(Q, K, V, W, biases=biases, scale=scale)

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        q, k, v = self.project(mu, x)
        return attend(q, k, v, mu.log_weights, times=mu.visible(t)).values

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        def one(A: Array, K: Array, q_bias: Array, V: Array, v_bias: Array) -> Array:
            return mu.tilt(x @ A.T + self.scale * (q_bias @ K), None)[1] @ V.T + v_bias

        return jax.vmap(one)(self.A, self.K, self.q_bias, self.V, self.v_bias)

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if isinstance(mu, AbstractGaussianLike):
            return self.merged(self.on_gaussian(mu, x))
        return self.merged(self.on_atoms(cast_type(AbstractAtomic, mu), x, t))

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return isinstance(mu, Gaussian)


class RotaryAttention(AbstractAffineHeads):
    """Softmax attention whose queries and keys turn with time: logits scale·⟨R(t)(Qx + b_q), R(s)(Ky + b_k)⟩.

    R(t) rotates the plane of the coordinates i and i + k/2 of a head by the angle t·ω_i. The logit of a query at time t
    and a token at time s depends on t − s alone, so that a shift of all times changes nothing. Times are positions:
    0, 1, 2, … for a text. Neighbouring heads may share keys and values.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (g, k, d), where g divides h: each is shared by h/g neighbouring heads.
        V: values, (g, e, d).
        W: outputs, (h, d_out, e).
        frequencies: the angles ω per unit of time, (k/2,).
        biases: those of queries (h, k), keys (g, k), values (g, e) and output (d_out,), each None for 0.
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.

    Statement   ⟨R(t)q, R(s)k⟩ = ⟨R(t−s)q, k⟩
    Ref         su2021, Section 3.2.

    >>> import numpy as np, measureformer as mf
    >>> eye = np.eye(2)[None]
    >>> G = mf.RotaryAttention(eye, eye, eye, eye, frequencies=[np.pi])
    >>> sigma = mf.SpaceTime.uniform([[1.0, 0.0], [0.0, 1.0]], times=[0.0, 1.0])
    >>> G(sigma, [1.0, 0.0], 0.0).round(3).tolist(), G(sigma, [1.0, 0.0], 1.0).round(3).tolist()
    ([0.731, 0.269], [0.269, 0.731])
    """

    frequencies: Float[Array, " f"]

    @checked
    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        frequencies: ArrayLike,
        biases: Biases = (None, None, None, None),
        scale: ArrayLike = 1.0,
    ) -> None:
        super().__init__(Q, K, V, W, biases=biases, scale=scale)
        turns = shaped(floats(frequencies, "frequencies"), "frequencies", "f")
        if 2 * turns.shape[0] != self.Q.shape[1]:
            raise DimensionMismatchError(
                got=f"{turns.shape[0]} frequencies for heads of dimension {self.Q.shape[1]}",
                need="half as many frequencies as dimensions",
                do="Coordinates i and i + k/2 turn together.",
            )
        finite(turns, "frequencies")
        self.frequencies = owned(turns)

    @property
    def needs_time(self) -> bool:
        return True

    def turned(self, rows: Float[Array, "*h m k"], t: Float[Array, " #m"]) -> Float[Array, "*h m k"]:
        """R(t_i) applied to row i.

        Arguments:
            rows: queries or keys of the heads, (h, m, k).
            t: their times, (m,), or one time (1,) for all.
        """
        angles = t[:, None] * self.frequencies.astype(t.dtype)
        cos, sin = jnp.cos(angles).astype(rows.dtype), jnp.sin(angles).astype(rows.dtype)
        # computed once: inside the loop over all heads and coordinates they would take longer than all the rest
        cos, sin = jax.lax.optimization_barrier((jnp.stack([cos, cos], axis=1), jnp.stack([-sin, sin], axis=1)))
        halves = rows.reshape(*rows.shape[:-1], 2, -1)
        # an exchange of the halves is read as fast as they are; a concatenation of both takes twice as long
        return (halves * cos + halves[..., ::-1, :] * sin).reshape(rows.shape)

    def _may_share(self, heads: int, groups: int) -> bool:
        return heads % groups == 0

    @property
    def full(self) -> RotaryAttention:
        """The same map with keys and values of its own for each head."""
        copies = self.Q.shape[0] // self.K.shape[0]
        if copies == 1:
            return self

        def shared(G: RotaryAttention) -> tuple[Array, ...]:
            return G.K, G.V, G.k_bias, G.v_bias

        return eqx.tree_at(shared, self, tuple(namespace(a).repeat(a, copies, axis=0) for a in shared(self)))

    @property
    def A(self) -> Float[Array, "h d d"]:
        """scale · KᵀQ of each head: logits without the turning."""
        return super().A if self.K.shape == self.Q.shape else self.full.A

    def project_at(self, mu: AbstractAtomic, x: Array, t: Array) -> tuple[Array, Array, Array]:
        """Rotated queries (h, m, k) and keys (h, n, k), and values (h, n, e).

        Arguments:
            mu: the context.
            x: queries, (m, d).
            t: their times, (m,).
        """
        q, k, v = self.project(mu, x)
        copies, times = q.shape[0] // k.shape[0], cast_type(SpaceTime, mu).times
        return self.turned(q, t), jnp.repeat(self.turned(k, times), copies, axis=0), jnp.repeat(v, copies, axis=0)

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        # `check_meets` has refused measures without times
        q, k, v = self.project_at(mu, x, cast_type(Array, t))
        return attend(q, k, v, mu.log_weights, times=mu.visible(t)).values

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if isinstance(mu, AbstractGaussianLike):
            raise no_closed_form(self, mu)
        return self.merged(self.on_atoms(cast_type(AbstractAtomic, mu), x, t))
