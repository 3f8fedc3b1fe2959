"""Without logits, causal attention is the mean of the past: Hardy's inequality says how much it can stretch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention, Causal
from measureformer.measures import SpaceTime
from measureformer.regularity import local_lipschitz, masked_ball


@dataclass(frozen=True)
class Config:
    largest: int = 128


def _in_l2(n: int) -> float:
    mean = Causal(Attention.head([[0.0]], [[0.0]], [[1.0]]))
    # singular values crowd below 2; that of a displacement with this residual is as accurate as its square
    return local_lipschitz(mean, SpaceTime.sequence(np.zeros((n, 1))), tol=1e-3).lower


def _in_l1(n: int) -> float:
    """The norm in L¹: the largest column sum, which is that of the first token, 1 + 1/2 + … + 1/n."""
    return float((1 / np.arange(1, n + 1)).sum())


def _outcome(constants: tuple[float, ...], figure: Figure | None = None) -> Outcome:
    checks = (
        Check("largest constant", max(constants), high=masked_ball(1.0, 0.0, 1.0) - 1e-9),
        Check("constant of the largest n", constants[-1], low=1.49),
        Check("least growth from one n to the next", min(np.diff(constants).tolist()), low=0.0),
    )
    return Outcome(checks, figure)


def _sizes(config: Config) -> tuple[int, ...]:
    """From half of the largest n on: sizes that share one compiled program."""
    return tuple(int(n) for n in np.linspace(config.largest // 2 + 1, config.largest, 6))


def _run(key: Any, config: Config) -> Outcome:
    sizes = _sizes(config)
    n, constants = tuple(map(float, sizes)), tuple(map(_in_l2, sizes))
    figure = Figure(
        "The mean of the past",
        "number of tokens n",
        "norm",
        (
            Series("in L²", n, constants, "points"),
            Series("Hardy's constant", (n[0], n[-1]), (2.0, 2.0), "dashed"),
            Series("control: in L¹", n, tuple(map(_in_l1, sizes)), "points"),
        ),
    )
    return _outcome(constants, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(tuple(map(_in_l1, _sizes(config))))


claim = Claim(
    name="hardy-1934-cesaro",
    title="The mean of the past: a constant below 2",
    statement=(
        "For A = 0 and V = I the causal layer is X ↦ ((x_1 + … + x_i)/i)_i; for every n its norm is below 2, and it "
        "increases to 2."
    ),
    hypotheses=("one token per time, equal weights", "distances are squared: p = 2"),
    reference="hardy1934, Theorem 326",
    run=_run,
    control=_control,
    control_statement="The norm in L¹, where Hardy's inequality has no constant.",
    quick=Config(),
    full=Config(largest=1024),
)
