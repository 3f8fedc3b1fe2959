"""Types of public signatures, in one place."""

from __future__ import annotations

import os
from typing import TypeAlias

import numpy.typing
from jaxtyping import PRNGKeyArray

ArrayLike: TypeAlias = numpy.typing.ArrayLike
"""A NumPy or JAX array, a number, a nested sequence of numbers, or anything with `__array__`."""

Key: TypeAlias = PRNGKeyArray
"""A key of JAX's random numbers: `jax.random.key(0)`."""

PathLike: TypeAlias = str | os.PathLike[str]
"""A path, as a string or a `pathlib.Path`."""
