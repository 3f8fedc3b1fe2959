"""On the line, all tokens end up looking at one of two leaders: the attention matrix tends to rank one or two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import flow
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete

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


def _limits(key: Key, config: Config, variant: str) -> list[_Limit]:
    """Tokens on the line at the last time for Q = K = 1 and V = ±1, and the attention matrix among them."""
    rng, G = generator(key), Attention.head([[1.0]], [[1.0]], [[-1.0 if variant == "negative-value" else 1.0]])
    time = config.time / 4 if variant == "early" else config.time
    limits: list[_Limit] = []
    for _ in range(config.trials):
        # distinct by 1/n at least: the logits of two tokens part at a speed that depends on their distance
        X = rng.permutation(np.linspace(-1, 1, config.n) + rng.uniform(-0.4, 0.4, size=config.n) / config.n)[:, None]
        z = flow(Rescaled(G), Discrete.uniform(X), [0.0, time]).points[1]
        x = np.asarray(Rescaled(G, time).original(z))[:, 0]
        logits = x[:, None] * (x - x.mean())[None]
        P = np.exp(logits - logits.max(axis=1, keepdims=True))
        limits.append(_Limit(X[:, 0], x, P / P.sum(axis=1, keepdims=True)))
    return limits


def measure(key: Key, config: Config, variant: str) -> Outcome:
    limits = _limits(key, config, variant)
    off, undecided, ranks = [0.0], [0], [0]
    for limit in limits:
        far = np.abs(limit.tokens) > FAR
        leaders = np.where(limit.tokens > 0, limit.start.argmax(), limit.start.argmin())
        hot = np.eye(len(far))[leaders]
        undecided.append(int((~far).sum()))
        off.append(float(np.abs(limit.attention - hot)[far].max()) if far.any() else np.inf)
        values = np.linalg.svd(limit.attention[far], compute_uv=False) if far.any() else np.zeros(1)
        ranks.append(int((values > 1e-6 * values[0]).sum()))
    checks = (
        Check("distance of a row from that of its leader", max(off), high=1e-6, rejected_by="early"),
        Check("largest rank of the rows that have decided", max(ranks), low=1.0, high=2.0, rejected_by="early"),
        Check("most rows that have not decided", max(undecided), high=1.0, rejected_by="negative-value"),
    )
    return Outcome(checks, _figure(config, limits[0]) if variant == "claim" else None)


def _figure(config: Config, limit: _Limit) -> Figure:
    x, order = np.arange(config.n), np.argsort(limit.start)
    paid = limit.attention[order][:, order]
    return Figure(
        "Everybody looks at one of two leaders",
        "token, from left to right",
        "attention it pays",
        (
            Series("to the leftmost token", x, paid[:, 0], "bars", role="measured"),
            Series("to the rightmost token", x, paid[:, -1], "bars", role="measured"),
        ),
        caption=f"{config.n} tokens on the line at t = {config.time:g}, Q = K = V = 1.",
    )


claim = Claim(
    name="geshkovski-2023b-leaders",
    title="Two leaders on the line",
    kind="theorem",
    statement=(
        "For d = 1, V > 0, QK > 0 and distinct tokens, the attention matrix P(t) converges; each row of the limit but "
        "at most one is that of the leftmost or of the rightmost token, so that for almost every start its rank is 1 "
        "or 2."
    ),
    hypotheses=("d = 1, one softmax head, V > 0 and QK > 0", "distinct tokens"),
    reference="geshkovski2023b",
    measure=measure,
    controls={
        "early": "At a quarter of the depth, where rows still spread over several tokens.",
        "negative-value": "V < 0, where tokens meet at 0 and attend to all others alike.",
    },
    quick=Config(),
    full=Config(n=40, trials=50, time=9.0),
)
