"""Compiled networks in floating point; `benchmarks/certificates.py` has more cases."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import measureformer as mf
from attacks import sample
from attacks_learning import compiled_attack
from measureformer.errors import ToleranceError

Activation = Literal["relu", "quadratic"]
x, mean = mf.universality.Block(None, None, 0.0, [1.0], None), mf.universality.Block(None, None, 0.0, None, [1.0])


@pytest.mark.parametrize("activation", ["relu", "quadratic"])
def test_error_bounds_hold_for_every_family(activation: Activation) -> None:
    assert sample(compiled_attack(activation), 3)["held"] > 1


@pytest.mark.parametrize("activation", ["relu", "quadratic"])
@pytest.mark.parametrize(("centre", "half"), [(0.0, 1e-9), (1.0, 1e-15), (0.3, 1e-9), (1e6, 1.0)])
def test_bounds_count_rounding_errors(activation: Activation, centre: float, half: float) -> None:
    # kills: a bound of the products alone, which is 0, or far below the last digit of the values
    e = (x - 0.7 * mean) * (x + mean)
    net = mf.universality.compile(e, mf.Box([centre - half], [centre + half]), activation=activation, cells=64)
    points = centre + half * np.linspace(-1, 1, 9)
    a, at = points.astype(np.longdouble), np.asarray(points[:, None])
    m = a.mean()
    truth = (a - np.longdouble(0.7) * m) * (a + m)
    error = np.abs(np.asarray(net(mf.Discrete.uniform(at), at))[:, 0].astype(np.longdouble) - truth).max()
    assert 0 < error <= net.error_bound
    # and not as large as the values, unless squares of 1 hide them
    size = max(float(np.abs(truth).max()), max(abs(centre), half, 1 if activation == "quadratic" else half) ** 2)
    assert net.error_bound < 1e-4 * max(size, 1)


def test_rounding_errors_grow_as_the_values_do() -> None:
    # kills: a term that is the same for all weights
    bounds = [
        mf.universality.compile(scale * x * mean, mf.Box([-1.0], [1.0]), activation="quadratic").error_bound
        for scale in (1.0, 1e3, 1e6)
    ]
    assert bounds[1] / bounds[0] > 100
    assert bounds[2] / bounds[1] > 900


def test_a_tolerance_below_rounding_is_refused() -> None:
    with pytest.raises(ToleranceError, match="double precision"):
        mf.universality.compile(x * mean, mf.Box([1.0], [1.0 + 1e-12]), tol=1e-18)


def test_where_no_digit_is_certain_the_bound_is_infinite() -> None:
    net = mf.universality.compile(x * mean, mf.Box([-1e30], [1e30]), activation="quadratic")
    assert net.error_bound == np.inf
