"""Couplings: marginals, few entries, feasible potentials, and a gap that is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from transport_examples import cloud, cost_matrix, prompt

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=25)
@given(seeds, st.sampled_from([1, 1.5, 2, 3]), st.sampled_from([1, 2]), st.booleans())
def test_certificate(seed: int, p: float, dim: int, uniform: bool) -> None:
    # kills: plan transposed, potentials interchanged or of another scale, mass forgotten
    mu, nu = (
        (prompt(seed, 8, dim), prompt(seed + 1, 8, dim)) if uniform else (cloud(seed, 9, dim), cloud(seed + 1, 6, dim))
    )
    mu, nu = 2.5 * mu, 2.5 * nu
    found, cost = mf.coupling(mu, nu, p), cost_matrix(mu, nu, p)
    plan = found.plan.toarray()
    assert (found.plan.data > 0).all()
    assert found.plan.nnz <= mu.n + nu.n - 1
    np.testing.assert_allclose(plan.sum(1), mu.weights, rtol=1e-12)
    np.testing.assert_allclose(plan.sum(0), nu.weights, rtol=1e-12)
    f, g = map(np.asarray, found.potentials)
    scale = cost.max()
    assert (f[:, None] + g <= cost + 1e-13 * scale).all()
    primal = float((plan * cost).sum())
    dual = float(f @ np.asarray(mu.weights) + g @ np.asarray(nu.weights))
    assert float(found.gap) == pytest.approx(primal - dual, abs=1e-13 * scale)
    assert abs(primal - dual) < 1e-12 * scale
    assert primal == pytest.approx(float(mf.wasserstein(mu, nu, p) ** p), rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_passive_atoms_are_not_coupled_but_have_potentials(dim: int) -> None:
    mu, nu = cloud(0, 9, dim, passive=True), cloud(1, 7, dim, passive=True)
    found, cost = mf.coupling(mu, nu), cost_matrix(mu, nu, 2)
    plan = found.plan.toarray()
    assert not plan[::3].any()
    assert not plan[:, ::3].any()
    f, g = map(np.asarray, found.potentials)
    assert (f[:, None] + g <= cost + 1e-13 * cost.max()).all()


def test_the_gap_of_large_clouds_is_a_rounding() -> None:
    mu, nu = prompt(0, 400, 3), prompt(1, 400, 3)
    assert abs(float(mf.coupling(mu, nu).gap)) < 1e-12
    # a permutation: as many entries as atoms
    assert mf.coupling(mu, nu).plan.nnz == 400


def test_a_coupling_of_a_hundred_thousand_atoms_on_the_line_is_sparse() -> None:
    mu, nu = cloud(0, 100_000, 1), cloud(1, 50_000, 1)
    found = mf.coupling(mu, nu)
    assert found.plan.nnz <= 149_999
    assert abs(float(found.gap)) < 1e-12
