"""Measures go through jit, vmap and grad; gradients are finite and right whatever share of the atoms has no mass."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measure_examples import (
    CONCRETE_ONLY,
    DIM,
    KINDS,
    TRACEABLE,
    covariances,
    entries,
    floating,
    uncovered,
    weighted_like,
)
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic

N = 8
# the same formulas in another order, by another compiler, on numbers of size ≤ 10
ROUNDING = 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_function_is_in_the_tables(kind: str) -> None:
    assert uncovered(kind) == set()


def agree(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, atol=ROUNDING, rtol=ROUNDING)


def all_of(kind: str, mu: Any) -> dict[str, Any]:
    return {case: run(mu) for case, run in TRACEABLE[kind].items()}


@cache
def results(kind: str) -> dict[str, Any]:
    """Every function of this kind in every setting; one program per setting, because compiling takes the time."""
    mu, nu = KINDS[kind](0), KINDS[kind](1)
    both = jax.tree.map(lambda *pair: np.stack(pair), mu, nu)
    closed = eqx.filter_jit(
        lambda one: {case: run(mu) for case, run in (TRACEABLE[kind] | CONCRETE_ONLY[kind]).items()}
    )
    return {
        "concrete": (all_of(kind, mu), all_of(kind, nu)),
        "jit and vmap": jax.jit(jax.vmap(lambda mu: all_of(kind, mu)))(both),
        "closed over": closed(1.0),
    }


@pytest.mark.parametrize(("kind", "case"), entries(TRACEABLE))
def test_jit_and_vmap_go_through(kind: str, case: str) -> None:
    # kills: NumPy on a tracer, a formula that differs between the two libraries, the batch axis taken for the atoms
    found = results(kind)
    for index, expected in enumerate(found["concrete"]):
        agree(jax.tree.map(lambda leaf, index=index: leaf[index], found["jit and vmap"][case]), expected[case])


@pytest.mark.parametrize(("kind", "case"), entries(TRACEABLE, CONCRETE_ONLY))
def test_a_concrete_measure_can_be_closed_over(kind: str, case: str) -> None:
    # kills: arrays staged into the caller's program, which NumPy and checks of values cannot read
    run = (TRACEABLE[kind] | CONCRETE_ONLY[kind])[case]
    agree(results(kind)["closed over"][case], run(KINDS[kind](0)))


@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_pytrees(kind: str) -> None:
    mu = KINDS[kind](0)
    back = jax.tree.unflatten(jax.tree.structure(mu), jax.tree.leaves(mu))
    assert type(back) is type(mu)
    agree(jax.jit(lambda mu: mu)(mu), mu)
    # n is not part of the structure: a padded measure of another n runs through the same program
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(mu))
    if isinstance(mu, AbstractAtomic):
        assert jax.tree.structure(mu.padded()) == jax.tree.structure(mu)


def numbers(result: Any) -> Any:
    """One number that depends on all finite parts of a result; measures count through points and weights."""

    def parts(node: Any) -> Any:
        if isinstance(node, AbstractAtomic):
            return node.points, node.weights
        if isinstance(node, mf.GaussianMixture):
            return jnp.exp(node.log_weights), node.means, node.covs
        return node

    leaves = floating(jax.tree.map(parts, result, is_leaf=lambda node: isinstance(node, AbstractMeasure)))
    return sum(
        jnp.sum(jnp.sin(1.0 + jnp.arange(leaf.size)) * jnp.where(jnp.isinf(leaf), 0, leaf).ravel()) for leaf in leaves
    )


SHARES = {
    "none": [],
    "the first": [0],
    "the last": [N - 1],
    "every other": range(0, N, 2),
    "a whole first block": range(N // 2),
    "all but one": range(1, N),
}
# what the others have from the same base class is differentiated once
OWN = {"+", "integrate", "push", "space", "rows", "with_points", "with_log_weights"}
DIFFERENTIATED = {
    "Discrete": TRACEABLE["Discrete"],
    "SpaceTime": {case: run for case, run in TRACEABLE["SpaceTime"].items() if case in OWN},
    "Prefixes": {"log_mass_until": TRACEABLE["Prefixes"]["log_mass_until"]},
}


def atoms(share: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    points, weights, times = rng.normal(size=(N, DIM)), rng.uniform(0.5, 1, N), rng.uniform(size=N)
    weights[list(SHARES[share])] = 0
    return points, weights, times


@cache
def programs(kind: str) -> tuple[Any, Any]:
    """All functions as one vector: its derivatives in points and weights with its value, and those in log-weights."""

    def all_numbers(mu: Any) -> Any:
        return jnp.stack([numbers(run(mu)) for run in DIFFERENTIATED[kind].values()])

    def values(points: Any, weights: Any, times: Any) -> tuple[Any, Any]:
        found = all_numbers(weighted_like(kind, points, weights, times))
        return found, found

    def from_logarithms(log_weights: Any, points: Any, times: Any) -> Any:
        return all_numbers(weighted_like(kind, points, jnp.ones(N), times).with_log_weights(log_weights))

    return jax.jit(jax.jacrev(values, (0, 1), has_aux=True)), jax.jit(jax.jacrev(from_logarithms))


@cache
def derivatives(kind: str, share: str) -> dict[str, np.ndarray]:
    """Each as (functions, entries), by automatic differentiation and by difference quotients."""
    gradient, log_gradient = programs(kind)
    points, weights, times = atoms(share)
    step = 1e-5

    def quotient(place: int, index: tuple[int, ...]) -> np.ndarray:
        ends = []
        for sign in (1, -1):
            moved = [points.copy(), weights.copy()]
            moved[place][index] += sign * step
            ends.append(np.asarray(gradient(*moved, times)[1]))
        return (ends[0] - ends[1]) / (2 * step)

    in_points, in_weights = gradient(points, weights, times)[0]
    with np.errstate(divide="ignore"):
        in_logarithms = log_gradient(np.log(weights), points, times)
    count = len(DIFFERENTIATED[kind])
    return {
        "points": np.asarray(in_points).reshape(count, -1),
        "points by differences": np.stack([quotient(0, index) for index in np.ndindex(N, DIM)], axis=1),
        "weights": np.asarray(in_weights),
        "weights by differences": np.stack(
            [quotient(1, (i,)) if weights[i] > 0 else np.zeros(count) for i in range(N)], axis=1
        ),
        "log-weights": np.asarray(in_logarithms),
    }


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("kind", "case"), entries(DIFFERENTIATED))
def test_gradients_with_passive_tokens(kind: str, case: str, share: str) -> None:
    """Finite everywhere, 0 in a weight that is 0, and elsewhere the derivative.

    Kills: log 0, 0·inf, −inf minus −inf, the root at 0, x/x at a passive token; and a gradient that is finite because
    it was cut. Difference quotients err by h²/6 times a third derivative, at most 1e3 for weights ≥ 1/2, and eps/h.
    """
    found, row = derivatives(kind, share), list(DIFFERENTIATED[kind]).index(case)
    weights = atoms(share)[1]
    for which in ("points", "weights", "log-weights"):
        assert np.isfinite(found[which][row]).all(), which
    assert (found["weights"][row][weights == 0] == 0).all()
    np.testing.assert_allclose(found["points"][row], found["points by differences"][row], atol=1e-6, rtol=0)
    np.testing.assert_allclose(found["weights"][row], found["weights by differences"][row], atol=1e-6, rtol=0)
    np.testing.assert_allclose(found["log-weights"][row], weights * found["weights"][row], atol=ROUNDING, rtol=0)


def test_some_gradients_are_not_zero() -> None:
    """The control of the test above: almost every function depends on the weights, all but a few on the points."""
    found = derivatives("Discrete", "every other")
    blind = {"radius", "sample", "with_log_weights"}
    for case, row in zip(TRACEABLE["Discrete"], found["weights"], strict=True):
        assert (np.abs(row).max() > 1e-3) == (case not in blind), case


def test_radius_at_the_origin_has_gradient_zero() -> None:
    # kills: the derivative of the root at 0
    value, gradient = jax.value_and_grad(lambda x: mf.Discrete.uniform(x).radius())(jnp.zeros((2, DIM)))
    assert float(value) == 0
    assert (np.asarray(gradient) == 0).all()
    assert float(mf.Discrete.uniform(np.zeros((2, DIM))).radius()) == 0


def test_gradients_of_mixtures() -> None:
    """Finite with a component of weight zero, repeated and zero eigenvalues; and right where the law is regular."""
    means, regular = np.random.default_rng(0).normal(size=(2, DIM)), covariances(0, 2)
    line, point = covariances(1, 1, rank=1)[0], np.zeros((DIM, DIM))

    def value(weights: Any, means: Any, covs: Any) -> Any:
        mu = mf.GaussianMixture(weights, means, covs)
        chosen = ("mass", "covariance", "tilt with H", "sample")
        return sum(numbers(TRACEABLE["GaussianMixture"][case](mu)) for case in chosen)

    program = jax.jit(jax.value_and_grad(value, (0, 1, 2)))
    for weights in ([1.0, 2.0], [0.0, 2.0]):
        for covs in (regular, np.stack([np.eye(DIM), line]), np.stack([line, point])):
            for leaf in program(np.array(weights), means, covs)[1]:
                assert np.isfinite(leaf).all()
    where = np.array([1.0, 2.0]), means, regular
    rng, step = np.random.default_rng(1), 1e-5
    directions = rng.normal(size=2), rng.normal(size=(2, DIM)), covariances(2, 2)
    ends = [float(program(*(x + s * v for x, v in zip(where, directions, strict=True)))[0]) for s in (step, -step)]
    found = sum(float(np.sum(np.asarray(g) * v)) for g, v in zip(program(*where)[1], directions, strict=True))
    # values of size 1e2, so that rounding leaves eps·1e2/h = 2e-9; h² times a third derivative of that size is 1e-8
    assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)
    assert abs(found) > 1e-2
