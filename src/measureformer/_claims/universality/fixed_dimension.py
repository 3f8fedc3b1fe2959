"""One compiled network for any number of tokens; power sums of bounded order are blind to some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer._claims.universality._blocks import SQUARE, cloud, expression, largest
from measureformer.measures import Box, Discrete
from measureformer.result import Check, Figure, Outcome, Series
from measureformer.universality import Block, compile


@dataclass(frozen=True)
class Config:
    doublings: int = 3
    orders: int = 4


def _twins(order: int) -> tuple[Discrete, Discrete]:
    """Two clouds of 2^order points in [0, 1] with equal power sums of all orders ≤ `order` (Prouhet)."""
    numbers = np.arange(2 ** (order + 1))
    odd = np.array([bin(k).count("1") % 2 for k in numbers], bool)
    return tuple(Discrete.uniform(numbers[own][:, None] / numbers[-1]) for own in (~odd, odd))  # pyright: ignore[reportReturnType]


def _gaps(config: Config, *, power_sums: bool) -> list[float]:
    """How far the features of twins are apart: one block of a network of dimension 4, or the first power sums."""
    gaps: list[float] = []
    block = Block(None, [40.0], 0.0, None, [1.0])
    net = compile(block, Box([0.0], [1.0]), activation="quadratic")
    for order in range(1, config.orders + 1):
        one, other = _twins(order)
        if power_sums:
            sums = [[float(np.mean(np.asarray(mu.points) ** k)) for k in range(1, order + 1)] for mu in (one, other)]
            gaps.append(float(np.abs(np.subtract(*sums)).max()))
        else:
            gaps.append(largest(np.asarray(net(one, [0.0])) - np.asarray(net(other, [0.0]))))
    return gaps


def _run(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    e = expression(rng)
    net = compile(e, SQUARE, activation="quadratic")
    sizes = [4 * 4**k for k in range(config.doublings + 1)]
    x = rng.uniform(-1, 1, (5, 2))
    errors = [largest(np.asarray(net(mu, x)) - np.asarray(e(mu, x))) for mu in (cloud(rng, n) for n in sizes)]
    places = tuple(map(float, sizes))
    figure = Figure(
        "Dimension of a token that suffices for n tokens",
        "n",
        "dimension",
        (
            Series("compiled, d = d' = 2", places, (float(net.census.token_dim),) * len(sizes)),
            Series("power sums of n points on a line", places, places, "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption="Power sums: n points on a line need n of them, as the clouds of the control show for n a power of 2.",
    )
    return _outcome(max(errors), net.census.token_dim, _gaps(config, power_sums=False), figure)


def _outcome(error: float, dim: int, gaps: list[float], figure: Figure | None = None) -> Outcome:
    checks = (
        Check("largest error of one network for all n", error, high=1e-10),
        Check("token dimension (d + 3d' = 8)", float(dim), low=8.0, high=8.0),
        Check("smallest gap between features of twin clouds", min(gaps), low=1e-6),
    )
    return Outcome(checks, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(0.0, 8, _gaps(config, power_sums=True))


claim = Claim(
    name="furuya-2024-fixed-dimension",
    title="One dimension for any number of tokens",
    statement=(
        "The token dimension d + 3d' and the d' heads of a compiled transformer do not depend on the number of tokens: "
        "the same weights are right for every n. One block tells apart clouds of 2^k points that power sums of order "
        "≤ k confuse."
    ),
    hypotheses=("quadratic activation, so that the equality is exact",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="Power sums of order ≤ k, the sum-pooled features of n points on a line, in place of the block.",
    quick=Config(),
    full=Config(doublings=5, orders=8),
)
