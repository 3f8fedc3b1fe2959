"""Every block is permutation equivariant, whatever its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series, generator
from measureformer.sequences.activation import Activation
from measureformer.sequences.layers import Feed, Shift

Rows = dict[str, list[float]]


@dataclass(frozen=True)
class Config:
    n: int = 5
    d: int = 3
    blocks: int = 30


def _measured(key: Key, config: Config, mask: np.ndarray | None) -> Rows:
    """|g(XP) − g(X)P| over |g(X)|, for random blocks of each kind."""
    rng, found = generator(key), Rows()
    for _ in range(config.blocks):
        X, order = rng.uniform(size=(20, config.n, config.d)), rng.permutation(config.n)
        heads = tuple(int(b) for b in rng.integers(-8, 8, 2) * 2 + 1), tuple(int(s) for s in rng.integers(1, 5, 2))
        attention = Shift("sweep", rng.integers(1, 9, config.d), 1, *heads, 4, 3.0, mask)
        c1, c2 = np.sort(rng.uniform(-1, 1, 2))
        phi = Activation(0, rng.normal(), c1, rng.normal(), rng.normal(), c2, rng.normal(), rng.normal())
        feed = Feed("value", rng.normal(size=config.d), phi, (rng.normal(size=config.d),))
        blocks = {
            "hardmax and jumps": lambda X, a=attention, f=feed: f.hard(a.hard(X)),
            "softmax and ReLUs": lambda X, a=attention, f=feed: f.soft(a.soft(X), 0.01),
        }
        for name, g in blocks.items():
            Y = g(X)
            error = np.abs(g(X[:, order]) - Y[:, order]).max() / np.abs(Y).max()
            found.setdefault(name, []).append(error)
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    causal = np.tri(config.n, dtype=bool)
    found = _measured(key, config, causal if variant == "causal-mask" else None)
    checks = tuple(
        Check(f"{name}: f(XP) − f(X)P", max(errors), high=1e-12, rejected_by="causal-mask")
        for name, errors in found.items()
    )
    if variant != "claim":
        return Outcome(checks)

    def points(label: str, errors: list[float], role: Role) -> Series:
        return Series(label, range(config.blocks), np.maximum(errors, 1e-18), "points", role=role)

    masked = _measured(key, config, causal)
    series = [points(name, errors, "measured") for name, errors in found.items()]
    series += [points(f"control, {name}", errors, "control") for name, errors in masked.items()]
    figure = Figure(
        "Does a block see the order of tokens?",
        "random block",
        "relative size of f(XP) − f(X)P",
        tuple(series),
        yscale="log",
        caption=f"n = {config.n} tokens in R^{config.d}; exact zeros are drawn at 1e-18.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="yun-2020-equivariance",
    title="Every block is permutation equivariant",
    kind="theorem",
    statement="For all weights of a block, with hardmax or softmax, and all permutations P: f(XP) = f(X)P.",
    hypotheses=("no positions, no mask",),
    reference="yun2020, Claim 1",
    measure=measure,
    controls={"causal-mask": "A causal mask in the same blocks."},
    quick=Config(),
    full=Config(n=8, blocks=200),
)
