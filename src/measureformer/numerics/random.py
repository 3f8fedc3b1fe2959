"""Random numbers in bucket sizes: the first n of a draw of bucket size, so that a new n compiles nothing."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.numerics.arrays import is_traced, prng_key
from measureformer.numerics.buckets import bucket


def normal(key: Any, shape: tuple[int, ...]) -> Any:
    """Standard normal numbers: NumPy for a concrete key, a tracer for a traced one."""
    count = math.prod(shape)
    drawn = _normal(prng_key(key), bucket(count))
    return (drawn if is_traced(drawn) else np.asarray(drawn))[:count].reshape(shape)


def uniform(key: Any, n: int) -> Any:
    """Numbers in [0, 1): NumPy for a concrete key, a tracer for a traced one."""
    drawn = _uniform(prng_key(key), bucket(n))
    return (drawn if is_traced(drawn) else np.asarray(drawn))[:n]


@eqx.filter_jit
def _normal(key: Array, n: int) -> Array:
    return jax.random.normal(key, (n,))


@eqx.filter_jit
def _uniform(key: Array, n: int) -> Array:
    return jax.random.uniform(key, (n,))
