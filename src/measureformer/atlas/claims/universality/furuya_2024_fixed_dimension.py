"""One compiled network for any number of tokens; n − 1 power sums are blind to some clouds of n points."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.universality_blocks import SQUARE, cloud, expression, largest
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
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


def _gap(features: Callable[[Discrete], np.ndarray], n: int) -> float:
    """How far the features of twins are apart."""
    one, other = _twins(n)
    return np.abs(features(one) - features(other)).max()


def _yun(n: int) -> tuple[float, float]:
    """Layers and bits of Yun's construction for n tokens on a line, on a grid of n² cells.

    With so many cells about half of all prompts have their tokens in different cells, as it needs; d = 1, δ = n^{−2}:
    δ^{−1} + 1 layers of quantisation, as many of attention, 2 + n·C(n², n) that write values, and 2(n + 1) log₂ n²
    bits for the codes of contexts.
    """
    cells = n * n
    return 2.0 * (cells + 1) + 2 + n * math.comb(cells, n), 2 * (n + 1) * math.log2(cells)


def _filled(mu: Discrete, n: int) -> Discrete:
    """The cloud, filled up to n points with some at 0, as for a network that is made for n tokens."""
    points, weights = np.asarray(mu.points), np.asarray(mu.weights)
    more = n - len(points)
    return Discrete.weighted(
        np.pad(points, ((0, more), (0, 0))), np.pad(weights, (0, more), constant_values=weights.mean())
    )


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng, sizes = generator(key), _sizes(config)
    e = expression(rng)
    net = compile(e, SQUARE, activation="quadratic")
    x = rng.uniform(-1, 1, (5, 2))
    error = 0.0
    for mu in (cloud(rng, n) for n in sizes):
        given = _filled(mu, sizes[-1]) if variant == "filled-up" else mu
        error = max(error, largest(np.asarray(net(given, x)) - np.asarray(e(mu, x))))
    apart = variant == "component-by-component"
    nets = [compile(e[i], SQUARE, activation="quadratic") for i in range(2)] if apart else [net]
    dim = sum(each.census.token_dim for each in nets)
    block = compile(Block(None, [400.0], 0.0, None, [1.0]), Box([-1.0], [1.0]), activation="quadratic")
    if variant == "power-sums":
        gaps = [_gap(lambda mu, n=n: np.mean(np.asarray(mu.points) ** np.arange(1, n), axis=0), n) for n in sizes]
    else:
        gaps = [_gap(lambda mu: np.asarray(block(mu, [0.0])), n) for n in sizes]
    checks = (
        Check("largest error of one network for all n", error, high=1e-10, rejected_by="filled-up"),
        Check("token dimension (d + 3d' = 8)", dim, low=8.0, high=8.0, rejected_by="component-by-component"),
        Check("smallest gap between features of twin clouds", min(gaps), low=1e-6, rejected_by="power-sums"),
    )
    return Outcome(checks, _figure(sizes, dim) if variant == "claim" else None)


def _figure(sizes: list[int], token_dim: int) -> Figure:
    layers, bits = zip(*map(_yun, sizes), strict=True)
    drawn = [depth if depth <= MOST_LAYERS else math.nan for depth in layers]
    return Figure(
        "What n tokens cost",
        "n",
        "size",
        (
            Series("compiled: token dimension, d = d' = 2", sizes, [token_dim] * len(sizes), role="measured"),
            Series("power sums on a line: dimension n", sizes, sizes, role="control"),
            Series("Yun: hidden units 4", sizes, [4] * len(sizes), role="theory"),
            Series("Yun: bits", sizes, bits, role="theory"),
            Series("Yun: layers", sizes, drawn, role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=(
            "Power sums: n − 1 of them confuse the clouds of the control. Yun's construction is on a line, with n² "
            f"cells; its layers are drawn up to {MOST_LAYERS:.0e}. The literature disagrees about its width: the "
            "theorem has 2 heads of size 1 and 4 hidden units for every n, but it is also cited as growing with n."
        ),
    )


claim = Claim(
    name="furuya-2024-fixed-dimension",
    title="One dimension for any number of tokens",
    kind="construction",
    statement=(
        "The token dimension d + 3d' of a compiled transformer does not depend on the number of tokens: the same "
        "weights are right for every n. One block tells apart clouds of n points on a line that the power sums of "
        "orders 1, …, n − 1 confuse."
    ),
    hypotheses=(
        "quadratic activation, so that the equality is exact",
        "d = d' = 2; d' heads, by construction",
    ),
    reference="furuya2024",
    measure=measure,
    controls={
        "power-sums": "The n − 1 first power sums, sum-pooled features of n points on a line, in place of the block.",
        "filled-up": "A network for the largest n alone: shorter prompts are filled up with tokens at 0.",
        "component-by-component": "A network of its own for each component: d'(d + 3) dimensions, x is kept twice.",
    },
    quick=Config(),
    full=Config(doublings=5),
)
