"""W_p against linear programming, permutations, SciPy and closed forms; and the laws of a distance between measures."""

from __future__ import annotations

import time
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import wasserstein_distance

import measureformer as mf
from compilations import count_compilations
from measureformer.transport import exact
from transport_examples import by_linear_programming, by_permutations, cloud, prompt

seeds = st.integers(0, 2**32 - 1)
POWERS = [1, 1.5, 2, 3]
# the oracle stops at its own tolerance, 1e-7 in units of the cost; roots at p > 1 keep its relative error
LP = 1e-7


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_linear_programming(dim: int, p: float) -> None:
    # kills: weights ignored, the power without its root, another norm than the Euclidean one
    for seed in range(3):
        mu, nu = cloud(seed, 8, dim, passive=True), cloud(seed + 50, 5, dim)
        assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(by_linear_programming(mu, nu, p), rel=LP)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dim", [1, 3])
def test_permutations(dim: int, p: float) -> None:
    mu, nu = prompt(0, 6, dim), prompt(1, 6, dim)
    assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(by_permutations(mu, nu, p), rel=1e-13)


@pytest.mark.parametrize("p", POWERS)
def test_assignment_and_network_simplex_agree(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    mu, nu = prompt(0, 80, 3), prompt(1, 80, 3)
    assigned = float(mf.wasserstein(mu, nu, p))
    monkeypatch.setattr(exact, "ASSIGNED", (0, 0))
    assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(assigned, rel=1e-13)


def test_a_plan_that_is_not_optimal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: a check of the duals that does not look at the plan, or at the potentials
    mu, nu = cloud(0, 12, 2), cloud(1, 9, 2)
    solver = exact._solver()
    for spoil in (lambda plan, g: (np.outer(plan.sum(1), plan.sum(0)), g), lambda plan, g: (plan, g + np.arange(9))):

        def spoiled(*arguments: Any, spoil: Any = spoil) -> Any:
            plan, cost, f, g, code = solver(*arguments)
            plan, g = spoil(plan, g)
            return plan, cost, f, g, code

        monkeypatch.setattr(exact, "_solver", lambda spoiled=spoiled: spoiled)
        with pytest.raises(mf.errors.ToleranceError, match="duality gap"):
            mf.wasserstein(mu, nu)


@settings(max_examples=20)
@given(seeds, st.sampled_from([(3, 5), (40, 40), (200, 17)]))
def test_scipy_on_the_line(seed: int, sizes: tuple[int, int]) -> None:
    mu, nu = cloud(seed, sizes[0], 1), cloud(seed + 1, sizes[1], 1, passive=True)
    expected = wasserstein_distance(
        np.asarray(mu.points)[:, 0], np.asarray(nu.points)[:, 0], np.asarray(mu.weights), np.asarray(nu.weights)
    )
    assert float(mf.wasserstein(mu, nu, 1)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_the_line_in_the_plane(p: float) -> None:
    """The two solvers agree: quantiles on the line, the network simplex on a line that lies in the plane."""
    mu, nu = cloud(0, 60, 1), cloud(1, 45, 1)
    turned = [measure.push(lambda x: np.asarray(x) * np.array([[0.6, 0.8]])) for measure in (mu, nu)]
    assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(float(mf.wasserstein(*turned, p)), rel=1e-12)


@settings(max_examples=15)
@given(seeds, st.sampled_from([1, 1.5, 2, 4]), st.sampled_from([1, 2]))
def test_laws(seed: int, p: float, dim: int) -> None:
    mu, nu, third = cloud(seed, 7, dim), cloud(seed + 1, 5, dim), cloud(seed + 2, 6, dim)
    rng = np.random.default_rng(seed)
    shift, factor = rng.normal(size=dim), rng.uniform(0.2, 5)
    distance = float(mf.wasserstein(mu, nu, p))
    close = {"rel": 1e-10, "abs": 1e-12}
    assert float(mf.wasserstein(nu, mu, p)) == pytest.approx(distance, **close)
    # kills: a weight ignored, which splitting every atom alike would not notice
    same = mf.Discrete.weighted(
        np.asarray(mu.points)[[0, 0, *range(1, 7)]],
        np.concatenate([np.asarray(mu.weights)[[0, 0]] * [0.3, 0.7], np.asarray(mu.weights)[1:]]),
    )
    assert float(mf.wasserstein(same, nu, p)) == pytest.approx(distance, **close)
    # a shift of one measure by c moves it by |c|; a dilation of both multiplies the distance
    moved = mu.push(lambda x: np.asarray(x) + shift)
    assert float(mf.wasserstein(mu, moved, p)) == pytest.approx(float(np.linalg.norm(shift)), **close)
    larger = [measure.push(lambda x: factor * np.asarray(x)) for measure in (mu, nu)]
    assert float(mf.wasserstein(*larger, p)) == pytest.approx(factor * distance, **close)
    # mass c: the cost is c times that of the normalised measures
    assert float(mf.wasserstein(3 * mu, 3 * nu, p)) == pytest.approx(3 ** (1 / p) * distance, **close)
    assert float(mf.wasserstein(3 * mu, 3 * nu, p) ** p) == pytest.approx(3 * distance**p, **close)
    assert distance <= float(mf.wasserstein(mu, third, p)) + float(mf.wasserstein(third, nu, p)) + 1e-12
    assert distance <= float(mf.wasserstein(mu, nu, p + 0.5)) + 1e-12


@pytest.mark.parametrize("dim", [1, 2])
def test_the_same_measure_in_another_order(dim: int) -> None:
    mu = cloud(0, 50, dim)
    again = mu.rows(np.random.default_rng(0).permutation(50))
    # masses agree up to a rounding, which is moved to the next atom
    assert float(mf.wasserstein(mu, again, 1)) < 1e-13
    assert float(mf.wasserstein(mu, mu)) == 0


def test_infinity_on_the_line() -> None:
    mu, nu = cloud(0, 9, 1), cloud(1, 12, 1)
    limit = float(mf.wasserstein(mu, nu, np.inf))
    # an optimal plan moves at least its smallest step over the longest distance
    least = float(np.asarray(mf.coupling(mu, nu).plan.data).min())
    assert limit * least ** (1 / 400) <= float(mf.wasserstein(mu, nu, 400)) <= limit
    for p in (1, 2, np.inf):
        # two sorts for equal weights, and a merge where one atom is split
        equal, other = prompt(2, 9, 1), prompt(3, 9, 1)
        halves = mf.Discrete.weighted(np.repeat(np.asarray(equal.points), 2, axis=0), np.full(18, 1 / 18))
        assert float(mf.wasserstein(equal, other, p)) == pytest.approx(
            float(mf.wasserstein(halves, other, p)), rel=1e-12
        )
    # thirds against sixths: rounding of the partial sums would move a last place of mass over distance 1
    thirds, sixths = np.repeat([0.0, 1.0, 2.0], 1), np.repeat([0.0, 1.0, 2.0], 2)
    pair = mf.Discrete.uniform(thirds[:, None]), mf.Discrete.uniform(sixths[:, None])
    assert float(mf.wasserstein(*pair, np.inf)) == 0


def test_infinity_in_single_precision() -> None:
    # kills: partial sums in float32, whose rounding is larger than the weight of an atom
    x, y = np.random.default_rng(0).normal(size=(2, 3000, 1)).astype(np.float32)
    weights = np.tile(np.float32([1, 2, 4]), 1000) / np.float32(7000)
    found = mf.wasserstein(mf.Discrete.weighted(x, weights), mf.Discrete.weighted(y, weights), np.inf)
    double = (mf.Discrete.weighted(z.astype(float), weights.astype(float)) for z in (x, y))
    assert found.dtype == np.float32
    assert float(found) == pytest.approx(float(mf.wasserstein(*double, np.inf)), rel=1e-6)


def by_permutations_and_logarithms(x: np.ndarray, y: np.ndarray, p: float) -> float:
    orders = np.array(list(permutations(range(len(x)))))
    logs = np.log(np.linalg.norm(x[:, None] - y, axis=2))[np.arange(len(x)), orders]
    return float(np.exp(logsumexp(p * logs, axis=1, b=1 / len(x)).min() / p))


@pytest.mark.parametrize("p", [10, 100, 400, 10_000])
@pytest.mark.parametrize("apart", [1, 1000])
def test_large_exponents(apart: float, p: float) -> None:
    # kills: costs that vanish beside those of far pairs, steps without mass whose powers overflow
    for seed in range(3):
        x, y = np.random.default_rng(seed).normal(size=(2, 5, 2))
        x[:2, 0] += apart
        y[:2, 0] += apart
        expected = by_permutations_and_logarithms(x, y, p)
        mu, nu = mf.Discrete.uniform(x), mf.Discrete.uniform(y)
        assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(expected, rel=1e-12)
        # an atom in two halves: unequal weights, hence the network simplex
        halves = np.array([0, 0, 1, 2, 3, 4])
        split = [mf.Discrete.weighted(z[halves], [0.1, 0.1, 0.2, 0.2, 0.2, 0.2]) for z in (x, y)]
        assert float(mf.wasserstein(*split, p)) == pytest.approx(expected, rel=1e-12)
    assert float(jax.jit(lambda mu, nu: mf.wasserstein(mu, nu, p))(*split)) == pytest.approx(expected, rel=1e-12)
    slope = jax.grad(lambda x: mf.wasserstein(mf.Discrete.uniform(x), nu, p))(x)
    # the distance grows with a dilation about nu: Euler's identity in both measures
    other = jax.grad(lambda y: mf.wasserstein(mu, mf.Discrete.uniform(y), p))(y)
    assert float(jnp.sum(slope * x) + jnp.sum(other * y)) == pytest.approx(expected, rel=1e-8)


def test_exponents_that_roundings_would_decide_are_refused() -> None:
    mu, nu = cloud(0, 5, 2), cloud(1, 5, 2)
    with pytest.raises(mf.errors.OptionError, match="p ≤ 10000 off the line"):
        mf.wasserstein(mu, nu, 1e5)
    with pytest.raises(mf.errors.OptionError, match=r"p ≤ 1e\+15: beyond, W_p is W_∞"):
        mf.wasserstein(cloud(0, 5, 1), cloud(1, 5, 1), 1e16)
    mu, nu = cloud(0, 5, 1), cloud(1, 5, 1)
    for p in (1e6, 1e15):
        assert float(mf.wasserstein(mu, nu, p)) == pytest.approx(float(mf.wasserstein(mu, nu, np.inf)), rel=10 / p)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_no_overflow_and_no_underflow(dim: int, size: float) -> None:
    mu, nu = cloud(0, 5, dim), cloud(1, 5, dim)
    scaled = [measure.push(lambda x: size * np.asarray(x)) for measure in (mu, nu)]
    for p in (2, 30):
        expected = size * float(mf.wasserstein(mu, nu, p))
        assert float(mf.wasserstein(*scaled, p)) == pytest.approx(expected, rel=1e-12)


def test_space_time_is_one_more_coordinate() -> None:
    rng = np.random.default_rng(0)
    x, y, s, t = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng.uniform(size=5), rng.uniform(size=5)
    flat = [mf.Discrete.uniform(np.concatenate([z, w[:, None]], axis=1)) for z, w in ((x, s), (y, t))]
    sigma, tau = mf.SpaceTime.uniform(x, s), mf.SpaceTime.uniform(y, t)
    assert float(mf.wasserstein(sigma, tau)) == pytest.approx(float(mf.wasserstein(*flat)), rel=1e-14)


@pytest.mark.parametrize("dim", [1, 2])
def test_float32_stays_float32(dim: int) -> None:
    pair = [cloud(seed, 9, dim) for seed in range(2)]
    small = [mf.Discrete.weighted(np.float32(mu.points), np.float32(mu.weights)) for mu in pair]
    for function in (mf.wasserstein, mf.positive_wasserstein):
        value = function(*small)
        assert value.dtype == np.float32
        # points and weights are rounded to 24 digits
        assert float(value) == pytest.approx(float(function(*pair)), rel=1e-5)


@pytest.mark.parametrize("dim", [1, 2])
def test_a_new_size_compiles_nothing(dim: int) -> None:
    mf.wasserstein(cloud(0, 50, dim), cloud(1, 60, dim))
    for n in (50, 51, 63):
        pair = cloud(0, n, dim), cloud(1, n + 1, dim)
        assert count_compilations(lambda pair=pair: mf.wasserstein(*pair)) == 0


@pytest.mark.slow
def test_a_million_weighted_atoms_on_the_line() -> None:
    """A few times the sorts: the rest are sums and merges, linear in n."""
    n = 1_000_000
    mu, nu = cloud(0, n, 1), cloud(1, n, 1)

    def seconds(run: Any) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    sort = min(seconds(lambda: [np.argsort(np.asarray(m.points)[:, 0], stable=True) for m in (mu, nu)]) for _ in "123")
    whole = min(seconds(lambda: mf.wasserstein(mu, nu)) for _ in "123")
    assert whole < 4 * sort
