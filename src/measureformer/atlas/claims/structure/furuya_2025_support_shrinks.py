"""Support may shrink and never grows: 'preserves cardinality', as is sometimes written, is too strong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.structure_zoo import LINE, zoo
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.structure.black_box import BlackBox
from measureformer.structure.probes import random_measure

INJECTIVE = ("signed root", "softened counterexample")
MAPS = {"claim": ("ReLU", "mean", *INJECTIVE), "smoothing": ("smoothing",), "injective": INJECTIVE}


@dataclass(frozen=True)
class Config:
    measures: int = 12
    largest: int = 12


def _counts(key: Key, config: Config, names: tuple[str, ...]) -> np.ndarray:
    """Atoms of measures, and of their images under the maps, one column each."""
    rng, animals = generator(key), zoo(key)
    boxes = [BlackBox(animals[name].f) for name in names]
    rows = []
    for _ in range(config.measures):
        mu = random_measure(LINE, rng, int(rng.integers(1, config.largest + 1)), weights="random")
        rows.append([mu.n, *(box.image(mu).n for box in boxes)])
    return np.array(rows)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    counts = _counts(key, config, MAPS[variant])
    growth = counts[:, 1:] - counts[:, :1]
    checks = (
        Check("largest growth of the number of atoms", growth.max(), high=0, rejected_by="smoothing"),
        Check("largest loss of atoms", -growth.min(), low=1, rejected_by="injective"),
    )
    return Outcome(checks, _figure(key, config, counts) if variant == "claim" else None)


def _figure(key: Key, config: Config, counts: np.ndarray) -> Figure:
    at, top = counts[:, 0], counts[:, 0].max()
    grown = _counts(key, config, MAPS["smoothing"])[:, 1]
    return Figure(
        "How many atoms are left",
        "atoms of μ",
        "atoms of f(μ)",
        (
            *(
                Series(name, at, column, "points", role="measured")
                for name, column in zip(MAPS["claim"], counts[:, 1:].T, strict=True)
            ),
            Series("control: smoothing", at, grown, "points", role="control"),
            Series("as many", (1, top), (1, top), "dashed", role="theory"),
        ),
        caption=f"{config.measures} random measures.",
    )


claim = Claim(
    name="furuya-2025-support-shrinks",
    title="The support of a push-forward may shrink, but never grows",
    kind="theorem",
    statement=(
        "For f(μ) = G(μ,·)♯μ the image of n atoms has at most n atoms, and may have fewer: the map x ↦ max(x,0) and "
        "the map onto the mean merge atoms and are support preserving. So 'support preserving' is not 'preserves "
        "cardinality'."
    ),
    hypotheses=("finitely many atoms",),
    reference="furuya2025, Definition 1",
    measure=measure,
    controls={
        "smoothing": "Smoothing by a three-point quadrature: the support grows.",
        "injective": "Injective maps only: the number of atoms is preserved.",
    },
    quick=Config(),
    full=Config(measures=400, largest=60),
)
