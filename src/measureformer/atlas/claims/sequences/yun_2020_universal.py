"""The theorem as a program: the error of the compiled network is below its budget and falls with the cells."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import yun
from measureformer.sequences.budget import ErrorBudget


@dataclass(frozen=True)
class Config:
    finest: int = 16
    points: int = 4000
    ramp: int = 10
    """Ramps have the width 2^−ramp: finer cells have more of them, and need narrower ones."""


@lru_cache(maxsize=2)
def _budgets(config: Config) -> dict[int, ErrorBudget]:
    sizes = [D for D in (4, 8, 16, 32) if config.finest >= D]
    # |f(X) − f(Y)| ≤ (π + 1)|X − Y| in the largest entry
    return {
        D: yun.compile(wave, d=1, n=2, delta=1 / D, ramp=2.0**-config.ramp).error_budget(
            2, points=config.points, modulus=(math.pi + 1) / (2 * D)
        )
        for D in sizes
    }


def _outcome(found: dict[int, ErrorBudget], mode: str, figure: Figure | None) -> Outcome:
    checks = [
        Check(f"δ = 1/{D}: error of the network over its budget", b.measured[mode] / b.bound["clamped"], high=1.0)
        for D, b in found.items()
    ]
    errors = [b.measured[mode] for b in found.values()]
    worst = max(later / earlier for earlier, later in itertools.pairwise(errors))
    ramps = next(b.measured[mode] / b.measured["hard"] for D, b in found.items() if D == 8)
    checks.append(Check("error with half the cell over error, at most", worst, high=0.95))
    checks.append(Check("δ = 1/8: error over that of the network with jumps", ramps, high=1.06))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _budgets(config)
    cells = tuple(float(i) for i in range(len(found)))
    series = [
        Series(label, cells, tuple(b.measured[mode] for b in found.values()), "line")
        for mode, label in (("hard", "jumps"), ("clamped", "ReLUs and clamp"), ("soft", "control: ReLUs, no clamp"))
    ]
    series.append(
        Series("budget of ReLUs and clamp", cells, tuple(b.bound["clamped"] for b in found.values()), "dashed")
    )
    figure = Figure(
        "Error of the compiled network",
        "side of the cells δ",
        "L2 distance to f",
        tuple(series),
        yscale="log",
        xticks=tuple(f"1/{D}" for D in found),
        caption=f"f_i(X) = sin(2πx_i)/2 + mean, n = 2 tokens in R¹, ramps of width 2^−{config.ramp}.",
    )
    return _outcome(found, "clamped", figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_budgets(config), "soft", None)


claim = Claim(
    name="yun-2020-universal",
    title="Transformers are universal, with a budget",
    statement=(
        "For continuous, permutation equivariant f on [0,1]^(n×d) the network compiled on cells of side δ, with "
        "softmax, ReLUs with ramps of width e, and a clamp at B, satisfies d_p(f, g) ≤ (dn)^(1/p) ω_f(δ/2) + P^(1/p) "
        "F + (dn(1/δ+1)e)^(1/p) (B + F), where P is the share of sequences with two tokens in one cell, and F = sup "
        "‖f‖_p."
    ),
    hypotheses=("p = 2; f with a known modulus of continuity ω_f",),
    reference="yun2020, Theorem 2",
    run=_run,
    control=_control,
    control_statement="No clamp: tokens on a ramp keep their context id, which is larger than everything else.",
    quick=Config(),
    full=Config(finest=32, points=20_000, ramp=13),
)
