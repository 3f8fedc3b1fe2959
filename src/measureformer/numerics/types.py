"""Types of public signatures, in one place; `numerics.checked` refuses arguments that are of other kinds."""

from __future__ import annotations

import os
from typing import Annotated, NamedTuple, TypeAlias

import numpy.typing
from jaxtyping import PRNGKeyArray


class Within(NamedTuple):
    """Limits of a number, both allowed."""

    least: float
    most: float


class Real(NamedTuple):
    """Marks arrays of real numbers, which `checked` would not know from the union that NumPy makes of them."""

    finite: bool = True
    axes: int | None = None
    """How many; None for any number."""


ArrayLike: TypeAlias = Annotated[numpy.typing.ArrayLike, Real()]
"""A NumPy or JAX array, a number, a nested sequence of numbers, or anything with `__array__`."""

Extended: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(finite=False)]
"""An array that may hold infinity, as a log-weight does."""

Number: TypeAlias = Annotated[numpy.typing.ArrayLike, Real(axes=0)]
"""One number, which may be an array without axes."""

Key: TypeAlias = Annotated[PRNGKeyArray, "key"]
"""A key of JAX's random numbers: `jax.random.key(0)`."""

PathLike: TypeAlias = str | os.PathLike[str]
"""A path, as a string or a `pathlib.Path`."""

Count: TypeAlias = Annotated[int, Within(1, 10**6)]
"""How often something is repeated: steps, trials."""

Size: TypeAlias = Annotated[int, Within(1, 10**6)]
"""A length of arrays: a dimension, a width, a vocabulary."""

Share: TypeAlias = Annotated[float, Within(0, 1)]
"""A part of the whole."""
