"""The continuity equation on a grid against closed forms, Gaussian flows and particles; its laws and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.special import ndtr

import measureformer as mf
from measureformer import errors
from measureformer.flows.density import moved_masses

BOX = [(-7.0, 7.0)]
SWIRL = mf.flows.Interaction(lambda x, y: 3.0 * jnp.sin(5 * (x - y)) + 0.5 * x)


def normal_density(mean: Any, cov: Any) -> Callable[[Any], np.ndarray]:
    mean, cov = np.atleast_1d(mean), np.atleast_2d(cov)
    scale = np.sqrt(np.linalg.det(2 * np.pi * cov))

    def density(x: Any) -> np.ndarray:
        y = np.asarray(x) - mean
        return np.exp(-np.einsum("ni,ij,nj->n", y, np.linalg.inv(cov), y) / 2) / scale

    return density


def exact_masses(mean: float, variance: float, cells: int) -> np.ndarray:
    """Masses of cells of N(mean, variance) by its distribution function: no quadrature."""
    edges = np.linspace(*BOX[0], cells + 1)
    return np.diff(ndtr((edges - mean) / np.sqrt(variance)))


def test_a_gaussian_under_a_linear_drift_at_second_order() -> None:
    # v(x) = −x + 1/2: N(1, 1) becomes N(1/2 + e^{-t}/2, e^{-2t}); kills fluxes of first order and a wrong sign
    drift, t = mf.Linear([[-1.0]], [0.5]), 0.5
    found = []
    for cells in (64, 256):
        flow = mf.flow(drift, mf.flows.Density(normal_density(1.0, 1.0), BOX, cells=cells), [0.0, t])
        exact = exact_masses(0.5 + 0.5 * np.exp(-t), np.exp(-2 * t), cells)
        found.append(float(np.abs(flow.masses[-1] - exact).sum()))
    assert np.log(found[0] / found[1]) / np.log(4) > 1.8
    assert found[1] < 1e-3


def test_softmax_attention_follows_the_flow_of_a_gaussian_at_second_order() -> None:
    # not linear in mu: the velocity reads the cells. N(0.3, 1) with K = −1 contracts
    G, law, t = mf.Attention.head([[1.0]], [[-0.8]], [[1.0]]), mf.Gaussian([0.3], [[1.0]]), 0.5
    exact = mf.flow(G, law, [0.0, t])
    mean, variance = float(exact.means[-1, 0]), float(exact.covs[-1, 0, 0])
    found = []
    for cells in (128, 256):
        flow = mf.flow(G, mf.flows.Density(normal_density(0.3, 1.0), BOX, cells=cells), [0.0, t])
        last = flow.measures[-1]
        gaps = [
            float(np.abs(flow.masses[-1] - exact_masses(mean, variance, cells)).sum()),
            abs(float(last.mean()[0]) - mean),
            abs(float(last.covariance()[0, 0]) - variance),
        ]
        found.append(gaps)
    orders = np.log2(np.array(found[0]) / found[1])
    assert ((orders > 1.8) & (orders < 2.2)).all()
    assert max(found[1]) < 5e-4


def test_particles_and_cells_agree_in_wasserstein() -> None:
    # two bumps, no closed form: 1000 quantiles as particles. Atoms at centres alone are h/4 away from the density
    G, t, cells = mf.Attention.head([[1.0]], [[0.5]], [[-1.0]]), 0.8, 256
    one, two = normal_density(-1.5, 0.2), normal_density(1.0, 0.4)
    flow = mf.flow(G, mf.flows.Density(lambda x: (one(x) + two(x)) / 2, BOX, cells=cells), [0.0, t])
    atoms = mf.Gaussian([-1.5], [[0.2]]).discretize(500) + mf.Gaussian([1.0], [[0.4]]).discretize(500)
    particles = mf.flow(G, 0.5 * atoms, [0.0, t])
    width = 14 / cells
    gap = float(mf.wasserstein(flow.measures[-1].normalized(), particles.measures[-1].normalized(), 1))
    assert gap < 0.35 * width
    assert float(mf.wasserstein(particles.measures[0].normalized(), particles.measures[-1].normalized(), 1)) > width


def test_a_rotation_in_the_plane() -> None:
    # kills axes in the wrong order: the rotation and the covariance are not symmetric in the axes
    M, t = np.array([[-0.3, 1.0], [-0.6, 0.1]]), 0.7
    mean, cov = np.array([0.8, -0.2]), np.array([[0.6, 0.2], [0.2, 0.3]])
    flow = mf.flow(
        mf.Linear(M), mf.flows.Density(normal_density(mean, cov), [(-5.0, 5.0), (-4.0, 4.0)], cells=(80, 64)), [0.0, t]
    )
    E, last = expm(M * t), flow.measures[-1]
    assert flow.masses.shape == (2, 80, 64)
    np.testing.assert_allclose(last.mean(), E @ mean, atol=5e-3)
    np.testing.assert_allclose(last.covariance(), E @ cov @ E.T, atol=2e-2)
    exact = normal_density(E @ mean, E @ cov @ E.T)(flow.centers) * 0.125**2
    assert np.abs(np.asarray(flow.masses[-1]).ravel() - exact).sum() < 0.03


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), plane=st.booleans())
def test_mass_is_kept_and_stays_positive(seed: int, plane: bool) -> None:
    # rough data, empty cells, and velocities that open and close gaps; kills limiters that overshoot, and clipping
    rng, d = np.random.default_rng(seed), 2 if plane else 1
    shape = (16, 12) if plane else (64,)
    masses = rng.exponential(size=shape) * (rng.uniform(size=shape) < 0.3)
    masses[tuple(n // 2 for n in shape)] = 1.0
    flow = mf.flow(SWIRL, mf.flows.Density(masses, [(-1.0, 1.0)] * d, cells=shape, leak=0.99), [0.0, 0.1, 0.3])
    assert float(flow.masses.min()) >= 0
    inside = np.asarray(flow.masses).reshape(3, -1).sum(axis=1)
    np.testing.assert_allclose(inside + np.asarray(flow.lost), masses.sum(), rtol=1e-12)
    assert 0 < float(flow.lost[-1]) < masses.sum()


def test_a_cell_never_gives_more_than_it_has() -> None:
    # three cells are crossed in a step, in both directions from every other face: only the brake on giving helps
    masses, faces = jnp.asarray([0.0, 1.0, 2.0, 0.5, 1.0]), jnp.asarray([3.0, -3.0, 3.0, -3.0, 3.0, 3.0])
    moved, lost = moved_masses(masses, [faces], jnp.asarray(1.0))
    assert float(moved.min()) >= 0
    assert float(moved.sum() + lost) == pytest.approx(4.5, rel=1e-14)
    assert float(lost) > 0


def test_another_number_of_times_changes_nothing_but_rounding() -> None:
    drift = mf.Linear([[-1.0]], [0.0])
    one = mf.flow(drift, mf.flows.Density(normal_density(0.0, 1.0), BOX, cells=64), [0.0, 1.0])
    two = mf.flow(drift, mf.flows.Density(normal_density(0.0, 1.0), BOX, cells=64), [0.0, 0.5, 1.0])
    # the steps end at the times, so they differ, by less than the error in h
    assert float(np.abs(one.masses[-1] - two.masses[-1]).sum()) < 5e-3
    np.testing.assert_allclose(np.asarray(one.densities[0]).sum() * 14 / 64, 1, atol=1e-9)


def test_mass_that_leaves_the_box_is_refused_or_counted() -> None:
    right = mf.Linear([[0.0]], [1.0])
    with pytest.raises(errors.BoxError, match=r"outside the box .* at t = 6") as caught:
        mf.flow(right, mf.flows.Density(normal_density(0.0, 1.0), BOX, cells=64), [0.0, 1.0, 6.0])
    time, last = caught.value.last
    assert time == 1.0
    assert abs(float(last.mean()[0]) - 1) < 1e-3
    flow = mf.flow(right, mf.flows.Density(normal_density(0.0, 1.0), BOX, cells=256, leak=0.5), [0.0, 6.0])
    # N(6, 1) beyond 7
    assert abs(float(flow.lost[-1]) - ndtr(-1)) < 2e-3


def test_masses_bring_their_number_of_cells() -> None:
    assert mf.flows.Density(np.ones((6, 5)), [(0, 1), (0, 1)]).masses.shape == (6, 5)
    assert mf.flows.Density(lambda x: x[:, 0], [(0, 1)]).masses.shape == (128,)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "three dimensions": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(lambda x: x[:, 0], [(0, 1)] * 3), [0, 1]),
        errors.ShapeError,
        "use mf.flow",
    ),
    "an empty box": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(np.ones(8), [(1, 1)], cells=8), [0, 1]),
        errors.ShapeError,
        "low < high",
    ),
    "another number of cells": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(np.ones(8), [(0, 1)], cells=9), [0, 1]),
        errors.ShapeError,
        "one number for each cell",
    ),
    "few cells": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(np.ones(3), [(0, 1)], cells=3), [0, 1]),
        errors.OptionError,
        "at least 4",
    ),
    "negative mass": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(-np.ones(8), [(0, 1)], cells=8), [0, 1]),
        errors.NegativeWeightError,
        "weights ≥ 0",
    ),
    "a density with one value": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(lambda x: np.ones(1), [(0, 1)], cells=8), [0, 1]),
        errors.ShapeError,
        "one number for each point",
    ),
    "a function as velocity": (
        lambda: mf.flow(np.sin, mf.flows.Density(np.ones(8), [(0, 1)], cells=8), [0, 1]),
        errors.DtypeError,
        "Interaction",
    ),
    "a velocity into another space": (
        lambda: mf.flow(mf.Linear([[1.0], [1.0]]), mf.flows.Density(np.ones(8), [(0, 1)], cells=8), [0, 1]),
        errors.DimensionMismatchError,
        r"R\^1 to R\^2",
    ),
    "a velocity that is not finite": (
        lambda: mf.flow(
            mf.flows.Interaction(lambda x, y: jnp.log(x - 0.5)), mf.flows.Density(np.ones(8), [(0, 1)], cells=8), [0, 1]
        ),
        errors.NotFiniteError,
        "faces of the grid",
    ),
    "a traced velocity": (
        lambda: jax.jit(lambda a: mf.flow(mf.Linear(a), mf.flows.Density(np.ones(8), [(0, 1)]), [0, 1]).masses)(
            np.eye(1)
        ),
        errors.TracedError,
        "flow of a density",
    ),
    "steps": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(np.ones(8), [(0, 1)]), [0, 1], steps=3),  # pyright: ignore[reportCallIssue, reportArgumentType]
        errors.OptionError,
        "steps for a Density",
    ),
    "a velocity on the sphere": (
        lambda: mf.flow(mf.Tangent(mf.Identity()), mf.flows.Density(np.ones(8), [(0, 1)]), [0, 1]),
        errors.OptionError,
        "Tangent.* for a density",
    ),
    "a share above one": (
        lambda: mf.flow(mf.Identity(), mf.flows.Density(np.ones(8), [(0, 1)], cells=8, leak=2.0), [0, 1]),
        errors.OptionError,
        "leak",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()
