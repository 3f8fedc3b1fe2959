"""The derivative in mass against finite differences of the map itself, and against its closed form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from map_examples import ALL, DIM, context, queries
from measureformer.errors import DerivativeError, DimensionMismatchError, NoClosedFormError, ShapeError, TimeError
from measureformer.maps.variation import by_a_light_atom, closed_form

Y, S = np.array([0.3, -0.8, 0.5]), 0.9
# the implicit solver of Sinkhorn attention stops at its own tolerance, which a difference quotient divides by ε
TOLERANCE = {"SinkhornAttention": 1e-5}


def extrapolated(G: Any, mu: Any, x: tuple[Any, ...], mass: float = 1e-4) -> np.ndarray:
    """One-sided difference quotients in the mass of an atom at Y, extrapolated to third order."""

    def slope(eps: float) -> np.ndarray:
        atom = mf.SpaceTime.weighted(Y[None], [S], [eps]) if G.needs_time else eps * mf.Discrete.dirac(Y)
        return (np.asarray(G(mu + atom, *x)) - np.asarray(G(mu, *x))) / eps

    coarse, fine, finest = (slope(mass / k) for k in (1, 2, 4))
    return (4 * (2 * finest - fine) - (2 * fine - coarse)) / 3


@pytest.mark.parametrize("name", sorted(set(ALL) - {"Causal(HardmaxAttention)"}))
def test_it_is_the_limit_of_difference_quotients(name: str) -> None:
    # kills: the derivative in the log-weight (0 at zero mass), and one that forgets that the new atom moves too
    G = ALL[name]()
    mu, x = context(G, 1), queries(G, 1)
    times = {"t": x[1], "s": S} if G.needs_time else {}
    found = mf.first_variation(G, mu, x[0], Y, **times)
    np.testing.assert_allclose(found, extrapolated(G, mu, x), rtol=0, atol=TOLERANCE.get(name, 1e-9))


@given(seed=st.integers(0, 10**6), mass=st.sampled_from([1e-3, 1.0, 50.0]))
def test_closed_form_and_light_atom_agree(seed: int, mass: float) -> None:
    rng = np.random.default_rng(seed)
    G = ALL["Attention"]()
    mu = mass * mf.Discrete.weighted(rng.normal(size=(8, DIM)), rng.uniform(0, 1, 8))
    x, y = jnp.asarray(rng.normal(size=(4, DIM))), jnp.asarray(rng.normal(size=(1, DIM)))
    closed = jax.jit(closed_form)(G, mu, x, y)
    np.testing.assert_allclose(
        jax.jit(by_a_light_atom)(G, mu, x, None, y, None)[1], closed, rtol=1e-9, atol=1e-12 / mass
    )


def test_homogeneous_maps_do_not_change_along_their_own_measure() -> None:
    # G(c·mu, x) = G(mu, x), so the integral of the first variation against mu is 0
    G, rng = ALL["Transformer"](), np.random.default_rng(0)
    points, weights = rng.normal(size=(5, DIM)), rng.uniform(0.1, 1, 5)
    mu, x = mf.Discrete.weighted(points, weights), rng.normal(size=(3, DIM))
    parts = [w * np.asarray(mf.first_variation(G, mu, x, y)) for y, w in zip(points, weights, strict=True)]
    assert max(np.abs(part).max() for part in parts) > 1e-3
    np.testing.assert_allclose(sum(parts), 0, atol=1e-12)


def test_on_a_gaussian_it_is_the_limit_of_its_samples() -> None:
    G = mf.Attention.random(jax.random.key(0), 2, heads=2, scale=0.5)
    gauss = mf.Gaussian([0.3, -0.2], [[0.5, 0.1], [0.1, 0.3]])
    x, y = np.array([[0.2, 0.4], [-1.0, 0.5]]), np.array([0.7, 0.1])
    exact = np.asarray(mf.first_variation(G, gauss, x, y))
    errors = [np.abs(mf.first_variation(G, gauss.discretize(n), x, y) - exact).max() for n in (512, 8192)]
    assert errors[1] < errors[0] / 8 < 0.01
    with pytest.raises(NoClosedFormError, match="first variation"):
        mf.first_variation(mf.L2Attention.head(np.eye(2), np.eye(2), np.eye(2)), gauss, x, y)


def test_precision_and_traces() -> None:
    G, mu = ALL["Residual"](), context(ALL["Residual"](), 3)
    x = queries(G, 3)[0]
    double = mf.first_variation(G, mu, x, Y)
    single = mf.first_variation(G, context(G, 3, dtype=np.float32), x.astype(np.float32), Y.astype(np.float32))
    np.testing.assert_allclose(single, double, atol=1e-5)
    traced = jax.jit(jax.vmap(lambda y: mf.first_variation(G, mu, x[0], y)))(np.stack([Y, Y]))
    np.testing.assert_allclose(traced, np.stack([double[0]] * 2), atol=1e-12)


def test_a_point_in_double_precision_is_not_rounded_to_a_measure_in_single() -> None:
    # kills: an atom at y that is written into the float32 array of the other atoms
    G, mu = ALL["L2Attention"](), context(ALL["L2Attention"](), 3, dtype=np.float32)
    x = queries(G, 3)[0]
    exact = mf.first_variation(G, mu.with_points(jnp.asarray(mu.points, np.float64)), x, Y)
    np.testing.assert_allclose(mf.first_variation(G, mu, x, Y), exact, rtol=1e-12)


def test_a_new_number_of_tokens_compiles_nothing() -> None:
    G, rng = ALL["Residual"](), np.random.default_rng(0)

    def at(n: int) -> None:
        mf.first_variation(G, mf.Discrete.uniform(rng.normal(size=(n, DIM))), rng.normal(size=(n, DIM)), Y)

    at(20)
    assert count_compilations(lambda: [at(n) for n in (21, 31)]) == 0


REFUSALS = {
    "two points": (ShapeError, lambda G, mu: mf.first_variation(G, mu, Y, np.stack([Y, Y])), "2 points y"),
    "other dimension": (DimensionMismatchError, lambda G, mu: mf.first_variation(G, mu, Y, Y[:2]), r"R\^2"),
    "no time for the atom": (TimeError, lambda G, mu: mf.first_variation(mf.Causal(G), mu, Y, Y, t=0.5), "time"),
    "a new winner": (
        DerivativeError,
        lambda G, mu: mf.first_variation(mf.HardmaxAttention.head(np.eye(3), np.eye(3), np.eye(3)), mu, Y, 9 * Y),
        "jumps",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, words = REFUSALS[case]
    G = ALL["Attention"]()
    mu = context(mf.Causal(G) if "time" in case else G, 0)
    with pytest.raises(error, match=words):
        call(G, mu)
