"""Perceptrons with one hidden unit and jumps round to a grid, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import yun


@dataclass(frozen=True)
class Config:
    cells: int = 4
    points: int = 10_000


def _outcome(key: Any, config: Config, power: int) -> Outcome:
    """J = δ^{power·nd}: −1 as it must be, +1 as it is sometimes printed."""
    D, d, n = config.cells, 2, 2
    net = yun.compile(lambda X: X, d=d, n=n, delta=1 / D)
    J = float(D) ** (-power * n * d)  # δ^(power·nd)
    X = generator(key).uniform(-0.5, 1.5, size=(config.points, n, d))
    Y = X
    for layer in net.quantise:
        phi = layer.activation
        # the first of each coordinate sends what lies outside to −J
        outer = phi._replace(b1=-J, b3=-J) if phi.a1 != 0 else phi
        Y = type(layer)(layer.tag, layer.w1, outer, layer.w2).hard(Y)
    outside = (X < 0) | (X >= 1)
    cells = np.floor(X * D) / D
    ids = Y @ net.grid.u
    beyond = outside.any(axis=2)
    checks = (
        Check("largest error inside of the cube", float(np.abs(Y - cells)[~outside].max()), high=0.0),
        Check("largest difference from −J outside", float(np.abs(Y + J)[outside].max()), high=0.0),
        Check("largest id of a token outside", float(ids[beyond].max()), high=-1e-9),
    )
    line = np.linspace(-0.4, 1.4, 200)
    steps = np.clip(np.floor(line * D), 0, D - 1) / D
    inside = (line >= 0) & (line < 1)
    figure = Figure(
        "The quantiser",
        "entry of a token",
        "after d(1/δ + 1) perceptrons",
        (
            Series("inside of the cube", tuple(line[inside].tolist()), tuple(steps[inside].tolist()), "points"),
            Series(
                "sampled",
                tuple(X[:300, 0, 0][~outside[:300, 0, 0]].tolist()),
                tuple(Y[:300, 0, 0][~outside[:300, 0, 0]].tolist()),
                "points",
            ),
        ),
        caption=f"δ = 1/{D}; entries outside of [0, 1) go to −J = −{J:g}, below everything that is drawn.",
    )
    return Outcome(checks, figure if power == -1 else None)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, -1)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, 1)


claim = Claim(
    name="yun-2020-quantiser",
    title="Perceptrons of width 1 round to a grid",
    statement=(
        "d(1/δ + 1) perceptrons x ← x + w2 φ(w1·x) with one hidden unit, φ piecewise linear with jumps, take every "
        "entry in [kδ, (k+1)δ) to kδ and every entry outside of [0, 1) to −J, J = δ^(−nd); a token with such an "
        "entry has a negative id Σ x_i δ^(−i)."
    ),
    hypotheses=("δ = 1/D, D a whole number",),
    reference="yun2020, Lemma 5",
    run=_run,
    control=_control,
    control_statement="J = δ^(nd), the exponent with the wrong sign: tokens outside of the cube are taken for others.",
    quick=Config(),
    full=Config(points=200_000),
)
