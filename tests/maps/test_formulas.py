"""Every map against its formula, written once more in plain NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

import measureformer as mf
from measureformer import errors

rng = np.random.default_rng(0)
D = 3


def stacked(heads: int, k: int = 2, e: int = 4) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(heads)
    shapes = [(heads, k, D), (heads, k, D), (heads, e, D), (heads, D, e)]
    return tuple(draw.normal(size=shape) for shape in shapes)


def by_hand(
    kind: str, parts: tuple[np.ndarray, ...], points: Any, weights: Any, x: Any, scale: float = 1.0
) -> np.ndarray:
    """Loops over heads and queries; the weights of a measure enter as weights, not as logarithms."""
    out = np.zeros((len(x), D))
    for Q, K, V, W in zip(*parts, strict=True):
        for i, query in enumerate(x):
            q, k, v = Q @ query, points @ K.T, points @ V.T
            if kind == "softmax":
                p = weights * np.exp(scale * (k @ q) - (scale * (k @ q)).max())
                p = p / p.sum()
            elif kind == "L2":
                p = weights * np.exp(-scale * ((k - q) ** 2).sum(axis=1))
                p = p / p.sum()
            elif kind == "linear":
                p = weights * scale * (k @ q) / weights.sum()
            elif kind == "unnormalised":
                p = weights * np.exp(scale * (k @ q)) / weights.sum()
            else:
                best = np.isclose(k @ q, (k @ q)[weights > 0].max(), rtol=0, atol=1e-12)
                p = weights * best / (weights * best).sum()
            out[i] += W @ (p @ v)
    return out


KINDS = {
    "softmax": mf.Attention,
    "L2": mf.L2Attention,
    "linear": mf.LinearAttention,
    "unnormalised": mf.UnnormalizedAttention,
    "hardmax": mf.HardmaxAttention,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 7, 64])
def test_attention_is_its_formula(kind: str, n: int) -> None:
    parts = stacked(2)
    points, weights, x = rng.normal(size=(n, D)), rng.uniform(0.1, 2, n), rng.normal(size=(5, D))
    mu = mf.Discrete.weighted(points, weights)
    for scale in (1.0, 0.5):
        expected = by_hand(kind, parts, points, weights, x, scale)
        np.testing.assert_allclose(KINDS[kind](*parts, scale=scale)(mu, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_causal_attention_is_attention_on_the_prefix(kind: str) -> None:
    parts = stacked(2)
    points, times, x = rng.normal(size=(20, D)), rng.integers(0, 6, 20) / 5, rng.normal(size=(6, D))
    weights = rng.uniform(0.1, 2, 20)
    times[0] = 0
    sigma = mf.SpaceTime.weighted(points, times, weights)
    t = np.array([0.0, 0.1, 0.2, 0.5, 1.0, 3.0])
    out = mf.Causal(KINDS[kind](*parts))(sigma, x, t)
    for i in range(6):
        # tokens at equal times see each other: ≤, not <
        seen = times <= t[i]
        expected = by_hand(kind, parts, points[seen], weights[seen], x[i : i + 1])
        np.testing.assert_allclose(out[i : i + 1], expected, rtol=1e-12, atol=1e-12)


def test_head_is_one_head_and_convention_is_the_querys() -> None:
    Q, K, V = rng.normal(size=(3, 2, D))
    points, x = rng.normal(size=(9, D)), rng.normal(size=(4, D))
    G, mu = mf.Attention.head(Q, K, V), mf.Discrete.uniform(points)
    A = K.T @ Q
    np.testing.assert_allclose(G.A[0], A, atol=1e-15)
    p = np.exp(x @ A.T @ points.T)
    expected = (p / p.sum(axis=1, keepdims=True)) @ points @ V.T
    np.testing.assert_allclose(G(mu, x), expected, atol=1e-13)
    # with the roles of query and key exchanged the answer is another one
    assert np.abs(np.asarray(mf.Attention.head(K, Q, V)(mu, x)) - expected).max() > 1e-2


def test_special_contexts() -> None:
    G = mf.Attention.random(jax.random.key(0), D, heads=2)
    y, x = rng.normal(size=D), rng.normal(size=(5, D))
    combined = np.einsum("hoe,hed->od", np.asarray(G.W), np.asarray(G.V))
    np.testing.assert_allclose(G(mf.Discrete.dirac(y), x), np.tile(combined @ y, (5, 1)), atol=1e-14)
    points, weights = rng.normal(size=(7, D)), rng.integers(1, 5, 7)
    mu = mf.Discrete.weighted(points, weights)
    flat = mf.Attention(np.zeros_like(G.Q), G.K, G.V, G.W)
    np.testing.assert_allclose(flat(mu, x), np.tile(combined @ np.asarray(mu.mean()), (5, 1)), atol=1e-13)
    # integer weights are repetitions
    np.testing.assert_allclose(G(mu, x), G(mf.Discrete.uniform(np.repeat(points, weights, axis=0)), x), atol=1e-13)


def test_values_lie_in_the_convex_hull() -> None:
    G = mf.Attention.head(*rng.normal(size=(2, D, D)), np.eye(D))
    for _ in range(20):
        points = rng.normal(size=(6, D))
        value = np.asarray(G(mf.Discrete.uniform(points), rng.normal(size=D)))
        equations = np.vstack([points.T, np.ones(6)])
        assert linprog(np.zeros(6), A_eq=equations, b_eq=np.append(value, 1), bounds=(0, None)).success


def test_jacobian_in_the_query_is_a_covariance() -> None:
    Q, K, V = rng.normal(size=(3, D, D))
    points, weights, x = rng.normal(size=(8, D)), rng.uniform(0.1, 1, 8), rng.normal(size=D)
    G, mu = mf.Attention.head(Q, K, V), mf.Discrete.weighted(points, weights)
    p = weights * np.exp(points @ (K.T @ Q @ x))
    p = p / p.sum()
    centred = points - p @ points
    expected = V @ (centred.T * p) @ centred @ K.T @ Q
    np.testing.assert_allclose(jax.jacfwd(lambda x: G(mu, x))(x), expected, atol=1e-12)
    np.testing.assert_allclose(jax.jacrev(lambda x: G(mu, x))(x), expected, atol=1e-12)


def test_token_maps_are_their_formulas() -> None:
    x, mu = rng.normal(size=(6, D)), mf.Discrete.dirac(np.ones(D) + np.arange(D))
    M, b = rng.normal(size=(2, D)), rng.normal(size=2)
    np.testing.assert_allclose(mf.Linear(M, b)(mu, x), x @ M.T + b, atol=1e-14)
    W1, b1, W2, b2 = rng.normal(size=(5, D)), rng.normal(size=5), rng.normal(size=(D, 5)), rng.normal(size=D)
    plain = np.tanh(x @ W1.T + b1) @ W2.T + b2
    np.testing.assert_allclose(mf.MLP(W1, b1, W2, b2, activation="tanh")(mu, x), plain, atol=1e-14)
    skip = mf.MLP(W1, b1, W2, b2, activation=jax.numpy.tanh, skip=True)
    np.testing.assert_allclose(skip(mu, x), x + plain, atol=1e-14)
    g, s = rng.normal(size=D), rng.normal(size=D)
    layer = g * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3) + s
    np.testing.assert_allclose(mf.LayerNorm(g, s, eps=1e-3)(mu, x), layer, atol=1e-13)
    rms = g * x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(mf.RMSNorm(g, eps=1e-3)(mu, x), rms, atol=1e-13)
    unit = g * x / np.linalg.norm(x, axis=1, keepdims=True) + s
    np.testing.assert_allclose(mf.UnitNorm(g, s)(mu, x), unit, atol=1e-13)


def test_sinusoidal_positions() -> None:
    encoding = mf.Sinusoidal(4, length=10.0)
    t = np.array([0.1, 0.2, 1.0])
    angles = t[:, None] * 10 * np.array([1.0, 0.01])
    np.testing.assert_allclose(encoding(t), np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-14)
    sigma = mf.SpaceTime.sequence(np.ones((2, 4)))
    np.testing.assert_allclose(
        mf.Positional(encoding)(sigma, np.ones((3, 4)), t), 1 + np.asarray(encoding(t)), atol=1e-14
    )


def test_transformer_is_the_classical_one() -> None:
    """A pre-norm transformer on an (n, d) array, written as people write it, without measures."""
    for causal in (False, True):
        net = mf.Transformer.random(jax.random.key(3), dim=D, depth=2, heads=2, causal=causal)
        X = rng.normal(size=(6, D))
        h = X
        mask = np.tril(np.ones((6, 6))) if causal else np.ones((6, 6))
        for layer in net.layers:
            block: Any = layer.map if causal else layer
            mlp_part, attention_part = block.maps
            attention, mlp = attention_part.map.maps[0], mlp_part.map.maps[0]
            Q, K, V, W = (np.asarray(a) for a in (attention.Q, attention.K, attention.V, attention.W))
            normed = _layer_norm(h)
            update = np.zeros_like(h)
            for j in range(2):
                p = mask * np.exp(normed @ Q[j].T @ K[j] @ normed.T)
                update += (p / p.sum(axis=1, keepdims=True)) @ normed @ V[j].T @ W[j].T
            h = h + update
            hidden = np.asarray(jax.nn.gelu(_layer_norm(h) @ np.asarray(mlp.W1).T))
            h = h + hidden @ np.asarray(mlp.W2).T
        np.testing.assert_allclose(net.tokens(X), h, atol=1e-12)


def _layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def test_sinkhorn_is_doubly_stochastic() -> None:
    points, weights = rng.normal(size=(9, D)), rng.uniform(0.1, 1, 9)
    Q, K = rng.normal(size=(2, 2, D))
    mu = mf.Discrete.weighted(points, weights)
    G = mf.SinkhornAttention.head(Q, K, np.eye(D))
    # dense Sinkhorn on the kernel, as an oracle
    kernel, p = np.exp(points @ Q.T @ K @ points.T), weights / weights.sum()
    u, v = np.ones(9), np.ones(9)
    for _ in range(20_000):
        u = 1 / (kernel @ (v * p))
        v = 1 / (kernel.T @ (u * p))
    plan = u[:, None] * kernel * v * p
    np.testing.assert_allclose(G(mu, points), plan @ points, atol=1e-8)
    assert float(G.residual(mu)[0]) < 1e-9
    # the column marginal is the measure itself, so the barycentre is kept
    np.testing.assert_allclose(G.push(mu).mean(), mu.mean(), atol=1e-9)
    stopped = mf.SinkhornAttention.head(Q, K, np.eye(D), max_iterations=2)
    assert float(stopped.residual(mu)[0]) > 1e-4  # and it says so when it has not converged
    softmax = mf.Attention.head(Q, K, np.eye(D)).push(mu)
    assert np.abs(np.asarray(softmax.mean()) - np.asarray(mu.mean())).max() > 1e-2


def test_heads_that_share_keys_and_values_are_heads_with_copies_of_them() -> None:
    rng = np.random.default_rng(6)
    Q, W = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 3, 2))
    K, V = rng.normal(size=(2, 2, 2, 3))
    biases: tuple[Any, ...] = rng.normal(size=(4, 2)), *rng.normal(size=(2, 2, 2)), None
    copied = *biases[:1], *(np.repeat(b, 2, axis=0) for b in biases[1:3]), None
    shared = mf.RotaryAttention(Q, K, V, W, frequencies=[0.7], biases=biases)
    parts: list[Any] = [Q, *(np.repeat(part, 2, axis=0) for part in (K, V)), W]
    plain = mf.RotaryAttention(*parts, frequencies=[0.7], biases=copied)
    mu = mf.SpaceTime.uniform(rng.normal(size=(5, 3)), np.arange(5.0))
    np.testing.assert_allclose(shared.push(mu).points, plain.push(mu).points, rtol=1e-12)
    np.testing.assert_array_equal(shared.full.K, plain.K)
    np.testing.assert_array_equal(shared.A, plain.A)
    assert mf.local_lipschitz(shared, mu).upper == pytest.approx(mf.local_lipschitz(plain, mu).upper, rel=1e-9)
    with pytest.raises(errors.DimensionMismatchError, match="Stack heads"):
        mf.RotaryAttention(Q[:3], K, V, W[:3], frequencies=[0.7])
    with pytest.raises(errors.DimensionMismatchError, match="Stack heads"):
        mf.Attention(*[Q, K, V, W])
