"""Sizes that a matrix of all pairs would not allow."""

from __future__ import annotations

import time

import numpy as np
import pytest

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


def test_many_bits_and_patterns_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    # −Σ e^z would overflow; the limit above which patterns are multiplied in chunks is lowered
    monkeypatch.setattr("measureformer.memory.dense.WHOLE", 1 << 14)
    X = signs(20, 40, 2000)
    memory = M.Dense.store(X)
    query = np.where(np.arange(2000) < 600, -X[7], X[7])
    found = memory.retrieve(query, steps=3)
    assert found.state.tolist() == X[7].tolist()
    np.testing.assert_allclose(found.trace.energies[[0, -1]], memory.energy([query, X[7]]), rtol=1e-12)
    assert int(found.certificate.nearest) == 7
    cubic = M.Dense.store(X, interaction=M.Polynomial(3))
    overlaps = X.astype(float) @ query
    assert float(cubic.energy(query)) == -np.sum(overlaps**3)


def test_hundreds_of_thousands_of_patterns() -> None:
    # logits of all pairs would take a terabyte; a million patterns work as well, in half a minute
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300_000, 64), np.float32)
    X *= 8 / np.linalg.norm(X, axis=1, keepdims=True)
    found = M.Modern.store(X, 2.0).retrieve(X[:16] + 0.3 * rng.standard_normal((16, 64), np.float32), steps=2)
    np.testing.assert_allclose(found.state, X[:16], atol=1e-4)
