"""A trained layer that is applied again and again clusters tokens slowly; shuffled, it collapses them at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series

REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"


@dataclass(frozen=True)
class Config:
    trained: int = 12
    beyond: int = 60


@cache
def _cosines(depth: int, shuffled: bool) -> np.ndarray:
    """Mean cosine between two tokens after 0, 1, …, depth layers."""
    reader = model("albert").shuffled(0) if shuffled else model("albert")
    measure, layer = reader.embed(REACTION), reader.layers[0]
    found: list[float] = []
    for _ in range(depth + 1):
        points = np.asarray(measure.points, np.float64)
        directions = points / np.linalg.norm(points, axis=1, keepdims=True)
        n = len(directions)
        found.append((np.sum(directions.sum(axis=0) ** 2) - n) / (n * (n - 1)))
        measure = layer.push(measure)
    return np.array(found)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    cosines, shuffled = _cosines(config.beyond, variant == "shuffled-weights"), "shuffled-weights"
    trained = cosines[config.trained]
    checks = (
        Check("mean cosine after the layers it was trained with", trained, high=0.8, rejected_by=shuffled),
        Check("its growth beyond them", cosines[-1] - trained, low=0.01, high=0.5, rejected_by=shuffled),
    )
    if variant != "claim":
        return Outcome(checks)
    depth = np.arange(config.beyond + 1)
    figure = Figure(
        "One layer, again and again",
        "layers",
        "mean cosine of two tokens",
        (
            Series("trained", depth, cosines, role="measured"),
            Series("weights shuffled", depth, _cosines(config.beyond, True), role="control"),
            Series("depth in training", (12.0, 12.0), (cosines.min(), 1.0), "dashed", role="theory"),
        ),
        caption="ALBERT of chemical reactions, whose twelve layers are one. At 1 all tokens point the same way.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="geshkovski-2023-tied-layers-on-real-weights",
    title="Training keeps tokens apart",
    kind="observation",
    statement=(
        "Observed: applied as often as in training, the one layer of a trained ALBERT leaves the tokens of a chemical "
        "reaction apart, with a mean cosine of at most 0.8. Beyond that depth it grows, by 0.01 to 0.5."
    ),
    hypotheses=("one trained model, one reaction",),
    reference="geshkovski2023",
    measure=measure,
    controls={
        "shuffled-weights": "The entries of every weight matrix in random order: tokens collapse to one direction."
    },
    quick=Config(beyond=24),
    full=Config(beyond=240),
    needs=needs("albert"),
)
