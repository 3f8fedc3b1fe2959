"""Random blocks, expressions and measures that the claims of this chapter share."""

from __future__ import annotations

from typing import Any

import numpy as np

from measureformer.measures import Box, Discrete
from measureformer.universality import Block, vector
from measureformer.universality.algebra import Expression

SQUARE = Box([-1.0, -1.0], [1.0, 1.0])


def block(rng: np.random.Generator, dim: int = 2) -> Block:
    u, v, b = rng.normal(size=(3, dim)) / 2
    return Block(rng.normal(size=(dim, dim)), b, float(rng.normal()) / 2, u, v)


def expression(rng: np.random.Generator, components: int = 2) -> Expression:
    """Three monomials of degrees 3, 2 and 1 in each component."""

    def one() -> Any:
        a, b, c, d, e, f = (block(rng) for _ in range(6))
        return a * b * c + float(rng.normal()) * d * e - f

    return vector(*(one() for _ in range(components)))


def cloud(rng: np.random.Generator, n: int, dim: int = 2) -> Discrete:
    return Discrete.weighted(rng.uniform(-1, 1, (n, dim)), rng.uniform(0.1, 1, n))


def largest(difference: Any) -> float:
    return float(np.linalg.norm(np.asarray(difference), axis=-1).max())
