"""Modern memories retrieve in one step, with an error that is exponentially small in the separation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from measureformer.atlas.helpers.memory_patterns import sphere
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern
from measureformer.memory.bounds import ramsauer20_one_step, ramsauer20_separation

Measured: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, float]


@dataclass(frozen=True)
class Config:
    patterns: int = 1000
    dim: int = 64
    shown: int = 300


def _measured(key: Key, d: int, n: int, factor: float) -> Measured:
    """Separations, |f(x_i) − x_i|, the bound, and the separation that is needed; K = 1, β = 1."""
    M = (d - 1) ** 0.5
    X = sphere(generator(key), n, d, M)
    memory = Modern.store(X, 1.0)
    errors = np.linalg.norm(np.asarray(memory.update(X)) - X, axis=1)
    separation = memory.separation()
    bound = ramsauer20_one_step(1.0, factor * separation, 0.0, M, n - 1.0)
    return separation, errors, bound, float(ramsauer20_separation(1.0, n, M))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    exchanged, squared, close = "dimensions-exchanged", "squared-distance", "too close to be stored: largest"
    large, small = (16, config.dim) if variant == exchanged else (config.dim, 16)
    factor = 2.0 if variant == squared else 1.0
    far, near = _measured(key, large, config.patterns, factor), _measured(key, small, 100, factor)
    # what rounding leaves of a difference of vectors of norm 8
    over_bound, apart = (far[1] / (far[2] + 1e-14)).max(), near[0].max() / near[3]
    checks = (
        Check("smallest separation over the one that is needed", far[0].min() / far[3], low=1.0, rejected_by=exchanged),
        Check("largest error over its bound", over_bound, high=1.0, rejected_by=squared),
        Check(f"{close} separation over the one that is needed", apart, high=1.0, rejected_by=exchanged),
        Check(f"{close} error over its bound", (near[1] / near[2]).max(), high=1.0, rejected_by=squared),
    )
    return Outcome(checks, _figure(config, far, near) if variant == "claim" else None)


def _figure(config: Config, far: Measured, near: Measured) -> Figure:
    parts = {f"d = {config.dim}, N = {config.patterns}": far, "d = 16, N = 100": near}
    shown = slice(config.shown)
    points = [Series(name, part[0][shown], part[1][shown], "points", role="measured") for name, part in parts.items()]
    return Figure(
        "The error of one step",
        "separation Δ_i",
        "|f(x_i) − x_i|",
        (*points, _line(f"bound, d = {config.dim}", far), _line("bound, d = 16", near)),
        yscale="log",
        caption="Patterns uniform on the sphere of radius √(d−1), β = 1; below 1e-14 there is only rounding.",
    )


def _line(name: str, part: Measured) -> Series:
    order = np.argsort(part[0])
    return Series(name, part[0][order], part[2][order], "dashed", role="theory")


claim = Claim(
    name="ramsauer-2020-one-step",
    title="Retrieval in one step",
    statement=(
        "For all patterns with norms ≤ M and every i: |f(x_i) − x_i| ≤ 2(N−1)M e^{−βΔ_i}, whether or not Δ_i is "
        "large enough for x_i to be stored; random patterns in dimension 64 are."
    ),
    hypotheses=("Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩",),
    reference="ramsauer2020, Theorem 5",
    measure=measure,
    controls={
        "squared-distance": "The separation is the squared distance to the next pattern, which is twice as large.",
        "dimensions-exchanged": "Many patterns in dimension 16 and few in the large one: the first are too close.",
    },
    quick=Config(),
    full=Config(patterns=20_000, dim=128, shown=1000),
)
