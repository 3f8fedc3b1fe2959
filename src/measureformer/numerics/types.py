"""Types of public signatures, in one place; `numerics.checked` refuses arguments of other kinds."""

from __future__ import annotations

import math
import os
from typing import Annotated, NamedTuple, TypeAlias

import numpy.typing
from jaxtyping import PRNGKeyArray


class Within(NamedTuple):
    """Limits of a number, both allowed."""

    least: float
    most: float


class Real(NamedTuple):
    """Which arrays of real numbers are meant."""

    finite: bool = True
    axes: int | None = None
    """How many; None for any number."""
    least: float = -math.inf
    most: float = math.inf
    filled: bool = False
    """Whether there must be entries."""


ArrayLike: TypeAlias = Annotated[numpy.typing.ArrayLike, Real()]
"""A NumPy or JAX array, a number, a nested sequence of numbers, or anything with `__array__`."""

Extended: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(finite=False)]
"""An array that may hold infinity, as a log-weight does."""

Filled: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(filled=True)]
"""An array with entries, as a maximum needs them."""

Positive: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(least=1e-100, most=1e100)]
"""Positive numbers whose squares and products neither overflow nor underflow."""

NotNegative: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(least=0, most=1e100)]
"""Numbers that are at least 0, and whose squares do not overflow."""

Number: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(axes=0)]
"""One number, which may be an array without axes."""

Key: TypeAlias = Annotated[PRNGKeyArray, "key"]
"""A key of JAX's random numbers: `jax.random.key(0)`."""

PathLike: TypeAlias = Annotated[str | os.PathLike[str], "path"]
"""A path, as a string or a `pathlib.Path`."""

Count: TypeAlias = Annotated[int, Within(1, 10**7)]
"""How often something is repeated: steps, trials."""

Size: TypeAlias = Annotated[int, Within(1, 10**6)]
"""A length of arrays: a dimension, a width, a vocabulary."""

Side: TypeAlias = Annotated[float, Within(1e-6, 1)]
"""Side of the cells of a unit cube."""
