"""Counting operations: closed forms for products, sums, loops and branches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from measureformer.atlas.helpers.attention_operations import operations


def test_closed_forms() -> None:
    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))
    # kills: the size of a product without its sums
    assert operations(lambda a, b: a @ b, a, b) == 3 * 4 * 5
    assert operations(lambda a: jnp.exp(a) + a, a) == 2 * 12
    # kills: the size of a sum instead of the number of its terms
    assert operations(jnp.sum, a) == 12


def test_loops_count_every_turn_and_branches_the_longest() -> None:
    x = jnp.ones(7)
    # kills: the body of a loop counted once
    assert operations(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, length=10)[0], x) == 70
    assert operations(lambda x: jax.jit(lambda y: y * 2)(x), x) == 7
    short, long = jnp.sin, lambda x: jnp.sin(jnp.cos(x))
    assert operations(lambda x: jax.lax.cond(True, short, long, x), x) in (14, 15)
    with pytest.raises(NotImplementedError):
        operations(lambda x: jax.lax.while_loop(lambda x: x[0] < 9, lambda x: x + 1, x), x)
