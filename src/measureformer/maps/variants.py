"""Other kernels in place of the softmax: hard, linear, L2, unnormalised. All 0-homogeneous, all split-invariant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention import attend
from measureformer.attention.hardmax import hardmax
from measureformer.attention.linear import kernel_sums
from measureformer.maps.attention import tilted_values
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike


class HardmaxAttention(AbstractHeads):
    """The limit of zero temperature: the average of V y over the atoms y with the largest logit ⟨Qx, Ky⟩.

    Ties are shared in proportion to mass, so that splitting an atom changes nothing; logits closer than their rounding
    errors are ties. There is no closed form on continuous measures.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.

    >>> import measureformer as mf
    >>> G = mf.HardmaxAttention.head([[1.0]], [[1.0]], [[1.0]])
    >>> mu = mf.Discrete.uniform([[-2.0], [1.0]])
    >>> G(mu, [[1.0], [-1.0], [0.0]]).tolist()
    [[1.0], [-2.0], [-0.5]]
    """

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        times = mu.visible(t)

        def one(q: Array, k: Array, v: Array) -> Array:
            return hardmax(q, k, v, mu.log_weights, times=times)

        return jax.vmap(one)(*self.project(mu, x))


class LinearAttention(AbstractHeads):
    """∫ ⟨Qx, Ky⟩ V y dmu(y) / |mu|: no exponential, exact on any measure through its second moment.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.

    Statement   = V (Σ + m mᵀ) A x for mean m and covariance Σ, A = KᵀQ
    Ref         castin2025.

    >>> import measureformer as mf
    >>> G = mf.LinearAttention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G(mf.Gaussian([1.0], [[2.0]]), [2.0]).tolist()
    [6.0]
    """

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        times = mu.visible(t)
        if times is None:
            return self._moment(mu, x)
        weights = mu.probabilities()

        def one(q: Array, k: Array, v: Array) -> Array:
            return kernel_sums(lambda logits: logits, q, k, v, weights, times=times)

        return jax.vmap(one)(*self.project(mu, x)) / _visible_share(mu, t)

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        return self._moment(mu, x)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return True

    def _moment(self, mu: AbstractAtomic | AbstractGaussianLike, x: Array) -> Array:
        return jnp.einsum("hed,dc,hcb,mb->hme", self.V, mu.second_moment(), self.A, x)


class L2Attention(AbstractHeads):
    """Softmax of negative squared distances, e^{−|Qx−Ky|²}, which is bounded in the query.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the squared distances.

    Statement   on N(m, Σ): x ↦ V (I + 2ΣKᵀK)^{-1} (m + 2ΣAx), A = KᵀQ
    Ref         kim2021; castin2025.

    >>> import measureformer as mf
    >>> G = mf.L2Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G(mf.Gaussian([0.0], [[0.5]]), [2.0]).tolist()
    [1.0]
    """

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        _, k, v = self.project(mu, x)
        q = jnp.einsum("hkd,md->hmk", self.Q, x)
        # distances do not feel a common shift; centring keeps |k|² from swamping the logits
        shift = jax.lax.stop_gradient(jnp.einsum("n,hnk->hk", mu.probabilities(), k))[:, None]
        q, k = q - shift, k - shift
        log_weights = mu.log_weights - self.scale * jnp.sum(k * k, axis=2)
        return attend(2 * self.scale * q, k, v, log_weights, times=mu.visible(t)).values

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        doubled = self._twice()
        return tilted_values(doubled, mu, x, doubled.scale * jnp.einsum("hki,hkj->hij", self.K, self.K))

    def _twice(self) -> L2Attention:
        """−|Qx−Ky|² = 2⟨Qx, Ky⟩ − yᵀ(2KᵀK)y/2 + a function of x alone."""
        return L2Attention(self.Q, self.K, self.V, self.W, scale=2 * self.scale)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return isinstance(mu, Gaussian)


class UnnormalizedAttention(AbstractHeads):
    """∫ e^{⟨Qx, Ky⟩} V y dmu(y) / |mu|: the softmax without its normaliser.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.

    Statement   on N(m, Σ), with a = Ax: x ↦ e^{⟨a, m⟩ + aᵀΣa/2} V (m + Σa), which is not affine
    Ref         geshkovski2023; castin2025.

    >>> import measureformer as mf
    >>> G = mf.UnnormalizedAttention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G(mf.Discrete.uniform([[0.0], [1.0]]), [[0.0]]).tolist()
    [[0.5]]
    """

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        q, k, v = self.project(mu, x)
        out = attend(q, k, v, mu.log_weights - mu.log_mass, times=mu.visible(t))
        # nothing visible: log Z = −inf and values 0, so the product is 0
        values = jnp.exp(out.log_normalizer)[..., None] * out.values
        return values if mu.visible(t) is None else values / _visible_share(mu, t)

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        def one(A: Array, V: Array) -> Array:
            log_z, mean = mu.tilt(x @ A.T)
            return jnp.exp(log_z)[:, None] * (mean @ V.T)

        return jax.vmap(one)(self.A, self.V)


def _visible_share(mu: AbstractAtomic, t: Array | None) -> Array:
    """Share of the mass that each query sees, as (m, 1); 1 where it sees nothing, since the value there is 0."""
    log_share = mu.log_mass_until(t) - mu.log_mass
    return jnp.exp(jnp.where(log_share == -jnp.inf, 0, log_share))[:, None]
