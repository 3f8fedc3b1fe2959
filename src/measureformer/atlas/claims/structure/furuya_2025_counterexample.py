"""The counterexample in numbers: two prompts and their images approach each other, the answers to one word do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.measures import Discrete
from measureformer.structure import counterexample
from measureformer.structure.black_box import Atoms, w1
from measureformer.structure.counterexample import MapOfMeasures, prompts

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


def _rows(variant: str) -> np.ndarray:
    """For each n in the table: W_1(μ⁺, μ⁻), W_1(f(μ⁺), f(μ⁻)), gap of G."""
    f, rows = _map(variant), []
    for n in TABLE:
        h = 1 / n if variant == "as-near-as-light" else n**-0.5
        both = [Discrete.weighted([[s * h], [1.0]], [1 / n, 1 - 1 / n]) for s in (1, -1)]
        atoms = [Atoms(np.asarray(mu.points), np.asarray(mu.weights)) for mu in (*both, *map(f, both))]
        rows.append((w1(*atoms[:2]), w1(*atoms[2:]), atoms[2].points[0, 0] - atoms[3].points[0, 0]))
    return np.array(rows)


def _map(variant: str) -> MapOfMeasures:
    return counterexample(softening=0.1 if variant == "softened" else 0.0)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rows, half = _rows(variant), 0.5 * 10.0 ** (1 - config.digits)
    rejected_by = {
        "W_1 of prompts": ("as-near-as-light",),
        "W_1 of images": ("softened", "as-near-as-light"),
        "gap": ("softened", "as-near-as-light"),
    }
    checks = [
        Check(f"n = {n}: {what} over its value", value / truth, 1 - half, 1 + half, rejected_by=controls)
        for (n, expected), row in zip(TABLE.items(), rows, strict=True)
        for (what, controls), value, truth in zip(rejected_by.items(), row, expected, strict=True)
    ]
    two, G = prompts(config.length), _map(variant).map
    apart = G.tokens(two.alice)[0, 0] - G.tokens(two.elise)[0, 0]
    checks.append(Check("answers to 'Alice' and 'Elise'", apart, 0.5900, 0.5901, rejected_by="softened"))
    return Outcome(tuple(checks), _figure(rows) if variant == "claim" else None)


def _figure(rows: np.ndarray) -> Figure:
    sizes = tuple(TABLE)
    return Figure(
        "Close prompts, close images, distant answers",
        "n",
        "distance",
        (
            Series("W_1 of the measures", sizes, rows[:, 0], "points", role="measured"),
            Series("W_1 of their images", sizes, rows[:, 1], "points", role="measured"),
            Series("gap of G", sizes, rows[:, 2], role="measured"),
            Series("1/2", sizes, np.full(len(sizes), 0.5), "dashed", role="theory"),
            Series("control: gap of the softened map", sizes, _rows("softened")[:, 2], role="control"),
        ),
        xscale="log",
        yscale="log",
        caption="μ± = δ_{±h}/n + (1 − 1/n) δ_1 with h = n^(−1/2).",
    )


claim = Claim(
    name="furuya-2025-counterexample",
    title="Continuous, support preserving, and no transformer",
    kind="construction",
    statement=(
        "f(μ) = φ_m♯μ with φ_m(x) = x + χ(x)/4·tanh(x/m), m = ∫χ dμ, is continuous and support preserving; along "
        "μ± = δ_{±h}/n + (1−1/n)δ_1 with h = n^(−1/2) both W_1(μ⁺,μ⁻) and W_1(f(μ⁺),f(μ⁻)) → 0, while "
        "G(μ⁺,h) − G(μ⁻,−h) → 1/2. Two prompts that differ in one word are answered 0.59 apart."
    ),
    hypotheses=("χ(x) = max(0, 1 − 4x²)², on [−1, 1]",),
    reference="furuya2025, Proposition 1",
    measure=measure,
    controls={
        "softened": "tanh(x/(m + 0.1)): given by a continuous map, whose gap vanishes.",
        "as-near-as-light": "h = 1/n: then x/m stays at 1, and the gap tends to tanh(1)/2 instead of 1/2.",
    },
    quick=Config(),
    full=Config(length=1_000_000),
)
