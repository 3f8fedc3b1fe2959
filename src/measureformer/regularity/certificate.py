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

Heads that turn with time (`RotaryAttention`) have gradients a_ij that depend on the token too, of norm at most
‖K_h‖|q_i|. The cross term is then not zero, and s_i^{1/2} is replaced by ‖V‖ + ‖K_h‖|q_i| λ_max(V C_i Vᵀ)^{1/2}; the
second part is V Cov_i(x, R(s)Kx) R(t_i)Q, with the covariance of values and turned keys.

In large dimensions two norms are bounded instead of computed for every token. The second part is at most
‖(O_1 … O_H)‖ (Σ_h ‖Cov_h Q_h‖²)^{1/2}. Perceptrons and normalisations are bounded by the norms of their factors:
‖W₂‖ max|σ'| ‖W₁‖, and max|weight|/√(variance + eps).

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

from measureformer.attention import attend
from measureformer.attention.attend import Attended
from measureformer.maps import (
    MLP,
    AffineAttention,
    Attention,
    Causal,
    GatedMLP,
    Identity,
    LayerNorm,
    Linear,
    Positional,
    Residual,
    RMSNorm,
    RotaryAttention,
    Transformer,
    UnitNorm,
)
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import Compose, Scaled, Sum
from measureformer.numerics import lapack
from measureformer.numerics.lapack import top_eigenvalue
from measureformer.numerics.norms import leveller, norms

AFFORDABLE = 2**33
"""Multiplications that covariances may cost: a fraction of a second. Beyond, traces bound them from above."""

LARGE = 256
"""Dimension beyond which the norm of a matrix is bounded rather than computed for every token."""

SAFETY = 16
"""What the largest change of a derivative by changes in the last places counts for."""

AT_ONCE = 256
"""Tokens whose small matrices exist at the same time."""


Heads = Attention | AffineAttention | RotaryAttention


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
@parts.register(GatedMLP)
@parts.register(LayerNorm)
@parts.register(RMSNorm)
@parts.register(UnitNorm)
def _(G: AbstractInContextMap, mu: Any) -> Parts:
    """Maps of the point alone: the derivative at each token, exactly; in large dimensions a bound of its factors."""
    if mu.dim > LARGE and type(G) in _FACTORS:
        return Parts(0.0, _FACTORS[type(G)](G, mu.points))

    turns = float(jnp.finfo(mu.points.dtype).eps) * (1 - 2 * (jnp.arange(mu.dim) % 2)).astype(mu.points.dtype)

    def one(x: Array) -> Array:
        # these maps read no measure; where they cancel, a change in the last places tells how much
        slope = jax.jacfwd(lambda x: G.evaluate(mu, x[None], None)[0])
        found = slope(x)
        moved = [norms((slope(x * (1 + sign * turns)) - found).ravel()) for sign in (1, -1)]
        return _norm(found) + SAFETY * jnp.maximum(*moved)

    return Parts(0.0, jax.lax.map(one, mu.points, batch_size=AT_ONCE))


def _linear(G: Linear, x: Array) -> Array:
    return jnp.broadcast_to(_norm(G.matrix), x.shape[:1])


def _perceptron(G: MLP, x: Array) -> Array:
    slopes = _slopes(G.activation, x @ G.W1.T + G.b1)
    return _norm(G.W2) * jnp.max(jnp.abs(slopes), axis=1) * _norm(G.W1) + (1.0 if G.skip else 0.0)


def _gated(G: GatedMLP, x: Array) -> Array:
    gate, up = x @ G.W_gate.T, x @ G.W_up.T
    by_gate = jnp.max(jnp.abs(_slopes(G.activation, gate) * up), axis=1) * _norm(G.W_gate)
    by_up = jnp.max(jnp.abs(G.activation(gate)), axis=1) * _norm(G.W_up)
    return _norm(G.W_down) * (by_gate + by_up)


def _layer_norm(G: LayerNorm, x: Array) -> Array:
    centred, roots = x - jnp.mean(x, axis=1, keepdims=True), x.shape[1] ** 0.5
    rounding = 4 * x.shape[1] * float(jnp.finfo(x.dtype).eps) * jnp.max(jnp.abs(x), axis=1)
    deviation = jnp.maximum(norms(centred) / roots - rounding, 0)
    return jnp.max(jnp.abs(G.weight)) / norms(jnp.stack([deviation, jnp.full_like(deviation, jnp.sqrt(G.eps))]), axis=0)


