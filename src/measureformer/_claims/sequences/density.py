"""From hardmax and jumps to softmax and ReLUs: the two networks differ on ramps only, whose share tends to 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer._claims.sequences._functions import wave
from measureformer.result import Check, Figure, Outcome, Series
from measureformer.universality import yun

RAMPS = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class Config:
    cells: int = 8
    points: int = 20_000


def _shares(key: Any, config: Config, *, cold: bool) -> dict[float, tuple[float, float]]:
    """For each ramp: the share of sequences on which the networks differ by more than 1e-6, and dn(1/δ + 1) e."""
    X = generator(key).uniform(size=(config.points, 2, 1))
    found: dict[float, tuple[float, float]] = {}
    for ramp in RAMPS:
        net = yun.compile(wave, d=1, n=2, delta=1 / config.cells, ramp=ramp)
        if not cold:
            net = replace(net, shifts=tuple(replace(layer, gain=1.0) for layer in net.shifts))
        off = np.abs(net.run(X, "soft") - net.run(X, "hard")).max(axis=(1, 2)) > 1e-6
        found[net.ramp] = float(off.mean()), 2 * (config.cells + 1) * net.ramp
    return found


def _outcome(found: dict[float, tuple[float, float]], figure: Figure | None) -> Outcome:
    checks = [
        Check(f"ramp {e:.2g}: share that differs, over its bound", s / b, high=1.0) for e, (s, b) in found.items()
    ]
    least = min(found.values())[0]
    return Outcome((*checks, Check("share that differs at the smallest ramp", least, high=0.01)), figure)


def _run(key: Any, config: Config) -> Outcome:
    found, warm = _shares(key, config, cold=True), _shares(key, config, cold=False)
    ramps = tuple(found)
    figure = Figure(
        "Where softmax and ReLUs differ from hardmax and jumps",
        "width of the ramps",
        "share of sequences",
        (
            Series("differ by more than 1e-6", ramps, tuple(s for s, _ in found.values()), "points"),
            Series("bound dn(1/δ + 1)e", ramps, tuple(b for _, b in found.values()), "dashed"),
            Series("control: softmax at temperature 1", ramps, tuple(s for s, _ in warm.values()), "points"),
        ),
        xscale="log",
        yscale="log",
        caption=f"δ = 1/{config.cells}, n = 2, {config.points} sequences.",
    )
    return _outcome(found, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_shares(key, config, cold=False), None)


claim = Claim(
    name="yun-2020-density",
    title="Ordinary blocks are as good as generalised ones",
    statement=(
        "Replacing hardmax by softmax with a large factor, and each activation by four ReLUs with ramps of width e, "
        "changes the network on a set of sequences of measure at most dn(1/δ + 1)e only: the factor can be chosen so "
        "that shares differ from 0 and 1 by less than rounding."
    ),
    hypotheses=("tokens uniform on the cube",),
    reference="yun2020, Lemma 4",
    run=_run,
    control=_control,
    control_statement="Softmax with the factor 1.",
    quick=Config(),
    full=Config(points=200_000),
)
