"""The bracket: around exact values always, narrow where it says so; the transform of potentials by brute force."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.transport import bracket
from measureformer.transport.cells import c_transform, cells
from transport_examples import cloud, cost_matrix

seeds = st.integers(0, 2**32 - 1)


def far(seed: int, n: int, dim: int) -> tuple[mf.Discrete, mf.Discrete]:
    mu, nu = cloud(seed, n, dim), cloud(seed + 1, n + 7, dim)
    return mu, nu.push(lambda x: np.asarray(x) * np.linspace(0.6, 1.6, dim) + 0.5)


PAIRS: dict[str, Callable[[int, int, int], tuple[Any, Any]]] = {
    "far": far,
    "one law": lambda seed, n, dim: (cloud(seed, n, dim), cloud(seed + 1, n, dim)),
    "uniform": lambda seed, n, dim: tuple(
        mf.Discrete.uniform(np.asarray(measure.points)) for measure in (cloud(seed, n, dim), cloud(seed + 1, n, dim))
    ),
    "permuted": lambda seed, n, dim: (cloud(seed, n, dim), cloud(seed, n, dim).rows(np.arange(n)[::-1])),
    "few places": lambda seed, n, dim: tuple(
        mf.Discrete.uniform(np.random.default_rng(seed + k).integers(0, 3, (n, dim)).astype(float)) for k in (0, 1)
    ),
    "far from the origin": lambda seed, n, dim: tuple(
        measure.push(lambda x: 1e6 + np.asarray(x)) for measure in far(seed, n, dim)
    ),
    "passive": lambda seed, n, dim: (cloud(seed, n, dim, passive=True), cloud(seed + 1, n, dim, passive=True)),
}


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small clouds take the way of large ones."""
    monkeypatch.setattr(bracket, "SMALL", 0)
    monkeypatch.setattr(bracket, "CELLS", 16)
    monkeypatch.setattr(bracket, "BLOCK", 32)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("name", PAIRS)
def test_never_violated(name: str, p: float) -> None:
    # kills: infeasible potentials, marginals of the plan off, a wrong power, a lower bound of another p
    for dim in (1, 2, 4):
        mu, nu = PAIRS[name](dim, 150, dim)
        exact = float(mf.wasserstein(mu, nu, p))
        found = mf.wasserstein_bracket(mu, nu, p)
        assert 0 <= float(found.lower) <= exact * (1 + 1e-12)
        assert float(found.upper) >= exact * (1 - 1e-12)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("p", [1, 2, 3])
def test_narrow_for_measures_that_are_apart(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: bounds that hold because they are loose: lower 0, upper the diameter
    monkeypatch.setattr(bracket, "CELLS", 128)
    found = mf.wasserstein_bracket(*far(0, 600, 2), p)
    assert float(found.upper) < 1.1 * float(found.lower)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_exact_for_small_clouds(dim: int, p: float) -> None:
    mu, nu = (3 * measure for measure in far(0, 200, dim))
    found, exact = mf.wasserstein_bracket(mu, nu, p), float(mf.wasserstein(mu, nu, p))
    assert float(found.lower) <= exact <= float(found.upper)
    assert float(found.upper) - float(found.lower) < 1e-9 * exact


def test_float32_is_rounded_outward() -> None:
    mu, nu = (mf.Discrete.weighted(np.float32(m.points), np.float32(m.weights)).normalized() for m in far(0, 60, 2))
    found = mf.wasserstein_bracket(mu, nu)
    assert found.lower.dtype == np.float32
    wide = [mf.Discrete.weighted(np.float64(m.points), np.float64(m.probabilities())).normalized() for m in (mu, nu)]
    assert float(found.lower) <= float(mf.wasserstein(*wide)) <= float(found.upper)


@settings(max_examples=15)
@given(seeds, st.sampled_from([1.0, 1.3, 2.0, 3.0]), st.sampled_from([1, 2, 3]), st.sampled_from(["smooth", "rough"]))
def test_transform_by_brute_force(seed: int, p: float, dim: int, kind: str) -> None:
    # kills: a cell left out that holds the minimum
    mu, nu = far(seed, 300, dim)
    x, y = np.asarray(mu.points), np.asarray(nu.points)
    f = np.sin(x.sum(axis=1)) if kind == "smooth" else np.random.default_rng(seed).normal(size=len(x))
    expected = (cost_matrix(mu, nu, p) - f[:, None]).min(axis=0)
    np.testing.assert_allclose(c_transform(x, f, y, p), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_cells_are_a_partition(n: int) -> None:
    groups = cells(np.random.default_rng(0).normal(size=(n, 2)), 64)
    assert sorted(np.concatenate(groups)) == list(range(n))
    assert max(map(len, groups)) <= 64


@pytest.mark.slow
def test_many_atoms_in_the_plane() -> None:
    mu, nu = far(0, 20_000, 2)
    # of the processor: others may be using it as well
    start = time.process_time()
    found = mf.wasserstein_bracket(mu, nu)
    assert time.process_time() - start < 20
    assert float(found.upper) < 1.02 * float(found.lower)
    # the laws are Gaussian, and samples of this size are within a few percent of them
    law = mf.wasserstein(mf.Gaussian(mu.mean(), mu.covariance()), mf.Gaussian(nu.mean(), nu.covariance()))
    assert float(law) <= float(found.upper)
