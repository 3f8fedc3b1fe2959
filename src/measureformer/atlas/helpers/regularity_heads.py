"""One shape for all heads and clouds of the chapter, so that its claims share one compiled program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.regularity import local_lipschitz

DIM = 3


def head(A: Any, V: Any = None) -> Attention:
    """The head with query–key matrix A and values V y, V = I if left out."""
    return Attention.head(A, np.eye(DIM), np.eye(DIM) if V is None else V)


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(matrix, 2))


def random_ball(rng: np.random.Generator, n: int, radius: float) -> np.ndarray:
    """n tokens in the ball, the farthest on its boundary."""
    points = rng.normal(size=(n, DIM))
    return radius * points / np.linalg.norm(points, axis=1).max()


def cluster_constant(n: float, growth: float, *, sign: float = -1.0) -> tuple[float, float]:
    """Lower and upper value for n tokens R(−u, u, …, u), A = sign · I, V = I and growth = 2R².

    The n − 1 equal tokens are one atom of weight 1 − 1/n if they move together. Otherwise they only feel the covariance
    of what they see, 4R² p (1−p), where p is the attention they pay to the first token.
    """
    u = math.sqrt(growth / 2) * np.eye(DIM)[0]
    mu = Discrete.weighted(np.stack([-u, u]), np.array([1 / n, 1 - 1 / n]))
    found = local_lipschitz(head(sign * np.eye(DIM)), mu)
    return max(found.lower, 2 * growth * attention(n, growth) * (1 - attention(n, growth))), found.upper


def attention(n: float, growth: float) -> float:
    """What the n − 1 tokens at u pay to the one at −u, if A = −I."""
    return 1 / (1 + (n - 1) * math.exp(-growth))


def prediction(n: float, growth: float) -> float:
    """√(n−1) p (1 + G (1−p)): the first token moves along u, and all others with it."""
    p = attention(n, growth)
    return math.sqrt(n - 1) * p * (1 + growth * (1 - p))
