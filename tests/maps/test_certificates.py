"""Normalisations at every scale; `benchmarks/certificates.py` has more cases."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from attacks import sample
from attacks_regularity import norm_attack
from measureformer.errors import ZeroVectorError


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalisations_are_accurate_at_every_scale(dtype: Any) -> None:
    found = sample(norm_attack(dtype), 240)
    assert found["held"] > 120


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e20), (np.float32, 1e-25), (np.float64, 1e155)])
def test_squares_neither_overflow_nor_underflow(dtype: Any, scale: float) -> None:
    # kills: sums of squares of the entries as they are
    x, one, mu = np.array([3.0, -4.0], dtype), np.ones(2, dtype), mf.Discrete.dirac(np.array([1, 2], dtype))
    for G in (mf.UnitNorm(one), mf.RMSNorm(one, eps=0.0), mf.LayerNorm(one, eps=0.0)):
        np.testing.assert_allclose(G(mu, x * dtype(scale)), G(mu, x), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_powers_of_two_change_nothing_down_to_the_smallest_normal_number(dtype: Any, offset: float) -> None:
    # kills: means and differences of small entries that are flushed to 0, and a power for eps that overflows
    x = (offset + np.abs(np.random.default_rng(0).normal(size=(4, 300))) + 0.01).astype(dtype)
    x[1] = 1
    x[1, :2] += np.array([1, -1]) * 2 * np.finfo(dtype).eps
    one, mu = np.ones(300, dtype), mf.Discrete.dirac(np.arange(300).astype(dtype))
    small = x * (dtype(2) ** 7 * np.finfo(dtype).tiny)
    for G in (mf.UnitNorm(one), mf.RMSNorm(one, eps=0.0), mf.LayerNorm(one, eps=0.0)):
        np.testing.assert_array_equal(G(mu, small), G(mu, x))
    # where eps decides, the answer is the row over its root, as long as that is a normal number
    root = dtype(2) ** -10
    for G in (mf.RMSNorm(one, eps=root**2), mf.LayerNorm(one, eps=root**2)):
        truth = small / root - (np.mean(small / root, axis=1, keepdims=True) if isinstance(G, mf.LayerNorm) else 0)
        allowed = 400 * float(np.finfo(dtype).eps) * np.abs(small / root).max()
        np.testing.assert_allclose(G(mu, small), truth, rtol=0, atol=allowed)


def test_eps_counts_where_it_counted() -> None:
    # kills: eps that is lost with the scale, or that is not scaled
    mu, x = mf.Discrete.dirac(np.ones(2)), np.array([1e-3, 2e-3])
    np.testing.assert_allclose(mf.RMSNorm([1.0, 1.0], eps=1e-6)(mu, x), x / np.sqrt(np.mean(x**2) + 1e-6), rtol=1e-15)
    tiny = mf.RMSNorm([1.0, 1.0], eps=1e-6)(mu, x * 1e-200)
    np.testing.assert_allclose(tiny, x * 1e-197, rtol=1e-15)


def test_derivatives_at_zero_are_those_of_the_formula() -> None:
    for G in (mf.RMSNorm(np.ones(3), eps=1e-6), mf.LayerNorm(np.ones(3), eps=1e-6)):
        slope = jax.jacobian(lambda x, G=G: G(mf.Discrete.dirac(np.ones(3)), x))(np.zeros(3))
        centring = np.eye(3) - (1 / 3 if isinstance(G, mf.LayerNorm) else 0)
        np.testing.assert_allclose(slope, 1e3 * centring, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("dtype", "small"), [(np.float32, 1e-40), (np.float64, 1e-310)])
def test_denormal_rows_are_refused_as_zero(dtype: Any, small: float) -> None:
    # kills: a refusal of exact zeros alone, behind which 0/0 is blamed on the precision
    x, one, mu = np.array([small, -small], dtype), np.ones(2, dtype), mf.Discrete.dirac(np.array([1, 2], dtype))
    for G in (mf.UnitNorm(one), mf.RMSNorm(one, eps=0.0), mf.LayerNorm(one, eps=0.0)):
        with pytest.raises(ZeroVectorError, match="count as 0"):
            G(mu, x)


def test_equal_coordinates_at_the_largest_scale_are_refused() -> None:
    with pytest.raises(ZeroVectorError, match="equal coordinates"):
        mf.LayerNorm(np.ones(2), eps=0.0)(mf.Discrete.dirac(np.array([1.0, -1.7e308])), np.array([1.7e308, 1.7e308]))
