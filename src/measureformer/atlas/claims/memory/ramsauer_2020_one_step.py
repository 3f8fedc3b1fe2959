"""Modern memories retrieve in one step, with an error that is exponentially small in the separation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from measureformer.atlas.helpers.memory_patterns import sphere
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Modern
from measureformer.memory.retrieval import ramsauer20_one_step, ramsauer20_separation

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


def _noisy(key: Key, config: Config, variant: str) -> float:
    """Largest |f(ξ) − x_i| over its bound, for queries between x_i and the pattern nearest to it."""
    rng, M = generator(key), (config.dim - 1) ** 0.5
    X = sphere(rng, config.patterns, config.dim, M)
    memory = Modern.store(X, 1.0)
    first = X[: config.shown]
    products = first @ X.T
    np.fill_diagonal(products, -np.inf)
    towards, separation = X[products.argmax(axis=1)] - first, memory.separation()[: config.shown]
    # up to where the exponent Δ − 2M|ξ − x_i| of the bound is 0
    share = rng.uniform(0, 1, size=len(first)) * separation / (2 * M) / np.linalg.norm(towards, axis=1)
    queries = first + share[:, None] * towards
    errors = np.linalg.norm(np.asarray(memory.update(queries)) - first, axis=1)
    # x_i is stored, and the fixed point next to it is nearer than the query
    distance = 0.0 if variant == "without-the-distance" else np.linalg.norm(queries - first, axis=1)
    factor = 2.0 if variant == "squared-distance" else 1.0
    bound = ramsauer20_one_step(1.0, factor * separation, distance, M, config.patterns - 1.0)
    return float((errors / (bound + 1e-14)).max())


def measure(key: Key, config: Config, variant: str) -> Outcome:
    large, small = (16, config.dim) if variant == "dimensions-exchanged" else (config.dim, 16)
    factor = 2.0 if variant == "squared-distance" else 1.0
    far, near = _measured(key, large, config.patterns, factor), _measured(key, small, 100, factor)
    # what rounding leaves of a difference of vectors of norm 8
    floor = 1e-14
    checks = (
        Check(
            "smallest separation over the one that is needed",
            far[0].min() / far[3],
            low=1.0,
            rejected_by="dimensions-exchanged",
        ),
        Check(
            "largest error over its bound",
            (far[1] / (far[2] + floor)).max(),
            high=1.0,
            rejected_by="squared-distance",
        ),
        Check(
            "too close to be stored: largest separation over the one that is needed",
            near[0].max() / near[3],
            high=1.0,
            rejected_by="dimensions-exchanged",
        ),
        Check(
            "too close to be stored: largest error over its bound",
            (near[1] / near[2]).max(),
            high=1.0,
            rejected_by="squared-distance",
        ),
        Check(
            "queries apart from x_i: largest error over its bound",
            _noisy(key, config, variant),
            high=1.0,
            rejected_by=("without-the-distance", "squared-distance"),
        ),
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
    kind="theorem",
    statement=(
        "For all patterns with norms ≤ M, every i and every ξ: |f(ξ) − x_i| ≤ 2(N−1)M e^{−β(Δ_i − 2M|ξ − x_i|)}, if "
        "x_i is stored and its fixed point is not farther from it than ξ. At ξ = x_i this holds whether or not Δ_i is "
        "large enough for x_i to be stored; random patterns in dimension 64 are."
    ),
    hypotheses=("Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩",),
    reference="ramsauer2020, Theorem 5",
    measure=measure,
    controls={
        "without-the-distance": "The bound without 2M|ξ − x_i|, as if the query were the pattern.",
        "squared-distance": "The separation is the squared distance to the next pattern, which is twice as large.",
        "dimensions-exchanged": "Many patterns in dimension 16 and few in the large one: the first are too close.",
    },
    quick=Config(),
    full=Config(patterns=20_000, dim=128, shown=1000),
)
