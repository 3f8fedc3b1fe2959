"""Random data for measurements: a NumPy generator that follows from the claim's key, and compiles nothing; `once`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

from measureformer.numerics.arrays import on_device

P = ParamSpec("P")
T = TypeVar("T")


def generator(key: Any) -> np.random.Generator:
    """The same key gives the same numbers, on every machine."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def once(compute: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A claim draws what its control measures: the last answers of a function of (key, …) are kept."""

    @lru_cache(maxsize=8)
    def kept(words: tuple[int, ...], *args: Any, **options: Any) -> T:
        return compute(jax.random.wrap_key_data(on_device(np.array(words, np.uint32))), *args, **options)

    @wraps(compute)
    def call(key: Any, *args: P.args, **options: P.kwargs) -> T:
        return kept(tuple(np.asarray(jax.random.key_data(key)).tolist()), *args, **options)

    return call
