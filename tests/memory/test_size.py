"""Sizes that a matrix of all pairs would not allow."""

from __future__ import annotations

import time

import numpy as np

import measureformer as mf

M = mf.memory


def signs(seed: int, n: int, d: int) -> np.ndarray:
    return (np.random.default_rng(seed).integers(0, 2, (n, d), dtype=np.int8) * 2 - 1).astype(np.int8)


def test_sixty_thousand_exponential_patterns() -> None:
    # the first 2000 of them as queries; the full preset of the claim asks for all
    X = signs(19, 60_000, 40)
    memory = M.Dense.store(X)
    began = time.perf_counter()
    felt, error = memory._felt(X[:2000].astype(float), np.float32)
    assert (np.min(X[:2000] * felt, axis=1) > error).all()
    assert time.perf_counter() - began < 60


def test_many_bits_and_patterns_in_chunks() -> None:
    # −Σ e^z would overflow; 2^24 bits are multiplied in chunks
    X = signs(20, 9000, 2000)
    memory = M.Dense.store(X)
    query = np.where(np.arange(2000) < 600, -X[7], X[7])
    found = memory.retrieve(query, steps=3)
    assert found.state.tolist() == X[7].tolist()
    assert np.isfinite(found.trace.energies).all()
    np.testing.assert_allclose(found.trace.energies[-1], memory.energy(X[7]), rtol=1e-6)
    assert int(found.certificate.nearest) == 7


def test_a_million_patterns() -> None:
    # logits of all pairs would be 64 GB
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000, 64), np.float32)
    X *= 8 / np.linalg.norm(X, axis=1, keepdims=True)
    found = M.Modern.store(X, 2.0).retrieve(X[:16] + 0.3 * rng.standard_normal((16, 64), np.float32), steps=3)
    assert found.certificate.nearest.tolist() == list(range(16))
    np.testing.assert_allclose(found.state, X[:16], atol=1e-4)
