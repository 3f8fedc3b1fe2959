"""A certified upper bound of the local Lipschitz constant, from the exact derivative with measured quantities.

The derivative of the token map of one head at the atoms x_i of mass p_i, with P the softmax of row i, m_i and C_i mean
and covariance of the tilted measure, a_i = A x_i and ξ_j = x_j − m_i, is

    Df[U]_i = V Σ_j P_ij (U_j + ξ_j ⟨a_i, U_j⟩)  +  V C_i A U_i.

The first part mixes tokens. For a unit vector w and under P_i,

    ⟨w, V E(U + ξ⟨a,U⟩)⟩ = E⟨Vᵀw + ⟨Vᵀw, ξ⟩ a, U⟩ ≤ (|Vᵀw|² + |a|² wᵀV C Vᵀw)^{1/2} (E|U|²)^{1/2},

where the cross term has vanished because E ξ = 0. With s_i = λ_max(V (I + |a_i|² C_i) Vᵀ), the norm in L²(mu) of the
first part is therefore at most (max_j c_j)^{1/2} for the weighted column sums c_j = Σ_i p_i s_i P_ij / p_j. The second
part acts on single tokens, and has the norm max_i |V C_i A|. QED.

Several heads are written as Σ_h O_h V_h with orthonormal columns in each O_h (the triangular factor of W_h goes into
V_h). Either the bounds of the heads are added, or their squares: the mixing part is then at most
‖(O_1 … O_H)‖ (max_j Σ_h c_j^h)^{1/2}, and ‖(O_1 … O_H)‖ = 1 where the heads are concatenated. The smaller one counts.

Every map is treated like this, as a mixing part of bounded norm and a part that acts on single tokens; sums add both,
and (M₂ + D₂)(M₁ + D₁) = (M₂ (M₁ + D₁) + D₂ M₁) + D₂ D₁ for compositions.

Arithmetic. The inequality holds in exact arithmetic. Its right-hand side is computed in the precision of the layer, and
is enlarged by the rounding bounds of the engine (the model of `measureformer.attention.rounding`) and by a relative
allowance for small matrices, whose eigenvalues are assumed to be correct to a modest multiple of the unit roundoff.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.attention import Attended, attend
from measureformer.maps import (
    MLP,
    Attention,
    Causal,
    Compose,
    Identity,
    LayerNorm,
    Linear,
    Positional,
    Residual,
    RMSNorm,
    Scaled,
    Sum,
    Transformer,
    UnitNorm,
)
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Prefixes

AFFORDABLE = 2**33
"""Multiplications that covariances may cost: a fraction of a second. Beyond, traces bound them from above."""

AT_ONCE = 256
"""Tokens whose small matrices exist at the same time."""


class Parts(NamedTuple):
    """Bounds for a derivative: of the part that mixes tokens, and of what it does to each token by itself, (n,)."""

    mixing: Any
    pointwise: Array

    @property
    def total(self) -> Any:
        return self.mixing + jnp.max(self.pointwise)


def upper_bound(G: AbstractInContextMap, mu: Any) -> Array:
    """At least the norm in L²(mu) of the derivative of the token map of G; infinite where no bound is known."""
    total = parts(G, mu).total
    dims = mu.dim + G.out_dim(mu.dim)
    allowance = 1 + 100 * dims * float(jnp.finfo(mu.points.dtype).eps)
    # 0 · ∞ of a map without a bound is not a number
    return jnp.where(jnp.isnan(total), jnp.inf, total * allowance)


@singledispatch
def parts(G: AbstractInContextMap, mu: Any) -> Parts:
    """The two bounds for a map; unknown maps have none. A new map gets one with `@parts.register`. Under `jit`."""
    return Parts(jnp.inf, jnp.zeros_like(mu.log_weights))


def has_certificate(G: AbstractInContextMap) -> bool:
    """Whether a bound is known for every map that G is made of."""
    inner = getattr(G, "maps", None) or [getattr(G, name) for name in ("map", "first", "second") if hasattr(G, name)]
    return parts.dispatch(type(G)) is not parts.dispatch(object) and all(map(has_certificate, inner))


@parts.register
def _(G: Identity, mu: Any) -> Parts:
    return Parts(0.0, jnp.ones_like(mu.log_weights))


@parts.register
def _(G: Positional, mu: Any) -> Parts:
    return Parts(0.0, jnp.ones_like(mu.log_weights))


@parts.register(Linear)
@parts.register(MLP)
@parts.register(LayerNorm)
@parts.register(RMSNorm)
@parts.register(UnitNorm)
def _(G: AbstractInContextMap, mu: Any) -> Parts:
    """Maps of the point alone: the derivative at each token, exactly."""

    def one(x: Array) -> Array:
        return _norm(jax.jacfwd(lambda x: G.evaluate(None, x[None], None)[0])(x))

    return Parts(0.0, jax.lax.map(one, mu.points, batch_size=AT_ONCE))


@parts.register
def _(G: Residual, mu: Any) -> Parts:
    mixing, pointwise = parts(G.map, mu)
    return Parts(jnp.abs(G.step) * mixing, 1 + jnp.abs(G.step) * pointwise)


@parts.register
def _(G: Scaled, mu: Any) -> Parts:
    mixing, pointwise = parts(G.map, mu)
    return Parts(jnp.abs(G.factor) * mixing, jnp.abs(G.factor) * pointwise)


@parts.register
def _(G: Sum, mu: Any) -> Parts:
    first, second = parts(G.first, mu), parts(G.second, mu)
    return Parts(first.mixing + second.mixing, first.pointwise + second.pointwise)


@parts.register
def _(G: Transformer, mu: Any) -> Parts:
    return parts(G.map, mu)


@parts.register
def _(G: Causal, mu: Any) -> Parts:
    return parts(G.map, mu if isinstance(mu, Prefixes) else Prefixes(mu))


@parts.register
def _(G: Compose, mu: Any) -> Parts:
    done = Parts(0.0, jnp.ones_like(mu.log_weights))
    for layer in reversed(G.maps):
        here = parts(layer, mu)
        mixing = here.mixing * done.total + jnp.max(here.pointwise) * done.mixing
        done = Parts(mixing, here.pointwise * done.pointwise)
        mu = mu.with_points(layer.at_atoms(mu))
    return done


@parts.register
def _(G: Attention, mu: Any) -> Parts:
    q, k, _ = G.project(mu, mu.points)
    frames, R = jnp.linalg.qr(G.W)
    V = R @ G.V
    v = jnp.einsum("hed,nd->hne", V, mu.points)
    log_weights = mu.log_weights - mu.log_mass
    times = (mu.times, mu.times) if isinstance(mu, Prefixes) else None
    seen = partial(attend, q, k, log_weights=log_weights, times=times)
    # covariances do not feel a shift, but rounding does
    centred = [rows - jnp.einsum("n,hni->hi", jnp.exp(log_weights), rows)[:, None] for rows in (v, k)]
    spread = _covariances if _affordable(G, mu.n) else _traces
    size, pointwise, log_z = spread(G, frames, V, centred, jnp.linalg.norm(q @ G.K, axis=2), seen)
    # Σ_i p_i s_i e^{l_ij − log Z_i}: attention with queries and keys exchanged, and with them the arrow of time
    flipped = None if times is None else (-mu.times, -mu.times)
    nothing = jnp.zeros((*q.shape[:2], 0), q.dtype)
    columns = attend(k, q, nothing, log_weights + jnp.log(jnp.maximum(size, 0)) - log_z, times=flipped)
    massive = mu.log_weights > -jnp.inf
    sums = jnp.where(massive, jnp.exp(columns.log_normalizer + columns.log_normalizer_error), 0)
    added = jnp.sum(jnp.sqrt(jnp.max(sums, axis=1)))
    squared = _norm(jnp.concatenate(list(frames), axis=1)) * jnp.sqrt(jnp.max(jnp.sum(sums, axis=0)))
    return Parts(jnp.minimum(added, squared), jnp.where(massive, pointwise, 0))


def _affordable(G: Attention, n: int) -> bool:
    heads, rows, width = G.K.shape[0], G.K.shape[1], min(G.W.shape[1:])
    return heads * n * n * width * (width + rows) <= AFFORDABLE


def _covariances(
    G: Attention,
    frames: Array,
    V: Array,
    centred: list[Array],
    gradients: Array,
    seen: Callable[..., Attended],
) -> tuple[Array, Array, Array]:
    """s_i of each head (h, n), |Σ_h O_h Cov(v, k) Q_h| (n,), and a lower bound of log Z (h, n)."""
    v, k = centred
    h, n, e = v.shape
    both = jnp.concatenate([v, k], axis=2)
    products = (v[..., :, None] * both[..., None, :]).reshape(h, n, -1)
    out = seen(v=jnp.concatenate([both, products], axis=2))
    mean, second = out.values[..., : both.shape[2]], out.values[..., both.shape[2] :]
    slack = out.error_bound * (1 + 2 * jnp.linalg.norm(mean, axis=2)) + out.error_bound**2
    queries = G.scale * G.Q

    def one(token: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        mean, second, gradients = token
        cov = second.reshape(h, e, -1) - mean[:, :e, None] * mean[:, None, :]
        size = V @ V.swapaxes(1, 2) + gradients[:, None, None] ** 2 * cov[..., :e]
        return jax.vmap(_top)(size), _norm(jnp.einsum("hoe,hek,hkd->od", frames, cov[..., e:], queries))

    tokens = (mean.swapaxes(0, 1), second.swapaxes(0, 1), gradients.T)
    size, pointwise = jax.lax.map(one, tokens, batch_size=AT_ONCE)
    # heads add up, each with its own error of the covariance
    errors = jnp.sum(slack * jax.vmap(_norm)(queries)[:, None], axis=0)
    return size.T + gradients**2 * slack, pointwise + errors, out.log_normalizer - out.log_normalizer_error


def _traces(
    G: Attention,
    frames: Array,
    V: Array,
    centred: list[Array],
    gradients: Array,
    seen: Callable[..., Attended],
) -> tuple[Array, Array, Array]:
    """The same from λ_max ≤ trace, and from |Cov(v, k)| ≤ (trace of Cov(v) · trace of Cov(k))^{1/2}."""
    v, k = centred
    squares = jnp.stack([jnp.sum(rows * rows, axis=2) for rows in (v, k)], axis=2)
    out = seen(v=jnp.concatenate([v, k, squares], axis=2))
    means = out.values[..., : v.shape[2]], out.values[..., v.shape[2] : -2]
    below = jnp.stack([jnp.maximum(jnp.linalg.norm(m, axis=2) - out.error_bound, 0) ** 2 for m in means], axis=2)
    spread = jnp.maximum(out.values[..., -2:] + out.error_bound[..., None] - below, 0)
    size = jax.vmap(_norm)(V)[:, None] ** 2 + gradients**2 * spread[..., 0]
    cross = jnp.sqrt(spread[..., 0] * spread[..., 1]) * jax.vmap(_norm)(G.scale * G.Q)[:, None]
    return size, jnp.sum(cross, axis=0), out.log_normalizer - out.log_normalizer_error


def _norm(matrix: Array) -> Array:
    """The operator norm."""
    small = matrix.shape[0] <= matrix.shape[1]
    return jnp.sqrt(jnp.maximum(_top(matrix @ matrix.T if small else matrix.T @ matrix), 0))


def _top(symmetric: Array) -> Array:
    """The largest eigenvalue of a symmetric matrix."""
    return jnp.linalg.eigvalsh(symmetric)[-1]
