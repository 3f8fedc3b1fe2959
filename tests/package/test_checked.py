"""The run-time checker that all tests run under: it refuses wrong shapes, and leaves other types to the library."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

import checked
from measureformer.errors import DtypeError
from measureformer.numerics.random import normal
from measureformer.numerics.roots import psd_root


@jaxtyped(typechecker=checked.function)
def row_sums(matrix: Float[Array, "n d"], label: str = "") -> Float[Array, " n"]:
    return matrix.sum(axis=1)


@jaxtyped(typechecker=checked.function)
def column_sums(matrix: Float[Array, "n d"]) -> Float[Array, " n"]:
    return matrix.sum(axis=0)


def test_wrong_shapes_are_refused() -> None:
    assert row_sums(jnp.ones((2, 3))).tolist() == [3.0, 3.0]
    with pytest.raises(TypeCheckError, match="matrix"):
        row_sums(jnp.ones(3))
    # kills: checks of arguments alone
    with pytest.raises(TypeCheckError, match="return value"):
        column_sums(jnp.ones((2, 3)))


def test_other_wrong_types_pass() -> None:
    # kills: a refusal of the checker's, where the test wants to read that of the library
    assert row_sums(jnp.ones((2, 3)), label=3).tolist() == [3.0, 3.0]  # type: ignore[arg-type]


def test_the_package_is_checked() -> None:
    # kills: an import hook that finds no module, which no other test would notice
    with pytest.raises(TypeCheckError, match="matrix"):
        psd_root(jnp.ones(3))
    with pytest.raises(DtypeError, match="random key"):
        normal("no key", (2,))
