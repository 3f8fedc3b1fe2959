"""The Boltzmann operator keeps separated vectors apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.sequences.boltzmann import boltz, log_boltz_gap

SIZES = (2, 3, 4, 6, 8)
NOTHING = -700.0
"""Stands for the logarithm of 0."""


@dataclass(frozen=True)
class Config:
    draws: int = 150


def _separated(rng: np.random.Generator, n: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with entries more than 2 ln n + 3 apart, which share some of them."""
    apart = (2 * math.log(n) + 3) * 1.0001
    levels = np.cumsum(apart * (1 + 0.3 * rng.exponential(size=(draws, 2 * n))), axis=1)
    levels = rng.permuted(levels - levels.mean(axis=1, keepdims=True), axis=1)
    a, b = levels[:, :n].copy(), levels[:, n:].copy()
    shared = np.arange(n)[None] < rng.integers(0, n, size=draws)[:, None]
    return a, np.where(shared, a, b)


def _close(rng: np.random.Generator, n: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Other vectors of the same value, found by bisection: their entries lie closer together."""
    a = rng.uniform(0, 1, size=(draws, n))
    b = a.copy()
    b[:, 0] += 0.05
    low, high = np.full(draws, -3.0), b[:, 1].copy()
    for _ in range(80):
        middle = (low + high) / 2
        b[:, 1] = middle
        above = boltz(b) > boltz(a)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return a, b


def _margins(key: Key, config: Config, *, close: bool) -> dict[int, np.ndarray]:
    """ln of |boltz(a) − boltz(b)| over its bound (ln n)² e^{−2r}, for each n."""
    rng, found = generator(key), dict[int, np.ndarray]()
    for n in SIZES:
        a, b = (_close if close else _separated)(rng, n, config.draws)
        r = np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1))
        gaps = np.array([max(log_boltz_gap(x, y), NOTHING) for x, y in zip(a, b, strict=True)])
        found[n] = gaps - (2 * math.log(math.log(n)) - 2 * r)
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _margins(key, config, close=variant == "close-entries")
    checks = tuple(
        Check(f"n = {n}: least ln(distance/bound)", margins.min(), low=0.0, rejected_by="close-entries")
        for n, margins in found.items()
    )
    return Outcome(checks, _figure(key, config, found) if variant == "claim" else None)


def _figure(key: Key, config: Config, found: dict[int, np.ndarray]) -> Figure:
    close = [np.median(margins) for margins in _margins(key, config, close=True).values()]
    return Figure(
        "Distances of Boltzmann operators, over their bound",
        "length of the vectors n",
        "ln(distance/bound)",
        (
            Series("smallest", SIZES, [margins.min() for margins in found.values()], role="measured"),
            Series("median", SIZES, [np.median(margins) for margins in found.values()], role="measured"),
            Series("control: median, entries close together", SIZES, close, role="control"),
            Series("bound", SIZES, np.zeros(len(SIZES)), "dashed", role="theory"),
        ),
        caption=f"{config.draws} pairs for each n.",
    )


claim = Claim(
    name="kajitsuka-2024-boltzmann",
    title="The Boltzmann operator keeps distance",
    kind="theorem",
    statement=(
        "For a, b ∈ [−r, r]^n whose different entries are all more than 2 ln n + 3 apart, and which are no "
        "permutations of each other: |boltz(a) − boltz(b)| > (ln n)² e^(−2r), where boltz(a) = Σ a_i e^(a_i) / Σ "
        "e^(a_i)."
    ),
    hypotheses=("n ≥ 2",),
    reference="kajitsuka2024, Lemma 3",
    measure=measure,
    controls={"close-entries": "Entries that are close together: different vectors with the same value."},
    quick=Config(),
    full=Config(draws=4000),
)
