"""`Attention`: softmax attention on measures."""

from __future__ import annotations

import jax
from jaxtyping import Array

from measureformer.attention import attend
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike


class Attention(AbstractHeads):
    """Softmax attention Σ_h W_h ∫ e^{⟨Q_h x, K_h y⟩} V_h y dmu(y) / ∫ e^{⟨Q_h x, K_h y⟩} dmu(y), without residual.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.

    Statement   on N(m, Σ): x ↦ Σ_h W_h V_h (m + Σ A_h x) with A_h = K_hᵀ Q_h (not QᵀK); a mixture tilts component-wise
    Ref         vaswani2017; furuya2025, equation (20); castin2025.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> mu = mf.Discrete.weighted([[0.0], [1.0]], [1.0, 3.0])
    >>> G(mu, [0.0]).tolist(), mf.Residual(G).push(mu).points.round(3).tolist()
    ([0.75], [[0.75], [1.891]])
    >>> G(mf.Gaussian([1.0], [[2.0]]), [3.0]).tolist()
    [7.0]
    """

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        q, k, v = self.project(mu, x)
        return attend(q, k, v, mu.log_weights, times=mu.visible(t)).values

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        return tilted_values(self, mu, x)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return isinstance(mu, Gaussian)


def tilted_values(G: AbstractHeads, mu: AbstractGaussianLike, x: Array, H: Array | None = None) -> Array:
    """V_h times the mean of mu tilted by e^{⟨A_h x, y⟩ − yᵀ H_h y / 2}: closed forms of softmax and L2 heads."""

    def one(A: Array, H: Array | None, V: Array) -> Array:
        return mu.tilt(x @ A.T, H)[1] @ V.T

    return jax.vmap(one)(G.A, H, G.V)