def _rms_norm(G: RMSNorm, x: Array) -> Array:
    size = norms(x) / x.shape[1] ** 0.5
    return jnp.max(jnp.abs(G.weight)) / norms(jnp.stack([size, jnp.full_like(size, jnp.sqrt(G.eps))]), axis=0)


def _slopes(activation: Callable[[Array], Array], at: Array) -> Array:
    return jax.jvp(activation, (at,), (jnp.ones_like(at),))[1]


_FACTORS: dict[type, Callable[[Any, Array], Array]] = {
    Linear: _linear,
    MLP: _perceptron,
    GatedMLP: _gated,
    LayerNorm: _layer_norm,
    RMSNorm: _rms_norm,
}


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
    return parts(G.map, mu.masked())


@parts.register
def _(G: Compose, mu: Any) -> Parts:
    done = Parts(0.0, jnp.ones_like(mu.log_weights))
    for layer in reversed(G.maps):
        here = parts(layer, mu)
        mixing = here.mixing * done.total + jnp.max(here.pointwise) * done.mixing
        done = Parts(mixing, here.pointwise * done.pointwise)
        mu = mu.with_points(layer.at_atoms(mu))
    return done


@parts.register(Attention)
@parts.register(AffineAttention)
@parts.register(RotaryAttention)
def _(G: Heads, mu: Any) -> Parts:
    G = G.full if isinstance(G, RotaryAttention) else G
    turning = isinstance(G, RotaryAttention)
    q, k, _ = G.project_at(mu, mu.points, mu.times) if turning else G.project(mu, mu.points)
    frames, R = lapack.qr(G.W)
    V = R @ G.V
    v = jnp.einsum("hed,nd->hne", V, mu.points)
    log_weights = mu.log_weights - mu.log_mass
    times = mu.visible(getattr(mu, "times", None))
    seen = partial(attend, q, k, log_weights=log_weights, times=times)
    # covariances do not feel a shift, but rounding does
    centred = [rows - jnp.einsum("n,hni->hi", jnp.exp(log_weights), rows)[:, None] for rows in (v, k)]
    gradients = jax.vmap(_norm)(G.K)[:, None] * norms(q) if turning else norms(q @ G.K)
    spread = _covariances if _affordable(G, mu.n) else _traces
    size, pointwise, log_z = spread(G, mu, _Frames(frames, V), centred, gradients, seen)
    # Σ_i p_i s_i e^{l_ij − log Z_i}: attention with queries and keys exchanged, and with them the arrow of time
    flipped = None if times is None else (-mu.times, -mu.times)
    nothing = jnp.zeros((*q.shape[:2], 0), q.dtype)
    columns = attend(k, q, nothing, log_weights + jnp.log(jnp.maximum(size, 0)) - log_z, times=flipped)
    massive = mu.log_weights > -jnp.inf
    sums = jnp.where(massive, jnp.exp(columns.log_normalizer + columns.log_normalizer_error), 0)
    added = jnp.sum(jnp.sqrt(jnp.max(sums, axis=1)))
    squared = _stacked(frames) * jnp.sqrt(jnp.max(jnp.sum(sums, axis=0)))
    return Parts(jnp.minimum(added, squared), jnp.where(massive, pointwise, 0))


def _affordable(G: Heads, n: int) -> bool:
    heads, rows, width = G.K.shape[0], G.K.shape[1], min(G.W.shape[1:])
    return heads * n * n * width * (width + rows) <= AFFORDABLE


def _mixing_size(G: Heads, V: Array, gradients: Array, cov: Array, slack: Array) -> Array:
    """s_i of one token for each head (h,), from the covariances of its values (h, e, e), each wrong by `slack`."""
    if isinstance(G, RotaryAttention):
        spread = jnp.sqrt(jnp.maximum(top_eigenvalue(cov) + slack, 0))
        return (jax.vmap(_norm)(V) + gradients * spread) ** 2
    return top_eigenvalue(V @ V.swapaxes(1, 2) + gradients[:, None, None] ** 2 * cov) + gradients**2 * slack


