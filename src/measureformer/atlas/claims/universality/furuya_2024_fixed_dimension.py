"""One compiled network for any number of tokens; n − 1 power sums are blind to some clouds of n points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.universality_blocks import SQUARE, cloud, expression, largest
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Box, Discrete
from measureformer.universality import Block, compile

MOST_LAYERS = 1e12
"""Depths beyond this one are not drawn: they leave the chart, and the universe."""


@dataclass(frozen=True)
class Config:
    doublings: int = 4


def _sizes(config: Config) -> list[int]:
    return [2 * 2**k for k in range(config.doublings + 1)]


def _twins(n: int) -> tuple[Discrete, Discrete]:
    """Two clouds of n points in [−1, 1] with equal power sums of all orders < n: the roots of T_n = cos 1 and cos 2.

    The Chebyshev polynomials T_n − c differ in the constant coefficient alone, and by Newton's identities that is seen
    by no power sum of an order below n.
    """
    angles = 2 * np.pi * np.arange(n)
    return tuple(Discrete.uniform(np.cos((start + angles) / n)[:, None]) for start in (1.0, 2.0))  # pyright: ignore[reportReturnType]


def _gaps(config: Config, *, power_sums: bool) -> list[float]:
    """How far the features of twins are apart: one block of a network of dimension 4, or the first n − 1 power sums."""
    gaps: list[float] = []
    net = compile(Block(None, [400.0], 0.0, None, [1.0]), Box([-1.0], [1.0]), activation="quadratic")
    for n in _sizes(config):
        one, other = _twins(n)
        if power_sums:
            orders = np.arange(1, n)
            sums = [np.mean(np.asarray(mu.points) ** orders, axis=0) for mu in (one, other)]
            gaps.append(float(np.abs(np.subtract(*sums)).max()))
        else:
            gaps.append(largest(np.asarray(net(one, [0.0])) - np.asarray(net(other, [0.0]))))
    return gaps


def _yun(n: int) -> tuple[float, float]:
    """Layers and bits of Yun's construction for n tokens on a line, on a grid of n² cells.

    With so many cells about half of all prompts have their tokens in different cells, as it needs; d = 1, δ = n^{−2}:
    δ^{−1} + 1 layers of quantisation, as many of attention, 2 + n·C(n², n) that write values, and 2(n + 1) log₂ n²
    bits for the codes of contexts.
    """
    cells = n * n
    return 2.0 * (cells + 1) + 2 + n * math.comb(cells, n), 2 * (n + 1) * math.log2(cells)


def _figure(config: Config, token_dim: int) -> Figure:
    sizes = _sizes(config)
    places = tuple(map(float, sizes))
    layers, bits = zip(*map(_yun, sizes), strict=True)
    drawn = [i for i, depth in enumerate(layers) if depth <= MOST_LAYERS]
    return Figure(
        "What n tokens cost",
        "n",
        "size",
        (
            Series("compiled: token dimension, d = d' = 2", places, (float(token_dim),) * len(sizes)),
            Series("power sums on a line: dimension n", places, places),
            Series("Yun: hidden units 4", places, (4.0,) * len(sizes)),
            Series("Yun: bits", places, tuple(bits)),
            Series("Yun: layers", tuple(places[i] for i in drawn), tuple(layers[i] for i in drawn)),
        ),
        xscale="log",
        yscale="log",
        caption=(
            "Power sums: n − 1 of them confuse the clouds of the control. Yun's construction is on a line, with n² "
            f"cells; its layers are drawn up to {MOST_LAYERS:.0e}. The literature disagrees about its width: the "
            "theorem has 2 heads of size 1 and 4 hidden units for every n, but it is also cited as growing with n."
        ),
    )


def _run(key: Any, config: Config) -> Outcome:
    rng = generator(key)
    e = expression(rng)
    net = compile(e, SQUARE, activation="quadratic")
    x = rng.uniform(-1, 1, (5, 2))
    errors = [largest(np.asarray(net(mu, x)) - np.asarray(e(mu, x))) for mu in (cloud(rng, n) for n in _sizes(config))]
    dim = net.census.token_dim
    return _outcome(max(errors), dim, _gaps(config, power_sums=False), _figure(config, dim))


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
        "the same weights are right for every n. One block tells apart clouds of n points on a line that the power "
        "sums of orders 1, …, n − 1 confuse."
    ),
    hypotheses=("quadratic activation, so that the equality is exact",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The n − 1 first power sums, sum-pooled features of n points on a line, in place of the block.",
    quick=Config(),
    full=Config(doublings=5),
)
