"""The counterexample in numbers: two prompts and their images approach each other, the answers to one word do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.structure import counterexample, prompts
from measureformer.structure.black_box import Atoms, w1

TABLE = {
    100: (2.000e-3, 6.608e-3, 0.66080),
    10_000: (2.000e-6, 5.196e-5, 0.51960),
    1_000_000: (2.000e-9, 5.020e-7, 0.50200),
}
"""n: W_1(μ⁺, μ⁻), W_1(f(μ⁺), f(μ⁻)), gap of G."""


@dataclass(frozen=True)
class Config:
    digits: int = 4
    length: int = 10_000


def _row(n: int, softening: float) -> tuple[float, float, float]:
    f, h = counterexample(softening=softening), n**-0.5
    both = [Discrete.weighted([[s * h], [1.0]], [1 / n, 1 - 1 / n]) for s in (1, -1)]
    atoms = [Atoms(np.asarray(mu.points), np.asarray(mu.weights)) for mu in (*both, *map(f, both))]
    return w1(*atoms[:2]), w1(*atoms[2:]), float(atoms[2].points[0, 0] - atoms[3].points[0, 0])


def _outcome(config: Config, softening: float, figure: Figure | None) -> Outcome:
    checks: list[Check] = []
    half = 0.5 * 10.0 ** (1 - config.digits)
    for n, expected in TABLE.items():
        for what, value, truth in zip(
            ("W_1 of prompts", "W_1 of images", "gap"), _row(n, softening), expected, strict=True
        ):
            checks.append(Check(f"n = {n}: {what} over its value", value / truth, 1 - half, 1 + half))
    two, G = prompts(config.length), counterexample(softening=softening).map
    apart = float(G.tokens(two.alice)[0, 0] - G.tokens(two.elise)[0, 0])
    checks.append(Check("answers to 'Alice' and 'Elise'", apart, 0.5900, 0.5901))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    sizes = tuple(float(n) for n in TABLE)
    rows, soft = ([_row(n, s) for n in TABLE] for s in (0.0, 0.1))
    figure = Figure(
        "Close prompts, close images, distant answers",
        "n",
        "distance",
        (
            Series("W_1 of the measures", sizes, tuple(r[0] for r in rows), "points"),
            Series("W_1 of their images", sizes, tuple(r[1] for r in rows), "points"),
            Series("gap of G", sizes, tuple(r[2] for r in rows), "line"),
            Series("1/2", sizes, (0.5,) * len(sizes), "dashed"),
            Series("control: gap of the softened map", sizes, tuple(r[2] for r in soft), "line"),
        ),
        xscale="log",
        yscale="log",
        caption="μ± = δ_{±h}/n + (1 − 1/n) δ_1 with h = n^(−1/2).",
    )
    return _outcome(config, 0.0, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, 0.1, None)


claim = Claim(
    name="furuya-2025-counterexample",
    title="Continuous, support preserving, and no transformer",
    statement=(
        "f(μ) = φ_m♯μ with φ_m(x) = x + χ(x)/4·tanh(x/m), m = ∫χ dμ, is continuous and support preserving; along "
        "μ± = δ_{±h}/n + (1−1/n)δ_1 with h = n^(−1/2) both W_1(μ⁺,μ⁻) and W_1(f(μ⁺),f(μ⁻)) → 0, while "
        "G(μ⁺,h) − G(μ⁻,−h) → 1/2. Two prompts that differ in one word are answered 0.59 apart."
    ),
    hypotheses=("χ(x) = max(0, 1 − 4x²)², on [−1, 1]",),
    reference="furuya2025, Proposition 1",
    run=_run,
    control=_control,
    control_statement="tanh(x/(m + 0.1)): given by a continuous map, whose gap vanishes.",
    quick=Config(),
    full=Config(length=1_000_000),
)