def _covariances(
    G: Heads, mu: Any, heads: _Frames, centred: list[Array], gradients: Array, seen: Callable[..., Attended]
) -> tuple[Array, Array, Array]:
    """s_i of each head (h, n), |Σ_h O_h Cov(v, k) Q_h| (n,), and a lower bound of log Z (h, n)."""
    v, k = centred
    h, n, e = v.shape
    both = jnp.concatenate([v, k], axis=2)
    products = (v[..., :, None] * both[..., None, :]).reshape(h, n, -1)
    out = seen(v=jnp.concatenate([both, products], axis=2))
    mean, second = out.values[..., : both.shape[2]], out.values[..., both.shape[2] :]
    slack = out.error_bound * (1 + 2 * norms(mean)) + out.error_bound**2
    queries = G.scale * G.Q
    # of one head the bound is exact
    large = h == 1 or min(G.W.shape[1], G.Q.shape[2]) > LARGE
    grams, stacked = queries @ queries.swapaxes(1, 2), _stacked(heads.O)

    def one(token: tuple[Array, ...]) -> tuple[Array, Array]:
        mean, second, gradients, slack, time = token
        cov = second.reshape(h, e, -1) - mean[:, :e, None] * mean[:, None, :]
        crossed = cov[..., e:]
        if isinstance(G, RotaryAttention):
            # Cov R(t) = (R(−t) Covᵀ)ᵀ, row by row
            crossed = G.turned(crossed, -time[None])
        if large:
            squares = jax.vmap(lambda c, gram: top_eigenvalue(c @ gram @ c.T))(crossed, grams)
            norm = stacked * jnp.sqrt(jnp.sum(jnp.maximum(squares, 0)))
        else:
            norm = _norm(jnp.einsum("hoe,hek,hkd->od", heads.O, crossed, queries))
        return _mixing_size(G, heads.V, gradients, cov[..., :e], slack), norm

    times = mu.times if isinstance(G, RotaryAttention) else jnp.zeros_like(mu.log_weights)
    tokens = (mean.swapaxes(0, 1), second.swapaxes(0, 1), gradients.T, slack.T, times)
    size, pointwise = jax.lax.map(one, tokens, batch_size=AT_ONCE)
    # heads add up, each with its own error of the covariance
    errors = jnp.sum(slack * jax.vmap(_norm)(queries)[:, None], axis=0)
    return size.T, pointwise + errors, out.log_normalizer - out.log_normalizer_error


def _traces(
    G: Heads, mu: Any, heads: _Frames, centred: list[Array], gradients: Array, seen: Callable[..., Attended]
) -> tuple[Array, Array, Array]:
    """The same from λ_max ≤ trace, and from |Cov(v, k)| ≤ (trace of Cov(v) · trace of Cov(k))^{1/2}."""
    v, k = centred
    squares = jnp.stack([jnp.sum(rows * rows, axis=2) for rows in (v, k)], axis=2)
    out = seen(v=jnp.concatenate([v, k, squares], axis=2))
    means = out.values[..., : v.shape[2]], out.values[..., v.shape[2] : -2]
    below = jnp.stack([jnp.maximum(norms(m) - out.error_bound, 0) ** 2 for m in means], axis=2)
    spread = jnp.maximum(out.values[..., -2:] + out.error_bound[..., None] - below, 0)
    sizes = jax.vmap(_norm)(heads.V)[:, None]
    if isinstance(G, RotaryAttention):
        size = (sizes + gradients * jnp.sqrt(spread[..., 0])) ** 2
    else:
        size = sizes**2 + gradients**2 * spread[..., 0]
    cross = jnp.sqrt(spread[..., 0] * spread[..., 1]) * jax.vmap(_norm)(G.scale * G.Q)[:, None]
    return size, jnp.sum(cross, axis=0), out.log_normalizer - out.log_normalizer_error


class _Frames(NamedTuple):
    """Heads as O_h V_h: orthonormal columns (h, o, e), and values (h, e, d)."""

    O: Array  # noqa: E741
    V: Array


def _stacked(frames: Array) -> Array:
    """‖(O_1 … O_H)‖."""
    return _norm(jnp.concatenate(list(frames), axis=1))


def _norm(matrix: Array) -> Array:
    """The operator norm."""
    unit = leveller(jnp.max(jnp.abs(matrix), initial=0))
    matrix = (matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T) * unit
    return jnp.sqrt(jnp.maximum(top_eigenvalue(matrix @ matrix.T), 0)) / unit
