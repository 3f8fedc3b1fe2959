"""The smallest difference between two subset sums."""

from __future__ import annotations

from itertools import combinations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import (
    DtypeError,
    MeasureformerError,
    NegativeWeightError,
    NotFiniteError,
    ShapeError,
    TooManyAtomsError,
    TracedError,
)


def brute_force(weights: list[float]) -> float:
    """All pairs of different sets of positions, the empty set included."""
    n = len(weights)
    sums = [sum(weights[i] for i in chosen) for k in range(n + 1) for chosen in combinations(range(n), k)]
    return min(abs(x - y) for x, y in combinations(sums, 2))


@pytest.mark.parametrize(
    ("weights", "gap"),
    [([1 / 7, 2 / 7, 4 / 7], 1 / 7), ([0.5, 0.5], 0.0), ([0.2, 0.3, 0.5], 0.0), ([0.25], 0.25), ([3, 5], 2.0)],
    ids=str,
)
def test_known_gaps(weights: list[float], gap: float) -> None:
    # [3, 5]: kills the empty set left out (5 − 3 is smaller than 3 − 0); [0.25]: one atom against none
    assert mf.subset_sum_gap(weights) == pytest.approx(gap, abs=1e-15)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=6))
def test_gap_by_brute_force(sixteenths: list[int]) -> None:
    # sixteenths add exactly; kills: only disjoint pairs of equal size, adjacent sums compared before sorting
    weights = [k / 16 for k in sixteenths]
    assert mf.subset_sum_gap(weights) == brute_force(weights)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_perturbed_weights_are_generic(n: int) -> None:
    # kills: a gap that is 0 whatever the weights. Fixed draws: a random one fails with probability 1e-5
    for seed in range(70):
        weights = 1 / n + np.random.default_rng(seed).uniform(0, 1e-3, n)
        weights /= weights.sum()
        gap = mf.subset_sum_gap(weights)
        assert 1e-12 < gap <= weights.min()
        # a gap is a mass: twice the weights have twice the gap, in any order, up to the rounding of sums of size ≤ 2
        assert mf.subset_sum_gap(2 * weights[::-1]) == pytest.approx(2 * gap, abs=1e-15 * n)
        # two equal weights cannot be told apart
        assert mf.subset_sum_gap(np.append(weights, weights[:1])) == 0


def test_twenty_atoms_are_allowed() -> None:
    assert mf.subset_sum_gap(2.0 ** -np.arange(20)) == 2.0**-19


@pytest.mark.parametrize(
    ("weights", "error", "sentence"),
    [
        (np.ones(21), TooManyAtomsError, "21 weights"),
        ([0.5, 0.0], NegativeWeightError, r"weights \[0.5 0. \]"),
        ([0.5, -1.0], NegativeWeightError, r"weights \[ 0.5 -1. \]"),
        ([], NegativeWeightError, r"weights \[\]; need at least one"),
        ([[0.5]], ShapeError, r"weights of shape \(1, 1\)"),
        ([np.nan], NotFiniteError, "weights with 1 non-finite"),
        (["a"], DtypeError, "weights of dtype <U1"),
        (mf.Discrete.dirac([0.0]), DtypeError, "weights of type Discrete"),
    ],
    ids=str,
)
def test_refusals(weights: object, error: type[MeasureformerError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        mf.subset_sum_gap(weights)


def test_refuses_tracers() -> None:
    with pytest.raises(TracedError, match="subset_sum_gap on traced arrays"):
        jax.jit(mf.subset_sum_gap)(np.ones(2))
