"""Blocks and their algebra: closed forms, laws of arithmetic, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer import errors
from measureformer.universality.factors import table

Block = mf.universality.Block
few = settings(max_examples=5, phases=(Phase.explicit, Phase.generate))  # a seed does not shrink
seeds = st.integers(0, 10**6)


def block(rng: np.random.Generator, dim: int = 2) -> mf.universality.Block:
    u, v, b = rng.normal(size=(3, dim))
    return Block(rng.normal(size=(dim, dim)), b, rng.normal(), u, v)


def cloud(rng: np.random.Generator, n: int = 6, dim: int = 2) -> mf.Discrete:
    return mf.Discrete.weighted(rng.uniform(-1, 1, (n, dim)), rng.uniform(0.1, 2, n))


def directly(block: Any, mu: mf.Discrete, x: np.ndarray) -> np.ndarray:
    """The definition, atom by atom."""
    A, b, c, u, v = (np.asarray(part) for part in (block.A, block.b, block.c, block.u, block.v))
    y, a = np.asarray(mu.points), np.asarray(mu.weights)
    out = []
    for query in x:
        kernel = a * np.exp(y @ (A @ query + b))
        out.append(query @ u + (kernel * (y @ v + c)).sum() / kernel.sum())
    return np.array(out)[:, None]


def largest(difference: Any) -> float:
    return float(np.abs(np.asarray(difference)).max())


def test_a_block_is_its_definition() -> None:
    # kills: A transposed, b added to the key, c outside of a kernel that does not sum to 1, ignored weights
    rng = np.random.default_rng(0)
    for dim in (1, 2, 3):
        one, mu, x = block(rng, dim), cloud(rng, 7, dim), rng.uniform(-1, 1, (5, dim))
        assert largest(one(mu, x) - directly(one, mu, x)) < 1e-13


def test_the_constant_and_linear_blocks_are_exact() -> None:
    rng = np.random.default_rng(1)
    mu, x = cloud(rng), rng.uniform(-1, 1, (9, 2))
    assert largest(Block(np.zeros((2, 2)), None, 1.0, None, None)(mu, x) - 1) <= 2e-16
    u = rng.normal(size=2)
    np.testing.assert_array_equal(Block(None, None, 0.0, u, None)(mu, x)[:, 0], np.asarray(jax.numpy.asarray(x) @ u))


def test_a_block_on_a_gaussian_has_a_closed_form() -> None:
    # ∫ softmax(⟨a, y⟩) ⟨v, y⟩ dN(m, Σ) = ⟨v, m + Σ a⟩
    one = Block([[0.5, 0.2], [0.0, -0.3]], [0.1, 0.4], 0.7, [1.0, 0.0], [0.3, -0.6])
    m, cov, x = np.array([0.2, -0.1]), np.array([[1.0, 0.3], [0.3, 0.5]]), np.array([0.4, 0.8])
    a = np.asarray(one.A) @ x + np.asarray(one.b)
    expected = x[0] + np.asarray(one.v) @ (m + cov @ a) + 0.7
    assert float((one * one)(mf.Gaussian(m, cov), x)[0]) == pytest.approx(expected**2, rel=1e-13)


@few
@given(seed=seeds)
def test_arithmetic_of_expressions_is_arithmetic_of_values(seed: int) -> None:
    # kills: products over the wrong index, coefficients lost when equal monomials are joined
    rng = np.random.default_rng(seed)
    a, b, c = (block(rng) for _ in range(3))
    mu, x = cloud(rng), rng.uniform(-1, 1, (4, 2))
    A, B, C = (np.asarray(part(mu, x)) for part in (a, b, c))
    number = float(rng.normal())
    for e, value in (
        (a * b + number * c, A * B + number * C),
        ((a + b) * (a - b), (A + B) * (A - B)),
        (np.float64(2) * a**3 - 1, 2 * A**3 - 1),
        (number - a * c * b, number - A * B * C),
        (a * b - b * a + c, C),
    ):
        assert largest(np.asarray(e(mu, x)) - value) < 1e-12 * max(1.0, largest(value))
    assert (a * b - b * a + c).monomials == 1  # a·b and b·a are the same


def test_vectors_multiply_component_by_component() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (block(rng) for _ in range(3))
    mu, x = cloud(rng), rng.uniform(-1, 1, (4, 2))
    both = mf.universality.vector(a + b, b * c)
    value = np.asarray(both(mu, x))
    assert largest(value - np.concatenate([(a + b)(mu, x), (b * c)(mu, x)], axis=1)) < 1e-14
    assert largest((both * both + a)(mu, x) - (value**2 + np.asarray(a(mu, x)))) < 1e-13
    assert largest((both * np.array([2.0, 3.0]))(mu, x) - value * [2, 3]) < 1e-13
    assert largest(both[1](mu, x)[:, 0] - value[:, 1]) < 1e-15


@few
@given(seed=seeds)
def test_measures_are_seen_through_their_masses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    e, mu, x = block(rng) * block(rng) + 1, cloud(rng), rng.uniform(-1, 1, (3, 2))
    split = mf.Discrete.weighted(
        np.r_[mu.points, mu.points[:1]], np.r_[0.3 * mu.weights[:1], mu.weights[1:], 0.7 * mu.weights[:1]]
    )
    assert largest(np.asarray(e(17.0 * split, x)) - e(mu, x)) < 1e-12 * max(1.0, largest(e(mu, x)))


def test_many_small_contexts_at_once_are_the_same_numbers() -> None:
    rng = np.random.default_rng(4)
    e = mf.universality.vector(*(block(rng) for _ in range(5)))
    contexts, x = [cloud(rng) for _ in range(3)], rng.uniform(-1, 1, (3, 4, 2))
    points, weights = (
        np.stack([np.asarray(getattr(mu, name)) for mu in contexts]) for name in ("points", "log_weights")
    )
    values = np.asarray(table(e.factors, points, weights, x))
    for k, mu in enumerate(contexts):
        # all coefficients are 1 and each monomial is one block
        np.testing.assert_allclose(values[k], e(mu, x[k]), rtol=0, atol=1e-13)


def test_gradients_go_through() -> None:
    e = Block([[1.0]], [0.5], 0.0, None, [1.0]) ** 2
    mu = mf.Discrete.uniform([[0.0], [1.0]])
    slope = jax.grad(lambda x: e(mu, x)[0])(np.array([0.3]))
    step = 1e-6
    difference = (e(mu, [0.3 + step]) - e(mu, [0.3 - step])) / (2 * step)
    assert float(slope[0]) == pytest.approx(float(difference[0]), rel=1e-7)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Block(None, None, 1.0, None, None), errors.ShapeError, "tells the dimension"),
        (lambda: Block(np.eye(3), [0.0, 1.0], 0.0, None, None), errors.ShapeError, r"A of shape \(d, d\)"),
        (lambda: Block(None, None, 0.0, [np.nan], None), errors.NotFiniteError, "u with"),
        (lambda: line() + plane(), errors.DimensionMismatchError, "R.1 and R.2"),
        (lambda: line() * plane(), errors.DimensionMismatchError, "one dimension of tokens"),
        (lambda: mf.universality.vector(line(), plane()), errors.DimensionMismatchError, "one dimension of tokens"),
        (
            lambda: mf.universality.vector(line(), line()) + mf.universality.vector(line(), line(), line()),
            errors.DimensionMismatchError,
            "2 and 3 components",
        ),
        (lambda: mf.universality.vector(), errors.DtypeError, "at least one expression"),
        (lambda: line() ** -1, errors.OptionError, "no inverses"),
        (lambda: line()(mf.Discrete.dirac([0.0, 0.0]), [0.0, 0.0]), errors.DimensionMismatchError, "R.1"),
    ],
)
def test_refusals(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def line() -> mf.universality.Block:
    return Block(None, None, 0.0, None, [1.0])


def plane() -> mf.universality.Block:
    return Block(None, None, 0.0, None, [1.0, 0.0])
