"""Parameters against error: the deep, the sparse and the one-layer construction, and a transformer that was trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.helpers.sequences_hybrids import train
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.sequences import boltzmann, yun
from measureformer.sequences import sparse as sparsity

KINDS = ("deep", "sparse", "one layer")
Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class Config:
    finest: int = 8
    points: int = 2000
    dim: int = 8
    steps: int = 800


@once
def _errors(key: Key, config: Config, cells: tuple[int, ...]) -> dict[str, Curve]:
    """Parameters and L2 errors of the three constructions for n = 3 tokens in R¹."""
    X = generator(key).uniform(size=(config.points, 3, 1))
    F = wave(X)
    found: dict[str, Curve] = {kind: [] for kind in KINDS}
    for D in cells:
        deep = yun.compile_yun(wave, d=1, n=3, delta=1 / D)
        sparse = sparsity.compile_sparse(wave, sparsity.sparse_pattern("window", 3), d=1, delta=1 / D)
        one = boltzmann.compile_one_layer(wave, d=1, n=3, delta=1 / D)
        made = (
            (deep.census.parameters, deep.run(X)),
            (sparse.census.parameters, sparse.run(X)),
            (one.parameters, one.run(X)),
        )
        for kind, (size, Y) in zip(KINDS, made, strict=True):
            found[kind].append((size, math.sqrt(((Y - F) ** 2).sum(axis=(1, 2)).mean())))
    return found


@once
def _trained(key: Key, config: Config, *, steps: int) -> tuple[int, float]:
    (net,) = train(wave, [("attention", "attention")], key, n=3, dim=config.dim, steps=steps, batch=128)
    return net.parameters, net.error


def measure(key: Key, config: Config, variant: str) -> Outcome:
    shrinking = (4, 6, config.finest)
    found = _errors(key, config, (4, 4, 4) if variant == "equal-cells" else shrinking)
    size, error = _trained(key, config, steps=0 if variant == "untrained" else config.steps)
    deep = found["deep"][:1] * len(shrinking) if variant == "coarser-deep-cells" else found["deep"]
    smaller = max(one[0] / other[0] for one, other in zip(found["one layer"], deep, strict=True))
    best = min(e for curve in found.values() for parameters, e in curve if parameters <= size)
    finest, trained = "error at the finest cells over that at the coarsest", "error of the trained transformer"
    fell = {f"{kind}: {finest}": curve[-1][1] / curve[0][1] for kind, curve in found.items()}
    layer = "parameters of one layer over those of the deep network"
    checks = (
        *(Check(name, ratio, high=0.85, rejected_by="equal-cells") for name, ratio in fell.items()),
        Check(layer, smaller, high=1.0, rejected_by="coarser-deep-cells"),
        Check(f"{trained} over the best construction of its size", error / best, high=0.5, rejected_by="untrained"),
    )
    return Outcome(checks, _figure(config, found, (size, error)) if variant == "claim" else None)


def _figure(config: Config, found: dict[str, Curve], trained: tuple[int, float]) -> Figure:
    return Figure(
        "What an error costs",
        "parameters",
        "L2 distance to f",
        (
            *(
                Series(kind, [x for x, _ in curve], [y for _, y in curve], role="measured")
                for kind, curve in found.items()
            ),
            Series("trained", trained[:1], trained[1:], "points", role="measured"),
        ),
        xscale="log",
        yscale="log",
        caption=f"f_i(X) = sin(2πx_i)/2 + mean, n = 3, d = 1; δ = 1/4, 1/6, 1/{config.finest}. The sparse one has a "
        "window of 1 and positions, so no two tokens share a cell.",
    )


claim = Claim(
    name="yun-2020-census",
    title="Parameters against error, constructed and trained",
    kind="observation",
    statement=(
        "Observed for one f: the errors of the networks of the three proofs, deep, sparse and with one layer of "
        "attention, fall by 15 % or more as their cells shrink; the one-layer network is smaller than the deep one on "
        "equal cells; and a small transformer that was trained on f has less than half of the error of every "
        "construction that is no larger."
    ),
    hypotheses=("f_i = sin(2πx_i)/2 + mean, n = 3, d = 1", "errors in L2 on the cube, on sequences that were not seen"),
    reference="yun2020, Theorem 2; kajitsuka2024, Theorem 3",
    measure=measure,
    controls={
        "equal-cells": "Cells that do not shrink: three networks on the same cells.",
        "coarser-deep-cells": "Unequal cells: the deep network stays on the coarsest ones.",
        "untrained": "A transformer of the same size with random weights, not trained.",
    },
    quick=Config(),
    full=Config(finest=12, points=10_000, dim=16, steps=3000),
)
