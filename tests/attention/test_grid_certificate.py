"""The certificate of the grid against long double, without slack."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from grid_examples import exact, problem, shares
from measureformer.attention.grid import Costs
from measureformer.attention.grid.certificate import log_dropped
from measureformer.attention.grid.chebyshev import axis_matrix, both_sides, nodes_for, one_sided
from measureformer.attention.grid.plan import Moments
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.errors import ToleranceError

GRID = Costs(pair=1e-3)
"""Sums one by one are so dear that a grid is always taken."""

# where the radius is large the interpolation error decides, where it is small rounding does
SHAPES = [((4,), (12,)), ((3, 2), (8, 9)), ((2, 1, 2), (6, 6, 6))]


@pytest.mark.parametrize("shape", SHAPES)
def test_certificate_holds_on_random_and_adversarial_problems(shape: Any) -> None:
    # more than 200 problems of eleven families on fixed shapes, so that few programs are compiled
    held, d = 0, len(shape[0])
    for seed in range(80):
        q, k, v, log_weights, family = problem(1000 * d + seed, 40, 250, d)
        plan = plan_of_shape(q, k, log_weights, *shape)
        if not float(np.asarray(plan.boxes.interpolation)[0]) < 0.5:
            continue
        held += 1
        out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
        found = shares(out, *exact(q, k, v, log_weights))
        assert max(found) <= 1, (seed, family, found)
    assert held >= 60


@pytest.mark.parametrize(("d", "tol"), [(1, 1e-10), (2, 1e-8), (3, 1e-4)])
def test_planned_grids_keep_the_tolerance(d: int, tol: float) -> None:
    rng = np.random.default_rng(d)
    q, k = rng.uniform(-1.5, 1.5, (100, d)), rng.normal(size=(600, d)) * 0.6
    v, log_weights = rng.uniform(-0.5, 0.5, (600, 2)), rng.normal(size=600)
    plan = mf.GridPlan.make(q, k, log_weights, tol=tol, costs=GRID)
    assert plan.direct is None
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    assert float(out.log_normalizer_error.max()) <= tol
    assert max(shares(out, *exact(q, k, v, log_weights))) <= 1


def test_tolerance_counts_the_size_of_values() -> None:
    rng = np.random.default_rng(0)
    x, v = rng.uniform(-1, 1, (3000, 1)), 50 * rng.normal(size=(3000, 2)) + 1000
    out = mf.attend(x, x, v, method="grid", tol=1e-7)
    assert float(out.error_bound.max()) <= 1e-7
    assert shares(out, *exact(x, x, v, np.zeros(3000)))[0] <= 1


@pytest.fixture(scope="module")
def boxed() -> tuple[Any, ...]:
    """A problem of large radius, in which boxes leave most keys out."""
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(2000, 2)) * 8, rng.normal(size=(2500, 2)) * 4
    v, log_weights = rng.uniform(-0.5, 0.5, (2500, 2)), rng.normal(size=2500)
    return q, k, v, log_weights


def test_boxes_leave_keys_out_and_say_so(boxed: tuple[Any, ...]) -> None:
    # kills: a bound without the dropped mass (tolerances so large that it decides)
    q, k, v, log_weights = boxed
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-2, costs=Costs(pair=1e-7, box=1e-5, point=1e-8))
    assert plan.cells is not None
    assert not np.asarray(plan.cells.kept).all()
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    assert float(out.log_normalizer_error.max()) <= 1e-2
    assert max(shares(out, *exact(q, k, v, log_weights))) <= 1


def test_dropped_mass_is_bounded_at_all_corners_of_a_box() -> None:
    rng, compiled = np.random.default_rng(1), jax.jit(partial(log_dropped, count=300))
    for _ in range(20):
        r, b = rng.uniform(0.1, 2, 2), rng.normal(size=2) * 3
        k, log_weights = rng.normal(size=(300, 2)) * 2, rng.normal(size=300)
        cell = (k[:, 0] > 0) * 4 + (k[:, 1] > 0) * 2 + (k[:, 0] > k[:, 1])
        names = np.unique(cell)
        inside = [cell == name for name in names]
        mass = np.array([np.exp(log_weights[own]).sum() for own in inside])
        mean = np.stack([np.exp(log_weights[own]) @ k[own] for own in inside]) / mass[:, None]
        ends = [np.stack([f(k[own], axis=0) for own in inside]) for f in (np.min, np.max)]
        kept = rng.uniform(size=len(names)) < 0.5
        bound = float(np.exp(compiled(Moments(np.log(mass), mean, *ends), b[None], r[None], kept[None]))[0])
        left_out = np.isin(cell, names[~kept])
        for corner in (b + r * np.array(s) for s in np.ndindex(3, 3)):
            weights = np.exp(log_weights + k @ (corner - r))
            assert weights[left_out].sum() / weights.sum() <= bound


def test_keys_that_are_light_before_the_tilt_are_not_lost() -> None:
    # kills: masses of cells relative to the heaviest key of all, which underflow; weights range over e^{1000}
    rng = np.random.default_rng(6)
    q, k = rng.uniform(-40, 40, (1000, 1)), rng.uniform(-45, 45, (2500, 1))
    v, log_weights = rng.uniform(-0.5, 0.5, (2500, 1)), -(k[:, 0] ** 2) / 2
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-6, costs=Costs(pair=1e-6, box=1e-5, point=1e-8))
    assert plan.cells is not None
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    assert float(out.log_normalizer_error.max()) <= 1e-6
    assert max(shares(out, *exact(q, k, v, log_weights))) <= 1


@pytest.mark.parametrize("sigma", [0.05, 0.18, 0.5, 1.0, 2.0, 4.0])
def test_interpolation_error_of_one_axis(sigma: float) -> None:
    # Lemmas 1 and 2, on a dense set of points; and not more than a factor of some hundreds above the truth
    t = np.linspace(-1, 1, 201).astype(np.longdouble)
    for p in (2, 4, 7, 11):
        matrix = axis_matrix(np.zeros(1), 1.0, np.zeros(1), sigma, p, np.longdouble)
        basis = np.cos(np.arange(p) * np.arccos(t)[:, None])
        error = np.abs((basis @ matrix @ basis.T) / np.exp(sigma * np.multiply.outer(t, t)) - 1).max()
        bound = both_sides(p, sigma, sigma)
        assert error <= bound + 1e-15
        if 1e-13 < bound < 1e-2:
            assert bound < 1e4 * math.exp(2 * sigma) * error
    assert one_sided(3, 0.0) == 0
    # too wide for e^{2σ} to be a number
    assert both_sides(4, 400.0, 0.1) == both_sides(4, 0.1, 400.0) == np.inf
    assert nodes_for(0.0, 1e-9) == 1


@pytest.mark.parametrize(("which", "shift"), [("keys", 1e6), ("queries", 1e6)])
def test_far_points_are_still_right(which: str, shift: float) -> None:
    rng = np.random.default_rng(2)
    q, k = rng.uniform(-1, 1, (50, 1)), rng.uniform(-1, 1, (400, 1))
    v, log_weights = rng.uniform(-0.5, 0.5, (400, 2)), rng.normal(size=400)
    if which == "keys":
        k = k + shift
    else:
        q, k = q + shift, k / shift
    plan = mf.GridPlan.make(q, k, log_weights, tol=1e-7, costs=GRID)
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    assert float(out.log_normalizer_error.max()) <= 1e-7
    assert max(shares(out, *exact(q, k, v, log_weights))) <= 1


def test_certificates_without_rounding_terms_are_wrong() -> None:
    # the rounding terms are needed: long double catches a certificate that leaves them out
    rng = np.random.default_rng(3)
    q, k = rng.uniform(-1.5, 1.5, (60, 1)), rng.uniform(-1.5, 1.5, (400, 1))
    plan = plan_of_shape(q, k, np.zeros(400), (1,), (24,))
    out = mf.attend(q, k, k, method=mf.Grid(plan=plan))
    error = np.abs(np.asarray(out.log_normalizer) - exact(q, k, k, np.zeros(400))[1])
    assert (error <= np.asarray(out.log_normalizer_error)).all()
    assert error.max() > -np.log1p(-float(np.asarray(plan.boxes.interpolation)[0]))


def test_an_impossible_tolerance_is_refused_with_one_that_is_possible() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200, 2)) * 3
    with pytest.raises(ToleranceError, match="at least") as caught:
        mf.attend(x, x, x / 100, method="grid", tol=1e-15)
    assert "float64" in str(caught.value)
    possible = float(re.findall(r"at least ([\d.e-]+)", str(caught.value))[0])
    assert possible < 1e-10
    out = mf.attend(x, x, x / 100, method="grid", tol=possible)
    assert float(out.log_normalizer_error.max()) <= possible
