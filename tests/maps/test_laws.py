"""The laws that every public map obeys, whatever it is: found by inspection, applied to all."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from map_examples import ALL, DIM, EXAMPLES, context, late, public_maps, queries

names = pytest.mark.parametrize("name", ALL)
public = pytest.mark.parametrize("name", EXAMPLES)
few = settings(max_examples=5)
seeds = st.integers(0, 10**6)


def scale_of(values: Any) -> float:
    return max(1.0, float(np.abs(np.asarray(values)).max()))


def same(a: Any, b: Any, ulps: float = 1e4) -> None:
    """Equal up to the rounding of a few thousand operations."""
    np.testing.assert_allclose(a, b, rtol=0, atol=ulps * np.finfo(np.float64).eps * scale_of(b))


def test_every_public_map_has_an_example() -> None:
    assert public_maps() == set(EXAMPLES)


@names
@few
@given(seed=seeds, mass=st.sampled_from([1e-3, 17.0]))
def test_the_mass_of_the_context_is_irrelevant(name: str, seed: int, mass: float) -> None:
    # kills: integrals that are not divided by the mass
    G = ALL[name]()
    mu = context(G, seed)
    at = late(G, mu)
    same(G(mass * mu, *at), G(mu, *at))


@names
@few
@given(seed=seeds, share=st.sampled_from([0.1, 0.5]))
def test_splitting_one_atom_changes_nothing(name: str, seed: int, share: float) -> None:
    # kills: ignored weights (splitting every atom alike would not), ties shared by count
    G = ALL[name]()
    mu = context(G, seed)
    weights = np.asarray(mu.weights)
    first = np.r_[share * weights[0], weights[1:], (1 - share) * weights[0]]
    with np.errstate(divide="ignore"):
        split = mu.rows(np.r_[np.arange(mu.n), 0]).with_log_weights(jnp.asarray(np.log(first)))
    at = late(G, mu)
    same(G(split, *at), G(mu, *at))


@names
@few
@given(seed=seeds)
def test_order_and_passive_tokens_change_nothing(name: str, seed: int) -> None:
    # kills: positions taken from the index, passive tokens that are felt
    G = ALL[name]()
    mu = context(G, seed)
    order = np.random.default_rng(seed).permutation(mu.n)
    at = late(G, mu)
    value = G(mu, *at)
    same(G(mu.rows(order), *at), value)
    active = mu.rows(np.flatnonzero(np.asarray(mu.log_weights) > -np.inf))
    same(G(active, *at), value)
    # equivariance of the push-forward: the image of atom i goes where atom i goes
    pushed = G.push(mu)
    same(np.asarray(pushed.points)[order], G.push(mu.rows(order)).points)


@names
def test_push_is_evaluation_at_the_atoms_and_keeps_mass(name: str) -> None:
    G = ALL[name]()
    mu = context(G, 3)
    pushed = G.push(mu)
    own = (mu.points, mu.times) if G.needs_time else (mu.points,)
    if G.needs_time:
        # the first token may be passive, and then sees nothing: look from the times at which mass is visible
        assert float(np.asarray(mu.times)[np.asarray(mu.log_weights) > -np.inf].min()) == float(
            np.asarray(mu.times).min()
        )
        np.testing.assert_array_equal(pushed.times, mu.times)
    same(pushed.points, G(mu, *own))
    np.testing.assert_array_equal(pushed.log_weights, mu.log_weights)
    assert pushed.points.shape == (mu.n, G.out_dim(DIM))


@public
def test_tokens_are_the_push_of_the_uniform_measure_in_order(name: str) -> None:
    G = ALL[name]()
    X = np.random.default_rng(5).normal(size=(6, DIM))
    prompt = mf.SpaceTime.sequence(X) if G.needs_time else mf.Discrete.uniform(X)
    same(G.tokens(X), G.push(prompt).points)
    assert G.tokens(X).shape == (6, G.out_dim(DIM))


@public
def test_one_query_is_one_row(name: str) -> None:
    G = ALL[name]()
    mu, at = context(G, 6), queries(G, 6)
    rows = np.stack([np.asarray(G(mu, *(a[i] for a in at))) for i in range(len(at[0]))])
    same(rows, G(mu, *at))


@public
def test_jit_grad_and_vmap_go_through(name: str) -> None:
    G = ALL[name]()
    mu, at = context(G, 8), tuple(map(jnp.asarray, queries(G, 8)))
    value = G(mu, *at)
    same(eqx.filter_jit(lambda G, mu, at: G(mu, *at))(G, mu, at), value)
    same(eqx.filter_jit(lambda G, mu: G.push(mu).points)(G, mu), G.push(mu).points)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), mu, context(G, 9))
    both = eqx.filter_vmap(lambda mu: G(mu, *at))(batch)
    same(both[0], value)
    same(both[1], G(context(G, 9), *at))


@names
def test_gradients_are_finite_and_right(name: str) -> None:
    # with passive atoms, in the map's parameters, the measure and the query; checked by a finite difference
    G = ALL[name]()
    mu, at = context(G, 10), queries(G, 10)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(arguments: Any) -> Any:
        G, mu, x = arguments
        return jnp.sum(jnp.sin(G(mu, x, *at[1:])))

    arguments = (G, mu, jnp.asarray(at[0]))
    slopes = gradient(arguments)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert not np.asarray(slopes[1].points[mu.n // 2]).any()  # nobody feels the passive token

    def along(step: float) -> float:
        rng = np.random.default_rng(1)
        points = np.asarray(mu.points) + step * rng.normal(size=mu.points.shape)
        log_weights = np.asarray(mu.log_weights) + step * rng.normal(size=mu.n)
        moved = mu.with_points(jnp.asarray(points)).with_log_weights(jnp.asarray(log_weights))
        x = at[0] + step * rng.normal(size=at[0].shape)
        return float(np.sum(np.sin(np.asarray(G(moved, x, *at[1:])))))

    rng = np.random.default_rng(1)
    expected = np.sum(np.asarray(slopes[1].points) * rng.normal(size=mu.points.shape))
    expected += np.sum(np.asarray(slopes[1].log_weights) * rng.normal(size=mu.n))
    expected += np.sum(np.asarray(slopes[2]) * rng.normal(size=at[0].shape))
    h = 1e-5
    assert (along(h) - along(-h)) / (2 * h) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@public
def test_float32_stays_float32_under_strict_promotion(name: str) -> None:
    double = ALL[name]()
    G = jax.tree.map(lambda a: a.astype(np.float32) if eqx.is_inexact_array(a) else a, double)
    mu, at = context(G, 11, dtype=np.float32), queries(G, 11, dtype=np.float32)
    with jax.numpy_dtype_promotion("strict"):
        value, pushed = G(mu, *at), G.push(mu)
    assert value.dtype == np.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(pushed)} == {np.dtype(np.float32)}
    reference = np.asarray(double(context(G, 11), *queries(G, 11)))
    np.testing.assert_allclose(value, reference, rtol=0, atol=2e-4 * scale_of(reference))
    with jax.numpy_dtype_promotion("strict"):
        assert G(context(G, 11), *at).dtype == np.float64


@public
def test_a_new_number_of_atoms_or_queries_compiles_nothing(name: str) -> None:
    G = ALL[name]()

    def run(n: int) -> None:
        mu = context(G, n, n=n)
        G(mu, *queries(G, n, m=n))
        G.push(mu)

    run(12)
    assert count_compilations(lambda: [run(n) for n in (13, 16, 9)]) == 0
