"""Hybrids of mixers, which claims train: they are ordinary maps, of nearly equal size, and learn what they should."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer.atlas.helpers.sequences_hybrids import MIXERS, Weights, drawn, train, values

N, DIM = 4, 5


def ordinary(w: Weights, kind: str) -> mf.AbstractInContextMap:
    """The only layer as maps of the library, on embedded tokens."""
    Q, K, V, W, P, kernel = (w.layers[name][0] for name in ("Q", "K", "V", "W", "P", "kernel"))
    W1, b1, W2, b2 = (w.layers[name][0] for name in ("W1", "b1", "W2", "b2"))
    mixers = {
        "attention": mf.Attention(Q[None], K[None], V[None], W[None]),
        "bilinear": mf.sequences.Bilinear(W, P),
        "conv": mf.sequences.SeparableConv(kernel, W, n=N),
        "none": mf.Linear(np.zeros((DIM, DIM))),
    }
    return mf.MLP(W1, b1, W2, b2, activation="gelu", skip=True) @ mf.Residual(mixers[kind])


@pytest.mark.parametrize("kind", [*MIXERS, "none"])
def test_a_layer_is_an_ordinary_map(kind: str) -> None:
    # kills: a kernel that is mirrored, P transposed, flags in another order, read-out bias left out
    rng = np.random.default_rng(1)
    weights, _ = drawn(rng, [kind], N, DIM)
    weights.readout[:, -1] = 0.7
    X = rng.uniform(size=(2, N, 1))
    found = values(weights, X, np.array([[float(kind == name) for name in MIXERS]]))
    for x, y in zip(X, found, strict=True):
        tokens = ordinary(weights, kind).tokens(x @ weights.embed[:, :1].T + weights.embed[:, 1] + weights.places)
        np.testing.assert_allclose(y, tokens @ weights.readout[:, :-1].T + 0.7, atol=1e-12)


def test_hybrids_learn_at_equal_size() -> None:
    def f(X: np.ndarray) -> np.ndarray:
        return np.sort(X, axis=-2)

    sizes = {"n": 3, "dim": 6, "batch": 64}
    nets = [("attention", "bilinear"), ("none", "none")]
    (found, none), (start, _) = (train(f, nets, jax.random.key(0), steps=steps, **sizes) for steps in (300, 0))
    assert found.error < 0.6 * none.error < 0.6 * start.error
    assert abs(found.parameters / none.parameters - 1) < 0.03
    # kills: a step size, a clip or a mean over all networks
    (alone,) = train(f, nets[1:], jax.random.key(0), steps=300, **sizes)
    assert alone.error == pytest.approx(none.error, rel=1e-6)


def test_the_parameters_are_those_of_the_arrays_in_use() -> None:
    # kills: units beyond the width of a layer counted, the read-out forgotten
    used = {"attention": "QKVW", "bilinear": ["P", "W"], "conv": ["kernel", "W"], "none": ""}
    for kind, names in used.items():
        weights, (width,) = drawn(np.random.default_rng(0), [kind], N, DIM)
        count = sum(weights.layers[name].size for name in names) + width * (2 * DIM + 1) + DIM
        count += weights.embed.size + weights.places.size + weights.readout.size
        assert np.count_nonzero(weights.layers["W1"]) == width * DIM
        (net,) = train(np.sin, [[kind]], jax.random.key(0), n=N, dim=DIM, steps=0, batch=2)
        assert net.parameters == count
