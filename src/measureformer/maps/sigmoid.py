"""`SigmoidAttention`: every token is weighed by itself, without a softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.attention.linear import kernel_sums
from measureformer.maps.heads import AbstractHeads
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


class SigmoidAttention(AbstractHeads):
    """∫ σ(⟨Qx, Ky⟩ + bias) V y dmu(y) / |mu|, σ(s) = 1/(1 + e^{−s}); behind a mask divided by the visible mass.

    Trained models sum over n tokens with a bias near −log n: as n grows that is e^{⟨Qx, Ky⟩} in place of σ, and
    `UnnormalizedAttention`. There is no closed form on Gaussians.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.
        bias: added to all logits.

    Ref         ramapuram2024.

    >>> import measureformer as mf
    >>> G = mf.SigmoidAttention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G(mf.Discrete.uniform([[0.0], [4.0]]), [[0.0]]).tolist()
    [[1.0]]
    """

    bias: Float[Array, ""]

    @checked
    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        scale: ArrayLike = 1.0,
        bias: ArrayLike = 0.0,
    ) -> None:
        super().__init__(Q, K, V, W, scale=scale)
        self.bias = scalar(bias, "bias")

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        q, k, v = self.project(mu, x)
        seen = mu.log_mass_until(t) if mu.visible(t) is not None else mu.log_mass
        # relative to the whole mass first: a small measure must not underflow
        share = jnp.exp(jnp.where(seen == -jnp.inf, 0, seen - mu.log_mass)).reshape(-1, 1)
        weights = jnp.exp(mu.log_weights - mu.log_mass)

        def one(q: Array, k: Array, v: Array) -> Array:
            return kernel_sums(lambda logits: jax.nn.sigmoid(logits + self.bias), q, k, v, weights, times=mu.visible(t))

        return jax.vmap(one)(q, k, v) / share
