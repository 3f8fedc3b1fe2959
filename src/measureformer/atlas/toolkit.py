"""What the file of a claim imports: the claim, its checks, its figures, its random numbers, and `once`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

from measureformer.atlas.claim import Claim as Claim
from measureformer.atlas.result import Check as Check
from measureformer.atlas.result import Outcome as Outcome
from measureformer.figures.figure import Figure as Figure
from measureformer.figures.figure import Role as Role
from measureformer.figures.figure import Series as Series
from measureformer.figures.figure import Style as Style
from measureformer.numerics.arrays import on_device
from measureformer.numerics.random import generator as generator
from measureformer.numerics.types import Key as Key

P = ParamSpec("P")
T = TypeVar("T")


def once(compute: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A claim draws what its control measures: the last answers of a function of (key, …) are kept."""

    @lru_cache(maxsize=8)
    def kept(words: tuple[int, ...], *args: Any, **options: Any) -> T:
        return compute(jax.random.wrap_key_data(on_device(np.array(words, np.uint32))), *args, **options)

    @wraps(compute)
    def call(key: Any, *args: P.args, **options: P.kwargs) -> T:
        return kept(tuple(np.asarray(jax.random.key_data(key)).tolist()), *args, **options)

    return call
