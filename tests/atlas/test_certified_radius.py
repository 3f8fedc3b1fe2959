"""The certified radius that a claim about real weights rests on, on small clouds where everything can be computed."""

from __future__ import annotations

import numpy as np

import measureformer as mf
from measureformer.atlas.claims.lens.castin_2024_certified_radius_on_real_text import Heads

RNG = np.random.default_rng(0)
N, D = 5, 3


def drawn() -> tuple[Heads, np.ndarray, mf.AffineAttention]:
    Q, K, V, W = (RNG.normal(size=(2, D, D)) for _ in range(4))
    bias = RNG.normal(size=(2, D))
    G = mf.AffineAttention(Q, K, V, W, biases=(bias, None, None, None), scale=0.5)
    shift = 0.5 * np.einsum("hki,hk->hi", K, bias)
    return Heads(np.asarray(G.A, np.float64), shift, W @ V), RNG.normal(size=(N, D)), G


def test_it_is_the_attention_of_the_layer() -> None:
    heads, X, G = drawn()
    np.testing.assert_allclose(heads(X), G.push(mf.Discrete.uniform(X)).points, atol=1e-5)


def test_the_constant_bounds_the_derivative_everywhere_in_the_ball() -> None:
    # kills: a ball that is not enlarged, a root of n left out, a logit without its shift
    for _ in range(20):
        heads, X, _ = drawn()
        far = float(RNG.uniform(0, 2))
        Y = X + far * RNG.uniform(-1, 1, (N, D)) / np.sqrt(D)
        eye = 1e-6 * np.eye(N * D).reshape(-1, N, D)
        J = np.stack([(heads(Y + U) - heads(Y - U)).ravel() / 2e-6 for U in eye], axis=1)
        assert np.linalg.norm(J, 2) <= heads.constant(X, far)


def test_nothing_inside_the_radius_moves_the_output_that_far() -> None:
    heads, X, _ = drawn()
    for moved in (0.01, 1.0):
        radius = heads.radius(X, moved)
        assert radius > 0
        for _ in range(200):
            U = RNG.normal(size=(N, D)) * (RNG.random((N, 1)) < RNG.random())
            size = np.sqrt((U**2).sum(axis=1).mean())
            if size > 0:
                step = heads(X + radius / size * U) - heads(X)
                assert np.sqrt((step**2).sum(axis=1).mean()) <= moved
