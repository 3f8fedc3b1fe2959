"""`SinkhornAttention`: a doubly stochastic kernel, so that attention is a coupling of the measure with itself."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import OptionError, TimeError
from measureformer.maps.base import no_closed_form
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import AbstractMeasure, Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype
from measureformer.numerics.checked import checked
from measureformer.numerics.roots import psd_root
from measureformer.numerics.sinkhorn import Potentials, sinkhorn_potentials
from measureformer.numerics.types import ArrayLike


class SinkhornAttention(AbstractHeads):
    """∫ e^{f(x) + ⟨Qx,Ky⟩ + g(y)} V y dmu(y), with f and g such that both marginals of the coupling are mu.

    Off the support, f(x) normalises the row of the new query. There is no causal form.

    Arguments:
        Q: queries, (h, k, d).
        K: keys, (h, k, d).
        V: values, (h, e, d).
        W: outputs, (h, d_out, e).
        scale: factor of the logits: 1 in the theory, 1/√k in trained models.
        tol: largest error of the column marginal at which the iteration stops.
        max_iterations: number of iterations after which it stops anyway.

    Statement   on N(m, Σ): x ↦ V (m + S A (x−m)), S = Σ^{1/2}(I − MᵀM)Σ^{1/2}, where Σ^{1/2}AᵀΣ^{1/2} = U diag(b) Zᵀ
                and M = U diag(2b/(1+√(1+4b²))) Zᵀ
    Ref         sander2022; castin2025.

    >>> import measureformer as mf
    >>> G = mf.SinkhornAttention.head([[1.0]], [[1.0]], [[1.0]])
    >>> mu = mf.Discrete.uniform([[-1.0], [0.5], [2.0]])
    >>> bool(G.residual(mu)[0] < 1e-9), abs(float(G.push(mu).mean()[0] - mu.mean()[0])) < 1e-9
    (True, True)
    """

    tol: float = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike,
        W: ArrayLike,
        *,
        scale: ArrayLike = 1.0,
        tol: float = 1e-10,
        max_iterations: int = 10_000,
    ) -> None:
        super().__init__(Q, K, V, W, scale=scale)
        if not tol > 0 or max_iterations < 1:
            raise OptionError(
                got=f"tol = {tol!r}, max_iterations = {max_iterations!r}",
                need="a positive tolerance and at least one iteration",
                do="Leave them out for 1e-10 and 10000.",
            )
        self.tol = float(tol)
        self.max_iterations = int(max_iterations)

    def on_atoms(self, mu: AbstractAtomic, x: Array, t: Array | None) -> Array:
        if mu.visible(t) is not None:
            raise TimeError(
                got="SinkhornAttention inside Causal",
                need="a kernel with a causal form",
                do="Double stochasticity ties every token to every other; use mf.Attention or mf.L2Attention there.",
            )
        q, k, v = self.project(mu, x)
        return attend(q, k, v, mu.log_weights + self.potentials(mu).g).values

    def residual(self, mu: AbstractMeasure) -> Float[Array, " h"]:
        """Total error of the column marginal per head, at most about `tol` when converged; rows are exact.

        Arguments:
            mu: the context, a measure with atoms.
        """
        self.check_meets(mu, None)
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu, "residual")
        padded = mu.padded()
        return _compiled_potentials(*cast((self, padded), common_dtype(self, mu))).residual

    def potentials(self, mu: AbstractAtomic) -> Potentials:
        """Potentials f and g per head, for mu of mass 1; called under `jit`.

        Arguments:
            mu: the context.
        """
        q, k, _ = self.project(mu, mu.points)
        log_weights = mu.log_weights - mu.log_mass
        nothing = jnp.zeros((*k.shape[:2], 0), k.dtype)

        def rows(g: Array) -> Array:
            return -attend(q, k, nothing, log_weights + g).log_normalizer

        def cols(f: Array) -> Array:
            return -attend(k, q, nothing, log_weights + f).log_normalizer

        # float32 cannot see potentials more finely than this
        tol = max(self.tol, 30 * float(np.finfo(k.dtype).eps))
        weights = jnp.broadcast_to(jnp.exp(log_weights), k.shape[:2])
        return sinkhorn_potentials(rows, cols, weights, tol=tol, max_iterations=self.max_iterations)

    def on_gaussian(self, mu: AbstractGaussianLike, x: Array) -> Array:
        if not isinstance(mu, Gaussian):
            raise no_closed_form(self, mu)
        root = psd_root(mu.cov)

        def one(A: Array, V: Array) -> Array:
            # one batch at a time, and gradients go through it
            _, b, Zt = jnp.linalg.svd(root @ A.T @ root)  # noqa: TID251
            # 1 − (2b/(1+√(1+4b²)))², without the cancellation that large covariances would suffer
            shares = 2 / (1 + jnp.sqrt(1 + 4 * b * b))
            spread = root @ (Zt.T * shares) @ Zt @ root
            return (mu.center + (x - mu.center) @ (spread @ A).T) @ V.T

        return jax.vmap(one)(self.A, self.V)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return isinstance(mu, Gaussian)


@eqx.filter_jit
def _compiled_potentials(G: SinkhornAttention, mu: AbstractAtomic) -> Potentials:
    return G.potentials(mu)
