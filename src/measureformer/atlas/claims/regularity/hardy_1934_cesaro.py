"""Without logits, causal attention is the mean of the past: Hardy's inequality says how much it can stretch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.maps import Attention, Causal
from measureformer.measures import SpaceTime
from measureformer.regularity import lipschitz_masked, local_lipschitz


@dataclass(frozen=True)
class Config:
    largest: int = 128


def _in_l2(n: int) -> float:
    mean = Causal(Attention.head([[0.0]], [[0.0]], [[1.0]]))
    # singular values crowd below 2; that of a displacement with this residual is as accurate as its square
    return local_lipschitz(mean, SpaceTime.sequence(np.zeros((n, 1))), tol=1e-3).lower


def _in_l1(n: int) -> float:
    """The norm in L¹: the largest column sum, which is that of the first token, 1 + 1/2 + … + 1/n."""
    return (1 / np.arange(1, n + 1)).sum()


def _of_sums(n: int) -> float:
    """The norm in L² of X ↦ ((x_1 + … + x_i)/n)_i, which falls to 2/π."""
    return 1 / (2 * n * math.sin(math.pi / (4 * n + 2)))


NORMS: dict[str, Callable[[int], float]] = {"claim": _in_l2, "norm-in-l1": _in_l1, "divided-by-n": _of_sums}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    # from half of the largest n on: sizes that share one compiled program
    sizes = [int(n) for n in np.linspace(config.largest // 2 + 1, config.largest, 6)]
    constants = [NORMS[variant](n) for n in sizes]
    bound = lipschitz_masked(1.0, 0.0, 1.0)
    checks = (
        Check("largest constant", max(constants), high=bound - 1e-9, rejected_by="norm-in-l1"),
        Check("constant of the largest n", constants[-1], low=1.49, rejected_by="divided-by-n"),
        Check("least growth from one n to the next", np.diff(constants).min(), low=0.0, rejected_by="divided-by-n"),
    )
    if variant != "claim":
        return Outcome(checks)
    figure = Figure(
        "The mean of the past",
        "number of tokens n",
        "norm",
        (
            Series("in L²", sizes, constants, "points", role="measured"),
            Series("Hardy's constant", (sizes[0], sizes[-1]), (2, 2), "dashed", role="theory"),
            Series("control: in L¹", sizes, [_in_l1(n) for n in sizes], "points", role="control"),
        ),
    )
    return Outcome(checks, figure)


claim = Claim(
    name="hardy-1934-cesaro",
    title="The mean of the past: a constant below 2",
    kind="theorem",
    statement=(
        "For A = 0 and V = I the causal layer is X ↦ ((x_1 + … + x_i)/i)_i; for every n its norm is below 2, and it "
        "increases to 2."
    ),
    hypotheses=("one token per time, equal weights", "distances are squared: p = 2"),
    reference="hardy1934, Theorem 326",
    measure=measure,
    controls={
        "norm-in-l1": "The norm in L¹, where Hardy's inequality has no constant.",
        "divided-by-n": "The sums of the past divided by n, not by the number of their terms.",
    },
    quick=Config(),
    full=Config(largest=1024),
)
