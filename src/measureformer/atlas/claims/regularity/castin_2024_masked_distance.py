"""Causal attention is Lipschitz if time is held fixed, and is not if tokens may be moved in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention, Causal
from measureformer.measures import SpaceTime
from measureformer.regularity import lipschitz_masked


@dataclass(frozen=True)
class Config:
    largest: int = 128
    apart: float = 2.0
    far: float = 8.0
    pairs: int = 20


def _plain(X: np.ndarray, Y: np.ndarray, times: np.ndarray) -> float:
    """W_2 of two uniform measures in space and time, by the best assignment."""
    costs = (X[:, None] - Y[None]) ** 2 + (times[:, None] - times[None]) ** 2
    rows, columns = linear_sum_assignment(costs)
    return math.sqrt(costs[rows, columns].mean())


def _ratios(n: int, config: Config, *, causal: bool = True) -> tuple[float, float]:
    """Distance of the outputs over that of the inputs, the first two of n tokens swapped: in W_2 and in W_2^cond."""
    times = (np.arange(n) + 1) / n
    X = np.full(n, config.far)
    X[:2] = -config.apart / 2, config.apart / 2
    Y = X.copy()
    Y[:2] = X[1::-1]
    mean = Attention.head([[0.0]], [[0.0]], [[1.0]])
    G = Causal(mean) if causal else mean
    images = [np.asarray(G.push(SpaceTime.sequence(points[:, None])).points)[:, 0] for points in (X, Y)]
    conditional = np.linalg.norm(images[0] - images[1]) / np.linalg.norm(X - Y)
    return _plain(images[0], images[1], times) / _plain(X, Y, times), float(conditional)


def _random_share(key: Key, config: Config, *, past: bool) -> float:
    """Stretch of conditional W_2 over its bound, largest over pairs of random clouds of every distance."""
    rng, shares = generator(key), []
    for _ in range(config.pairs):
        s = rng.uniform(0, 2)
        G, X = Causal(Attention.head([[rng.choice([-s, s])]], [[1.0]], [[1.0]])), rng.uniform(-1, 1, size=(16, 1))
        Y = np.clip(X + 10 ** rng.uniform(-4, 0) * rng.normal(size=X.shape), -1, 1)
        moved = np.linalg.norm(np.asarray(G.tokens(X)) - np.asarray(G.tokens(Y))) / np.linalg.norm(X - Y)
        shares.append(moved / (lipschitz_masked(1.0, s, 1.0) if past else s))
    return max(shares)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    plain, conditional = _ratios(config.largest, config, causal=variant != "without-mask")
    by_swap = plain if variant == "time-moves" else conditional
    over_bound = _random_share(key, config, past=variant != "own-token-alone")
    low, high = 0.99 * config.apart / 2, 1.01 * config.apart / 2
    bound = lipschitz_masked(1.0, 0.0, config.far)
    conditional_w2 = "stretch of conditional W_2"
    checks = (
        Check("stretch in plain W_2, over n", plain / config.largest, low, high, rejected_by="without-mask"),
        Check(f"{conditional_w2} by the swap", by_swap, high=bound, rejected_by="time-moves"),
        Check(f"{conditional_w2} over its bound, random pairs", over_bound, high=1.0, rejected_by="own-token-alone"),
    )
    return Outcome(checks, _figure(config) if variant == "claim" else None)


def _figure(config: Config) -> Figure:
    n = 2 ** np.arange(4, int(math.log2(config.largest)) + 1)
    plain, conditional = np.array([_ratios(size, config) for size in n.tolist()]).T
    return Figure(
        "The first two of n tokens change places",
        "number of tokens n",
        "distance of the outputs / distance of the inputs",
        (
            Series("W_2 in space and time", n, plain, "points", role="measured"),
            Series("n|x − y|/2", n, config.apart / 2 * n, "dashed", role="theory"),
            Series("W_2 conditioned on time", n, conditional, "points", role="measured"),
            Series("bound for the latter", n[[0, -1]], (2, 2), "line", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"A = 0, V = I, times i/n; x and y are {config.apart:g} apart, the other tokens far away.",
    )


claim = Claim(
    name="castin-2024-masked-distance",
    title="The right distance for causal attention",
    kind="theorem",
    statement=(
        "A causal head is Lipschitz for W_2 conditioned on time, with constant ‖V‖(2(1 + 2s)exp(2s) + s). For W_2 in "
        "space and time it is not: swapping the first two of n tokens, x and y, stretches the distance by n|x − y|/2 "
        "at A = 0."
    ),
    hypotheses=("equal time marginals, one token per time i/n", "later tokens are far from the segment [x, y]"),
    reference="castin2024",
    measure=measure,
    controls={
        "without-mask": "The same swap without the mask, which the layer does not notice.",
        "time-moves": "Tokens may be moved in time: W_2 in space and time in place of W_2 conditioned on time.",
        "own-token-alone": "The constant ‖V‖s in the token itself, without the term for the past that it reads.",
    },
    quick=Config(),
    full=Config(largest=1024, pairs=2000),
)
