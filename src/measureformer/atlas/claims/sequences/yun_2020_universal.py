"""The theorem as a program: the error of the compiled network is below its budget and falls with the cells."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from measureformer.atlas.helpers.sequences_functions import wave
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series
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
        D: yun.compile_yun(wave, d=1, n=2, delta=1 / D, ramp=2.0**-config.ramp).error_budget(
            2, points=config.points, modulus=(math.pi + 1) / (2 * D)
        )
        for D in sizes
    }


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _budgets(config)
    mode = "soft" if variant == "no-clamp" else "clamped"
    errors = {D: b.measured[mode] for D, b in found.items()}
    worst = max(later / earlier for earlier, later in itertools.pairwise(errors.values()))
    ramps = errors[8] / found[8].measured["hard"]
    over = {
        f"δ = 1/{D}: error of the network over its budget": errors[D] / b.bound["clamped"] for D, b in found.items()
    }
    checks = (
        *(Check(name, ratio, high=1.0, rejected_by="no-clamp") for name, ratio in over.items()),
        Check("error with half the cell over error, at most", worst, high=0.95, rejected_by="no-clamp"),
        Check("δ = 1/8: error over that of the network with jumps", ramps, high=1.06, rejected_by="no-clamp"),
    )
    return Outcome(checks, _figure(config, found) if variant == "claim" else None)


def _figure(config: Config, found: dict[int, ErrorBudget]) -> Figure:
    def curve(label: str, mode: str, role: Role) -> Series:
        return Series(label, range(len(found)), [b.measured[mode] for b in found.values()], role=role)

    budget = [b.bound["clamped"] for b in found.values()]
    return Figure(
        "Error of the compiled network",
        "side of the cells δ",
        "L2 distance to f",
        (
            curve("jumps", "hard", "measured"),
            curve("ReLUs and clamp", "clamped", "measured"),
            curve("control: ReLUs, no clamp", "soft", "control"),
            Series("budget of ReLUs and clamp", range(len(found)), budget, "dashed", role="theory"),
        ),
        yscale="log",
        xticks=tuple(f"1/{D}" for D in found),
        caption=f"f_i(X) = sin(2πx_i)/2 + mean, n = 2 tokens in R¹, ramps of width 2^−{config.ramp}.",
    )


claim = Claim(
    name="yun-2020-universal",
    title="Transformers are universal, with a budget",
    kind="construction",
    statement=(
        "For continuous, permutation equivariant f on [0,1]^(n×d) the network compiled on cells of side δ, with "
        "softmax, ReLUs with ramps of width e, and a clamp at B, satisfies d_p(f, g) ≤ (dn)^(1/p) ω_f(δ/2) + P^(1/p) "
        "F + (dn(1/δ+1)e)^(1/p) ((dn)^(1/p) B + F), where P is the share of sequences with two tokens in one cell, and "
        "F = sup ‖f‖_p."
    ),
    hypotheses=("p = 2; f with a known modulus of continuity ω_f",),
    reference="yun2020, Theorem 2",
    measure=measure,
    controls={"no-clamp": "No clamp: tokens on a ramp keep their context id, which is larger than everything else."},
    quick=Config(),
    full=Config(finest=32, points=20_000, ramp=13),
)
