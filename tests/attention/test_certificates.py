"""Error bounds of `attend` on adversarial numbers; `benchmarks/certificates.py` has more of them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from attacks import attend_attack, attended_share, exact_attention, grid_attack, sample
from measureformer.attention.hardmax import hardmax
from measureformer.errors import NotFiniteError
from measureformer.numerics.norms import norms

SIZES = ((3, 20, 2, 2), (3, 1100, 3, 2))


@pytest.mark.parametrize(("dtype", "odds"), [(np.float32, (1, 0)), (np.float64, (1, 1))])
def test_error_bounds_hold_for_every_family(dtype: Any, odds: tuple[float, float]) -> None:
    found = sample(attend_attack(dtype, sizes=SIZES, odds=odds), 320)
    assert found["refused"] < found.total() / 4


def test_error_bounds_hold_where_the_level_is_foreseen() -> None:
    # one head at a time, or both ways of a condition are computed
    assert sample(attend_attack(np.float32, sizes=SIZES[1:], odds=(0, 0)), 60)["held"] > 50


def test_error_bounds_hold_on_a_mesh_and_on_the_grid() -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("tokens",))
    assert sample(attend_attack(np.float32, mf.Sharded(mesh=mesh), ((4, 20, 2, 2),), odds=(1, 0)), 100)["held"] > 50
    # every third seed is in dimension 1
    assert sample(lambda seed: grid_attack(6 * seed), 12)["held"] > 4


def test_error_bounds_hold_in_windows() -> None:
    # kills: bounds of the whole sum for a window whose largest logit is far lower
    assert sample(attend_attack(np.float32, sizes=SIZES[:1], odds=(1, 1), windows=True), 150)["held"] > 80


@pytest.mark.parametrize(
    ("dtype", "q", "k", "v"),
    [
        # kills: a norm of q that underflows
        (np.float32, 1e-20, 1e19, 1.0),
        (np.float64, 1e-160, 1e159, 1.0),
        # kills: bounds without an absolute term
        (np.float32, 1.0, 1.0, 1e-25),
        (np.float32, 1.0, 1.0, 1e-37),
        (np.float64, 1.0, 1.0, 1e-160),
        (np.float64, 1.0, 1.0, 1e-307),
        # kills: operands below the smallest normal number that count as they are, though programs take them for 0
        (np.float32, 1e-39, 1e38, 1.0),
        (np.float64, 1e-309, 1e307, 1.0),
    ],
)
def test_bounds_are_right_where_numbers_underflow(dtype: Any, q: float, k: float, v: float) -> None:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(3, 2)) * q, rng.normal(size=(20, 2)) * k, rng.normal(size=(20, 2)) * v
    arrays = [np.asarray(part, dtype) for part in (*parts, np.zeros(20))]
    out = mf.attend(*arrays)
    assert attended_share(out, *exact_attention(*arrays)) <= 1
    # and not ∞
    if q >= np.finfo(dtype).tiny:
        assert float(out.error_bound.max()) < 1e-3 * v + 1e6 * float(np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_at_any_scale(dtype: Any) -> None:
    rows = np.array([[3, 4, 0]], dtype) * dtype(10) ** np.arange(-30, 31, 10, dtype=dtype)[:, None]
    wanted = 5 * np.abs(rows[:, 0]) / 3
    for found in (norms(rows), jax.jit(norms)(rows)):
        np.testing.assert_allclose(found, wanted, rtol=4 * float(np.finfo(dtype).eps))
    # powers of two are exact: nothing changes where nothing was lost
    np.testing.assert_array_equal(norms(rows[3:4]), np.sqrt(np.sum(rows[3:4] ** 2, axis=1)))
    np.testing.assert_array_equal(norms(np.zeros((2, 3), dtype)), 0)
    np.testing.assert_allclose(jax.grad(lambda row: norms(row[None])[0])(rows[-1]), [0.6, 0.8, 0], rtol=1e-6)
    assert norms(np.zeros((2, 0), dtype)).shape == (2,)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float64, 1e-160), (np.float32, 1e-22), (np.float32, 1e30), (np.float64, 1e300)]
)
def test_the_largest_logit_is_found_at_every_scale(dtype: Any, scale: float) -> None:
    # kills: logits that underflow, which all tie, and keys without mass that decide how keys are levelled
    q, v = np.array([[1, 1]], dtype) * dtype(scale), np.array([[1], [5], [7]], dtype)
    k = np.array([[1, 0], [0, 2], [0, 1e6]], dtype) * dtype(scale)
    for by in (1, dtype(1 / scale)):
        found = hardmax(q * by, k, v, np.array([0, 0, -np.inf], dtype))
        np.testing.assert_array_equal(found, [[5]])


def test_coverage_refuses_logits_that_overflow() -> None:
    # kills: shares of NaN
    with pytest.raises(NotFiniteError, match="overflow"):
        mf.coverage([[1e200]], [[1e200], [1e199]])
