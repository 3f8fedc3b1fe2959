"""On the line, all tokens end up looking at one of two leaders: the attention matrix tends to rank one or two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import rescaled_flow
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention

FAR = 1.0
"""A token whose modulus is above this has decided; one that is still near 0 may be the exceptional row."""


@dataclass(frozen=True)
class Config:
    n: int = 12
    trials: int = 3
    time: float = 8.0


@dataclass(frozen=True)
class _Limit:
    start: np.ndarray
    tokens: np.ndarray
    attention: np.ndarray


def _limits(key: Any, config: Config, *, value: float) -> list[_Limit]:
    """Tokens on the line at the last time for Q = K = 1 and V = value, and the attention matrix among them."""
    rng, G = generator(key), Attention.head([[1.0]], [[1.0]], [[value]])
    limits: list[_Limit] = []
    for _ in range(config.trials):
        # distinct by 1/n at least: the logits of two tokens part at a speed that depends on their distance
        X = rng.permutation(np.linspace(-1, 1, config.n) + rng.uniform(-0.4, 0.4, size=config.n) / config.n)[:, None]
        flow = rescaled_flow(G, X, [0.0, config.time])
        x = flow.tokens(1)[:, 0]
        logits = x[:, None] * (x - x.mean())[None]
        P = np.exp(logits - logits.max(axis=1, keepdims=True))
        limits.append(_Limit(X[:, 0], x, P / P.sum(axis=1, keepdims=True)))
    return limits


def _outcome(limits: list[_Limit], figure: Figure | None = None) -> Outcome:
    off, undecided, ranks = [0.0], [0], [0]
    for limit in limits:
        far = np.abs(limit.tokens) > FAR
        leaders = np.where(limit.tokens > 0, limit.start.argmax(), limit.start.argmin())
        hot = np.eye(len(far))[leaders]
        undecided.append(int((~far).sum()))
        off.append(float(np.abs(limit.attention - hot)[far].max(initial=0.0)) if far.any() else np.inf)
        values = np.linalg.svd(limit.attention[far], compute_uv=False) if far.any() else np.zeros(1)
        ranks.append(int((values > 1e-6 * values[0]).sum()))
    checks = (
        Check("distance of a row from that of its leader", max(off), high=1e-6),
        Check("largest rank of the rows that have decided", float(max(ranks)), low=1.0, high=2.0),
        Check("most rows that have not decided", float(max(undecided)), high=1.0),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    limits = _limits(key, config, value=1.0)
    limit = limits[0]
    order = np.argsort(limit.start)
    x = tuple(float(i) for i in range(config.n))
    rows = lambda i: tuple(limit.attention[order][:, order[i]].tolist())  # noqa: E731
    figure = Figure(
        "Everybody looks at one of two leaders",
        "token, from left to right",
        "attention it pays",
        (
            Series("to the leftmost token", x, rows(0), "bars"),
            Series("to the rightmost token", x, rows(-1), "bars"),
        ),
        caption=f"{config.n} tokens on the line at t = {config.time:g}, Q = K = V = 1.",
    )
    return _outcome(limits, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_limits(key, config, value=-1.0))


claim = Claim(
    name="geshkovski-2023b-leaders",
    title="Two leaders on the line",
    statement=(
        "For d = 1, V > 0, QK > 0 and distinct tokens, the attention matrix P(t) converges; each row of the limit but "
        "at most one is that of the leftmost or of the rightmost token, so that for almost every start its rank is 1 "
        "or 2."
    ),
    hypotheses=("d = 1, one softmax head, V > 0 and QK > 0", "distinct tokens"),
    reference="geshkovski2023b",
    run=_run,
    control=_control,
    control_statement="V < 0, where tokens meet at 0 and attend to all others alike.",
    quick=Config(),
    full=Config(n=40, trials=50, time=9.0),
)
