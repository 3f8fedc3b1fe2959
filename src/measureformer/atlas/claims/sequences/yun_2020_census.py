"""Parameters against error: the deep, the sparse and the one-layer construction, and a transformer that was trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import boltzmann, hybrids, yun
from measureformer.sequences import sparse as sparsity

KINDS = ("deep", "sparse", "one layer")
Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class Config:
    finest: int = 8
    points: int = 2000
    dim: int = 8
    steps: int = 400


def _errors(key: Any, config: Config, cells: list[int]) -> dict[str, Curve]:
    """Parameters and L2 errors of the three constructions for n = 3 tokens in R¹."""
    X = generator(key).uniform(size=(config.points, 3, 1))
    F = wave(X)
    found: dict[str, Curve] = {kind: [] for kind in KINDS}
    for D in cells:
        deep = yun.compile(wave, d=1, n=3, delta=1 / D)
        sparse = sparsity.compile(wave, sparsity.pattern("window", 3), d=1, delta=1 / D)
        one = boltzmann.compile(wave, d=1, n=3, delta=1 / D)
        made = (
            (deep.census.parameters, deep.run(X)),
            (sparse.census.parameters, sparse.run(X)),
            (one.parameters, one.run(X)),
        )
        for kind, (size, Y) in zip(KINDS, made, strict=True):
            found[kind].append((float(size), math.sqrt(float(((Y - F) ** 2).sum(axis=(1, 2)).mean()))))
    return found


def _trained(key: Any, config: Config) -> tuple[float, float]:
    net = hybrids.train(wave, ("attention", "attention"), key, d=1, n=3, dim=config.dim, steps=config.steps, batch=128)
    return float(net.parameters), net.error


def _outcome(found: dict[str, Curve], trained: tuple[float, float], figure: Figure | None) -> Outcome:
    checks = [
        Check(f"{kind}: error at the finest cells over that at the coarsest", curve[-1][1] / curve[0][1], high=0.85)
        for kind, curve in found.items()
    ]
    smaller = max(one[0] / deep[0] for one, deep in zip(found["one layer"], found["deep"], strict=True))
    best = min(error for curve in found.values() for size, error in curve if size <= trained[0])
    checks.append(Check("parameters of one layer over those of the deep network", smaller, high=1.0))
    checks.append(
        Check("error of the trained transformer over the best construction of its size", trained[1] / best, high=1.0)
    )
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    found, trained = _errors(key, config, [4, 6, config.finest]), _trained(key, config)
    series = [
        Series(kind, *(tuple(axis) for axis in zip(*curve, strict=True)), style="line") for kind, curve in found.items()
    ]
    series.append(Series("trained", (trained[0],), (trained[1],), "points"))
    figure = Figure(
        "What an error costs",
        "parameters",
        "L2 distance to f",
        tuple(series),
        xscale="log",
        yscale="log",
        caption=f"f_i(X) = sin(2πx_i)/2 + mean, n = 3, d = 1; δ = 1/4, 1/6, 1/{config.finest}. The sparse one has a "
        "window of 1 and positions, so no two tokens share a cell.",
    )
    return _outcome(found, trained, figure)


def _control(key: Any, config: Config) -> Outcome:
    # the same cells three times: more networks, not finer ones
    return _outcome(_errors(key, config, [4, 4, 4]), _trained(key, config), None)


claim = Claim(
    name="yun-2020-census",
    title="Parameters against error, constructed and trained",
    statement=(
        "The networks of the three proofs, deep, sparse and with one layer of attention, approach f as their cells "
        "shrink; the one-layer network is smaller than the deep one on equal cells; and a small transformer that was "
        "trained on f has a lower error than every construction that is no larger."
    ),
    hypotheses=("f_i = sin(2πx_i)/2 + mean, n = 3, d = 1", "errors in L2 on the cube, on sequences that were not seen"),
    reference="yun2020, Theorem 2; kajitsuka2024, Theorem 3",
    run=_run,
    control=_control,
    control_statement="Cells that do not shrink.",
    quick=Config(),
    full=Config(finest=12, points=10_000, dim=16, steps=3000),
)
