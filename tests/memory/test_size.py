"""Sizes that a matrix of all pairs would not allow."""

from __future__ import annotations

import numpy as np
import pytest

import measureformer as mf

M = mf.memory


def signs(seed: int, n: int, d: int) -> np.ndarray:
    return (np.random.default_rng(seed).integers(0, 2, (n, d), dtype=np.int8) * 2 - 1).astype(np.int8)


def test_sixty_thousand_exponential_patterns() -> None:
    # the first 200 of them as queries; the benchmark asks for all
    X = signs(19, 60_000, 40)
    felt, error = M.Dense.store(X)._felt(X[:200].astype(float), np.float32)
    assert (np.min(X[:200] * felt, axis=1) > error).all()


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
    # no matrix of all pairs of patterns; the benchmark has a million
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 64), np.float32)
    X *= 8 / np.linalg.norm(X, axis=1, keepdims=True)
    found = M.Modern.store(X, 2.0).retrieve(X[:16] + 0.3 * rng.standard_normal((16, 64), np.float32), steps=2)
    np.testing.assert_allclose(found.state, X[:16], atol=1e-4)
