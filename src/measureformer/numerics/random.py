"""Random numbers in bucket sizes: the first n of a draw of bucket size, so that a new n compiles nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import TracedError
from measureformer.numerics.arrays import is_traced, prng_key
from measureformer.numerics.buckets import bucket
from measureformer.numerics.types import Key


def normal(key: Key, shape: tuple[int, ...]) -> Any:
    """Standard normal numbers: NumPy for a concrete key, a tracer for a traced one."""
    count = math.prod(shape)
    return _first(_normal, prng_key(key), count).reshape(shape)


def uniform(key: Key, n: int) -> Any:
    """Numbers in [0, 1): NumPy for a concrete key, a tracer for a traced one."""
    return _first(_uniform, prng_key(key), n)


def generator(key: Key) -> np.random.Generator:
    """A NumPy generator that is seeded by a concrete key: for searches, which draw a few numbers at a time."""
    if is_traced(prng_key(key)):
        raise TracedError(
            got="a random key that is traced (inside jit or vmap)",
            need="a concrete key",
            do="Call the search outside of the transformed function.",
        )
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def two_keys(key: Key) -> tuple[Array, Array]:
    """Two independent keys, concrete if the given one is."""
    if is_traced(prng_key(key)):
        return tuple(jax.random.split(key))
    with jax.ensure_compile_time_eval():
        return tuple(jax.random.split(key))


def _first(draw: Callable[[Array, int], Array], key: Array, n: int) -> Any:
    if is_traced(key):
        return draw(key, bucket(n))[:n]
    # inside somebody's jit, what is drawn with a concrete key is concrete
    with jax.ensure_compile_time_eval():
        return np.asarray(draw(key, bucket(n)))[:n]


@eqx.filter_jit
def _normal(key: Array, n: int) -> Array:
    return jax.random.normal(key, (n,))


@eqx.filter_jit
def _uniform(key: Array, n: int) -> Array:
    return jax.random.uniform(key, (n,))
