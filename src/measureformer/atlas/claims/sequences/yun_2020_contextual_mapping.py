"""Selective shifts give every token a number that determines its whole context: by enumeration, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import yun
from measureformer.sequences.cells import Grid, bits

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


def _measured(config: Config, *, scale: bool) -> list[tuple[int, int, int, int]]:
    """For each case: codes, collisions, failures of the decoder, bits."""
    rows: list[tuple[int, int, int, int]] = []
    for d, n, D in CASES[: config.cases]:
        grid = Grid(d, n, D)
        states = grid.placed(grid.enumerate())
        ids = states @ grid.u
        for layer in yun.selective_shifts(grid, None if scale else 1):
            states = layer.integer(states)
        codes = states @ grid.u
        own, seen = grid.unpack(codes)
        failed = (own != ids) | (seen != np.sort(ids, axis=1)[:, None]).any(axis=2)
        rows.append((codes.size, codes.size - len(np.unique(codes)), int(failed.sum()), bits(int(codes.max()) + 1)))
    return rows


def _outcome(rows: list[tuple[int, int, int, int]], figure: Figure | None) -> Outcome:
    checks: list[Check] = []
    for (d, n, D), (_, collisions, failures, _) in zip(CASES, rows, strict=False):
        checks.append(Check(f"d = {d}, n = {n}, δ = 1/{D}: collisions", float(collisions), high=0.0))
        checks.append(Check(f"d = {d}, n = {n}, δ = 1/{D}: failures of the decoder", float(failures), high=0.0))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    rows, wrong = _measured(config, scale=True), _measured(config, scale=False)
    figure = Figure(
        "Contexts that share a number",
        "tokens in contexts",
        "collisions + 1",
        (
            Series("scale N", tuple(float(r[0]) for r in rows), tuple(r[1] + 1.0 for r in rows), "points"),
            Series("control: scale 1", tuple(float(r[0]) for r in wrong), tuple(r[1] + 1.0 for r in wrong), "points"),
        ),
        yscale="log",
        caption=f"{len(rows)} grids, every context; the largest numbers have {max(r[3] for r in rows)} bits.",
    )
    return _outcome(rows, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_measured(config, scale=False), None)


claim = Claim(
    name="yun-2020-contextual-mapping",
    title="Attention tells contexts apart",
    statement=(
        "N + 1 layers of hard attention, N = δ^(−d): a sweep over all ids that adds N(max − min) to the token with "
        "that id, then N^(n+1)·max to all. On sets of n different cells the resulting numbers are different within a "
        "set, and two sets share none; from one number the token and the sorted context are read back."
    ),
    hypotheses=("tokens in different cells",),
    reference="yun2020, Lemma 6",
    run=_run,
    control=_control,
    control_statement="A sweep of scale 1 instead of N: numbers collide.",
    quick=Config(),
    full=Config(cases=11),
)
