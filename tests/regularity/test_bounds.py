"""The right-hand sides of the theorems: values by hand, the correction of the printed one, order between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import measureformer as mf
from measureformer.errors import DtypeError, NotFiniteError, OptionError

R = mf.regularity
OF_A_BALL = (R.lipschitz_ball_castin24, R.lipschitz_ball, R.lipschitz_masked)


def test_values_by_hand() -> None:
    # s = ‖A‖R² = 0.5 · 4 = 2, ‖V‖ = 3
    assert R.lipschitz_ball_castin24(3, 0.5, 2) == pytest.approx(3 * 7 * math.exp(4), rel=1e-15)
    assert R.lipschitz_ball(3, 0.5, 2) == pytest.approx(3 * (3 * math.exp(2) + 2), rel=1e-15)
    assert R.lipschitz_masked(3, 0.5, 2) == pytest.approx(3 * (2 * 5 * math.exp(4) + 2), rel=1e-15)
    assert R.lipschitz_masked(3, 0.5, 2, p=3) == pytest.approx(3 * (1.5 * 5 * math.exp(4) + 2), rel=1e-15)
    assert R.lipschitz_tokens_castin24(3, 0.5, 2, 7) == pytest.approx(3 * 2 * math.sqrt(87), rel=1e-15)
    assert R.lipschitz_tokens(3, 0.5, 2, 7) == pytest.approx(math.sqrt(3) * 3 * math.sqrt(4 * 8 + 7), rel=1e-15)
    assert R.lipschitz_push_forward(2, 0.5) == 2.5


@pytest.mark.parametrize("n", [1, 2, 16])
def test_the_printed_bound_fails_without_attention_and_the_corrected_one_does_not(n: int) -> None:
    V = np.array([[1.0, 2.0], [0.0, 1.0]])
    G = mf.Attention.head(np.zeros((2, 2)), np.zeros((2, 2)), V)
    X = np.random.default_rng(n).uniform(-1, 1, size=(n, 2))
    true, v = mf.local_lipschitz(G, mf.Discrete.uniform(X)).lower, float(np.linalg.norm(V, 2))
    assert true == pytest.approx(v, rel=1e-9)
    assert R.lipschitz_tokens_castin24(v, 0.0, 2.0, n) == 0
    assert R.lipschitz_tokens(v, 0.0, 2.0, n) >= true


def test_the_printed_bound_is_the_larger_one_from_its_missing_hypothesis_on() -> None:
    # √3 (s²(n+1)+n)^{1/2} ≤ s √(12n+3) as soon as s ≥ 1/√3
    for n in (1, 5, 100):
        assert R.lipschitz_tokens(1, 1 / math.sqrt(3), 1, n) <= R.lipschitz_tokens_castin24(
            1, 1 / math.sqrt(3), 1, n
        ) * (1 + 1e-15)
        assert R.lipschitz_tokens(1, 0.3, 1, n) > R.lipschitz_tokens_castin24(1, 0.3, 1, n)


def test_constants_out_of_range_are_infinite_and_a_constant_map_has_constant_zero() -> None:
    for bound in OF_A_BALL:
        assert bound(1.0, 1.0, 100.0) == math.inf
        assert bound(0.0, 1.0, 1e200) == 0.0
    assert R.lipschitz_tokens(0.0, 1.0, 1e200, 3) == R.lipschitz_tokens_castin24(0.0, 1.0, 1e200, 3) == 0.0


@pytest.mark.parametrize("bound", OF_A_BALL)
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((-1.0, 1.0, 1.0), OptionError, "v_norm = -1"),
        ((1.0, math.nan, 1.0), NotFiniteError, "a_norm = nan"),
        ((1.0, 1.0, math.inf), NotFiniteError, "radius = inf"),
        ((np.eye(2), 1.0, 1.0), DtypeError, "need one number"),
        ((1.0, None, 1.0), DtypeError, "a_norm = None"),
        ((1.0, 1.0, "2"), DtypeError, "radius = '2'"),
    ],
)
def test_refusals(bound: Callable[..., float], arguments: tuple[Any, ...], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        bound(*arguments)


def test_refusals_of_the_number_of_tokens_and_of_the_exponent() -> None:
    with pytest.raises(OptionError, match="n = 0"):
        R.lipschitz_tokens(1.0, 1.0, 1.0, 0)
    with pytest.raises(DtypeError, match="whole number"):
        R.lipschitz_tokens_castin24(1.0, 1.0, 1.0, 2.5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="p > 1"):
        R.lipschitz_masked(1.0, 1.0, 1.0, p=1.0)
