"""The same compiled network on thousands of tokens."""

from __future__ import annotations

import numpy as np

import measureformer as mf


def test_many_tokens_are_as_exact_as_five() -> None:
    rng = np.random.default_rng(0)

    def block() -> mf.universality.Block:
        u, v, b = rng.normal(size=(3, 2)) / 2
        return mf.universality.Block(rng.normal(size=(2, 2)), b, rng.normal(), u, v)

    e = mf.universality.vector(block() * block() * block() + block(), block() * block() - 2 * block())
    net = mf.universality.compile(e, mf.Box([-1.0, -1.0], [1.0, 1.0]), activation="quadratic")
    mu = mf.Discrete.weighted(rng.uniform(-1, 1, (5000, 2)), rng.uniform(0.01, 2, 5000))
    x = rng.uniform(-1, 1, (20, 2))
    for context in (mu, mf.Discrete.uniform(mu.points)):
        np.testing.assert_allclose(net(context, x), e(context, x), rtol=0, atol=1e-10)
