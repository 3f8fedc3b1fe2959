"""From hardmax and jumps to softmax and ReLUs: the two networks differ on ramps only, whose share tends to 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.sequences import yun

RAMPS = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class Config:
    cells: int = 8
    points: int = 6000


class Row(NamedTuple):
    """Of one width of ramps: sequences that differ by more than 1e-6 though they are on no ramp; share that differs;
    the measure of ramps; its bound dn(1/δ + 1)e."""

    elsewhere: int
    share: float
    ramps: float
    bound: float


def _measured(key: Key, config: Config, *, cold: bool) -> dict[float, Row]:
    D = config.cells
    X = generator(key).uniform(size=(config.points, 2, 1))
    found: dict[float, Row] = {}
    for ramp in RAMPS:
        net = yun.compile_yun(wave, d=1, n=2, delta=1 / D, ramp=ramp)
        if not cold:
            net = replace(net, shifts=tuple(replace(layer, gain=1.0) for layer in net.shifts))
        off = np.abs(net.run(X, "soft") - net.run(X, "hard")).max(axis=(1, 2)) > 1e-6
        on_ramp = ((np.ceil(X * D) / D - X) <= net.ramp).any(axis=(1, 2))
        ramps = 1 - (1 - D * net.ramp) ** 2
        found[net.ramp] = Row((off & ~on_ramp).sum(), off.mean(), ramps, 2 * (D + 1) * net.ramp)
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _measured(key, config, cold=variant != "temperature-1")
    checks: list[Check] = []
    for e, row in found.items():
        over, five = row.share - row.ramps, 5 * (row.ramps * (1 - row.ramps) / config.points) ** 0.5
        ratio = row.ramps / (row.bound / 2 if variant == "one-token" else row.bound)
        name, warm = f"ramp {e:.2g}", "temperature-1"
        checks += [
            Check(f"{name}: sequences off the ramps that differ", row.elsewhere, high=0.0, rejected_by=warm),
            Check(f"{name}: share that differs, less the measure of ramps", over, high=five, rejected_by=warm),
            Check(f"{name}: measure of ramps over its bound", ratio, high=1.0, rejected_by="one-token"),
        ]
    return Outcome(tuple(checks), _figure(key, config, found) if variant == "claim" else None)


def _figure(key: Key, config: Config, found: dict[float, Row]) -> Figure:
    ramps, warm = list(found), [row.share for row in _measured(key, config, cold=False).values()]
    return Figure(
        "Where softmax and ReLUs differ from hardmax and jumps",
        "width of the ramps",
        "share of sequences",
        (
            Series("differ by more than 1e-6", ramps, [r.share for r in found.values()], "points", role="measured"),
            Series("bound dn(1/δ + 1)e", ramps, [r.bound for r in found.values()], "dashed", role="theory"),
            Series("control: softmax at temperature 1", ramps, warm, "points", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"δ = 1/{config.cells}, n = 2, {config.points} sequences.",
    )


claim = Claim(
    name="yun-2020-density",
    title="Ordinary blocks are as good as generalised ones",
    kind="theorem",
    statement=(
        "Replacing hardmax by softmax with a large factor, and each activation by four ReLUs with ramps of width e, "
        "changes the network on a set of sequences of measure at most dn(1/δ + 1)e only: the factor can be chosen so "
        "that shares differ from 0 and 1 by less than rounding."
    ),
    hypotheses=("tokens uniform on the cube",),
    reference="yun2020, Lemma 4",
    measure=measure,
    controls={
        "temperature-1": "Softmax with the factor 1.",
        "one-token": "The bound without the factor n: d(1/δ + 1)e, the ramps of one token.",
    },
    quick=Config(),
    full=Config(points=200_000),
)
