"""Perceptrons with one hidden unit and jumps round to a grid, exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.sequences import yun


@dataclass(frozen=True)
class Config:
    cells: int = 4
    points: int = 10_000


def measure(key: Key, config: Config, variant: str) -> Outcome:
    D, d, n = config.cells, 2, 2
    net = yun.compile_yun(lambda X: X, d=d, n=n, delta=1 / D)
    # δ^(−nd), or δ^(nd) as it is sometimes printed
    J = float(D) ** (-n * d if variant == "inverse-exponent" else n * d)
    X = generator(key).uniform(-0.5, 1.5, size=(config.points, n, d))
    Y = X
    for layer in net.quantise[:-1] if variant == "one-perceptron-fewer" else net.quantise:
        phi = layer.activation
        # the first of each coordinate sends what lies outside to −J
        first = phi.a1 != 0
        if first and variant == "outside-left-alone":
            continue
        Y = replace(layer, activation=phi._replace(b1=-J, b3=-J) if first else phi).hard(Y)
    outside = (X < 0) | (X >= 1)
    error = np.abs(Y - np.floor(X * D) / D)[~outside].max()
    missed = np.abs(Y + J)[outside].max()
    largest_id = (Y @ net.grid.u)[outside.any(axis=2)].max()
    alone = "outside-left-alone"
    checks = (
        Check("largest error inside of the cube", error, high=0.0, rejected_by="one-perceptron-fewer"),
        Check("largest difference from −J outside", missed, high=0.0, rejected_by=alone),
        Check("largest id of a token outside", largest_id, high=-1e-9, rejected_by=("inverse-exponent", alone)),
    )
    line = np.linspace(-0.4, 1.4, 200)
    line = line[(line >= 0) & (line < 1)]
    shown = np.flatnonzero(~outside[:300, 0, 0])
    figure = Figure(
        "The quantiser",
        "entry of a token",
        "after d(1/δ + 1) perceptrons",
        (
            Series("inside of the cube", line, np.floor(line * D) / D, "points", role="theory"),
            Series("sampled", X[shown, 0, 0], Y[shown, 0, 0], "points", role="measured"),
        ),
        caption=f"δ = 1/{D}; entries outside of [0, 1) go to −J = −{J:g}, below everything that is drawn.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="yun-2020-quantiser",
    title="Perceptrons of width 1 round to a grid",
    kind="construction",
    statement=(
        "d(1/δ + 1) perceptrons x ← x + w2 φ(w1·x) with one hidden unit, φ piecewise linear with jumps, take every "
        "entry in [kδ, (k+1)δ) to kδ and every entry outside of [0, 1) to −J, J = δ^(−nd); a token with such an "
        "entry has a negative id Σ x_i δ^(−i)."
    ),
    hypotheses=("δ = 1/D, D a whole number",),
    reference="yun2020, Lemma 5",
    measure=measure,
    controls={
        "inverse-exponent": "J = δ^(nd), the exponent with the wrong sign: tokens outside the cube pass for others.",
        "one-perceptron-fewer": "d(1/δ + 1) − 1 perceptrons: the last cell of the last coordinate is not rounded.",
        "outside-left-alone": "d/δ perceptrons: those that send entries outside of [0, 1) to −J are left out.",
    },
    quick=Config(),
    full=Config(points=200_000),
)
