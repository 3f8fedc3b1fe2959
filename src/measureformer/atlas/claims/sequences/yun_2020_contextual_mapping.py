"""Selective shifts give every token a number that determines its whole context: by enumeration, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.sequences import yun
from measureformer.sequences.codes import CellCodes, bits

CASES = (
    (1, 2, 4),
    (1, 2, 8),
    (1, 2, 16),
    (1, 3, 4),
    (2, 2, 2),
    (2, 3, 2),
    (1, 3, 8),
    (2, 2, 4),
    (3, 2, 2),
    (1, 2, 32),
    (2, 2, 8),
)
"""(d, n, 1/δ)"""


@dataclass(frozen=True)
class Config:
    cases: int = 9


class Row(NamedTuple):
    codes: int
    collisions: int
    failures: int
    """Of the decoder."""
    bits: int


def _measured(d: int, n: int, D: int, *, scale: int | None) -> Row:
    grid = CellCodes(d, n, D)
    states = grid.placed(grid.enumerate())
    ids = states @ grid.u
    for layer in yun.selective_shifts(grid, scale):
        states = layer.integer(states)
    codes = states @ grid.u
    own, seen = grid.unpack(codes)
    failed = (own != ids) | (seen != np.sort(ids, axis=1)[:, None]).any(axis=2)
    return Row(codes.size, codes.size - len(np.unique(codes)), failed.sum(), bits(int(codes.max()) + 1))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    cases = CASES[: config.cases]
    rows = [_measured(*case, scale=1 if variant == "scale-1" else None) for case in cases]
    checks: list[Check] = []
    for (d, n, D), row in zip(cases, rows, strict=True):
        name = f"d = {d}, n = {n}, δ = 1/{D}"
        checks.append(Check(f"{name}: collisions", row.collisions, high=0.0, rejected_by="scale-1"))
        checks.append(Check(f"{name}: failures of the decoder", row.failures, high=0.0, rejected_by="scale-1"))
    if variant != "claim":
        return Outcome(tuple(checks))
    wrong = [_measured(*case, scale=1) for case in cases]
    sizes = [row.codes for row in rows]
    figure = Figure(
        "Contexts that share a number",
        "tokens in contexts",
        "collisions + 1",
        (
            Series("scale N", sizes, [row.collisions + 1 for row in rows], "points", role="measured"),
            Series("control: scale 1", sizes, [row.collisions + 1 for row in wrong], "points", role="control"),
        ),
        yscale="log",
        caption=f"{len(rows)} grids, every context; the largest numbers have {max(row.bits for row in rows)} bits.",
    )
    return Outcome(tuple(checks), figure)


claim = Claim(
    name="yun-2020-contextual-mapping",
    title="Attention tells contexts apart",
    kind="construction",
    statement=(
        "N + 1 layers of hard attention, N = δ^(−d): a sweep over all ids that adds N(max − min) to the token with "
        "that id, then N^(n+1)·max to all. On sets of n different cells the resulting numbers are different within a "
        "set, and two sets share none; from one number the token and the sorted context are read back."
    ),
    hypotheses=("tokens in different cells",),
    reference="yun2020, Lemma 6",
    measure=measure,
    controls={"scale-1": "A sweep of scale 1 instead of N: numbers collide."},
    quick=Config(),
    full=Config(cases=11),
)
