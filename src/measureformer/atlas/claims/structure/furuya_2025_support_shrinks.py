"""Support may shrink and never grows: 'preserves cardinality', as is sometimes written, is too strong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.structure_zoo import LINE, Map, zoo
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.structure.black_box import BlackBox
from measureformer.structure.probes import random_measure

KEEP, GROW = ("ReLU", "mean", "signed root", "softened counterexample"), ("smoothing",)


@dataclass(frozen=True)
class Config:
    measures: int = 12
    largest: int = 12


def _counts(key: Any, config: Config, maps: dict[str, Map]) -> np.ndarray:
    """Atoms of measures, and of their images under the maps, one column each."""
    rng = generator(key)
    boxes = [BlackBox(f) for f in maps.values()]
    rows = []
    for _ in range(config.measures):
        mu = random_measure(LINE, rng, int(rng.integers(1, config.largest + 1)), weights="random")
        rows.append([mu.n, *(box.image(mu).n for box in boxes)])
    return np.array(rows)


def _outcome(counts: np.ndarray, figure: Figure | None) -> Outcome:
    growth = counts[:, 1:] - counts[:, :1]
    return Outcome(
        (
            Check("largest growth of the number of atoms", float(growth.max()), high=0),
            Check("largest loss of atoms", float(-growth.min()), low=1),
        ),
        figure,
    )


def _chosen(key: Any, names: tuple[str, ...]) -> dict[str, Map]:
    animals = zoo(key)
    return {name: animals[name].f for name in names}


def _run(key: Any, config: Config) -> Outcome:
    counts = _counts(key, config, _chosen(key, KEEP + GROW))
    at = tuple(map(float, counts[:, 0]))
    top = float(counts[:, 0].max())
    figure = Figure(
        "How many atoms are left",
        "atoms of μ",
        "atoms of f(μ)",
        (
            *(
                Series(("control: " if name in GROW else "") + name, at, tuple(map(float, column)), "points")
                for name, column in zip(KEEP + GROW, counts[:, 1:].T, strict=True)
            ),
            Series("as many", (1.0, top), (1.0, top), "dashed"),
        ),
        caption=f"{config.measures} random measures.",
    )
    return _outcome(counts[:, : 1 + len(KEEP)], figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_counts(key, config, _chosen(key, GROW)), None)


claim = Claim(
    name="furuya-2025-support-shrinks",
    title="The support of a push-forward may shrink, but never grows",
    statement=(
        "For f(μ) = G(μ,·)♯μ the image of n atoms has at most n atoms, and may have fewer: the map x ↦ max(x,0) and "
        "the map onto the mean merge atoms and are support preserving. So 'support preserving' is not 'preserves "
        "cardinality'."
    ),
    hypotheses=("finitely many atoms",),
    reference="furuya2025, Definition 1",
    run=_run,
    control=_control,
    control_statement="Smoothing by a three-point quadrature: the support grows.",
    quick=Config(),
    full=Config(measures=400, largest=60),
)
