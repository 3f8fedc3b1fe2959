"""Modern memories retrieve in one step, with an error that is exponentially small in the separation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats, sphere
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Modern, ramsauer20_one_step, ramsauer20_separation


@dataclass(frozen=True)
class Config:
    patterns: int = 1000
    dim: int = 64
    shown: int = 300


def _measured(key: Any, d: int, n: int, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Separations, |f(x_i) − x_i|, the bound, and the separation that is needed; K = 1, β = 1."""
    M = (d - 1) ** 0.5
    X = sphere(generator(key), n, d, M)
    memory = Modern.store(X, 1.0)
    errors = np.linalg.norm(np.asarray(memory.update(X)) - X, axis=1)
    separation = memory.separation()
    bound = ramsauer20_one_step(1.0, factor * separation, 0.0, M, n - 1.0)
    return separation, errors, bound, float(ramsauer20_separation(1.0, n, M))


def _outcome(key: Any, config: Config, *, factor: float) -> Outcome:
    far = _measured(key, config.dim, config.patterns, factor)
    near = _measured(key, 16, 100, factor)
    # what rounding leaves of a difference of vectors of norm 8
    floor = 1e-14
    checks = (
        Check("smallest separation over the one that is needed", float(far[0].min() / far[3]), low=1.0),
        Check("largest error over its bound", float((far[1] / (far[2] + floor)).max()), high=1.0),
        Check(
            "too close to be stored: largest separation over the one that is needed",
            float(near[0].max() / near[3]),
            high=1.0,
        ),
        Check("too close to be stored: largest error over its bound", float((near[1] / near[2]).max()), high=1.0),
    )
    count = slice(config.shown)
    figure = Figure(
        "The error of one step",
        "separation Δ_i",
        "|f(x_i) − x_i|",
        (
            Series(f"d = {config.dim}, N = {config.patterns}", floats(far[0][count]), floats(far[1][count]), "points"),
            Series("d = 16, N = 100", floats(near[0][count]), floats(near[1][count]), "points"),
            _line(f"bound, d = {config.dim}", far),
            _line("bound, d = 16", near),
        ),
        yscale="log",
        caption="Patterns uniform on the sphere of radius √(d−1), β = 1; below 1e-14 there is only rounding.",
    )
    return Outcome(checks, figure)


def _line(name: str, part: tuple[np.ndarray, np.ndarray, np.ndarray, float]) -> Series:
    order = np.argsort(part[0])
    return Series(name, floats(part[0][order]), floats(part[2][order]), "dashed")


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, factor=1.0)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, factor=2.0)


claim = Claim(
    name="ramsauer-2020-one-step",
    title="Retrieval in one step",
    statement=(
        "For all patterns with norms ≤ M and every i: |f(x_i) − x_i| ≤ 2(N−1)M e^{−βΔ_i}, whether or not Δ_i is "
        "large enough for x_i to be stored; random patterns in dimension 64 are."
    ),
    hypotheses=("Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩",),
    reference="ramsauer2020, Theorem 5",
    run=_run,
    control=_control,
    control_statement="The separation is taken as the squared distance to the next pattern, which is twice as large.",
    quick=Config(),
    full=Config(patterns=20_000, dim=128, shown=1000),
)
