"""A trained layer that is applied again and again clusters tokens slowly; shuffled, it collapses them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.lens_data import model, needs
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series

REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"


@dataclass(frozen=True)
class Config:
    trained: int = 12
    beyond: int = 60


def _cosines(reader: Any, depth: int) -> list[float]:
    """Mean cosine between two tokens after 0, 1, …, depth layers."""
    measure, layer = reader.embed(REACTION), reader.layers[0]
    found: list[float] = []
    for _ in range(depth + 1):
        points = np.asarray(measure.points, np.float64)
        directions = points / np.linalg.norm(points, axis=1, keepdims=True)
        n = len(directions)
        found.append(float((np.sum(directions.sum(axis=0) ** 2) - n) / (n * (n - 1))))
        measure = layer.push(measure)
    return found


def _outcome(cosines: list[float], config: Config, figure: Figure | None = None) -> Outcome:
    later = cosines[-1] - cosines[config.trained]
    checks = (
        Check("mean cosine after the layers it was trained with", cosines[config.trained], high=0.8),
        Check("its growth beyond them", later, low=0.01, high=0.5),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    reader = model("albert")
    real, mixed = (_cosines(which, config.beyond) for which in (reader, reader.shuffled(0)))
    depth = tuple(float(i) for i in range(config.beyond + 1))
    figure = Figure(
        "One layer, again and again",
        "layers",
        "mean cosine of two tokens",
        (
            Series("trained", depth, tuple(real), "line"),
            Series("weights shuffled", depth, tuple(mixed), "line"),
            Series("depth in training", (12.0, 12.0), (min(real), 1.0), "dashed"),
        ),
        caption="ALBERT of chemical reactions, whose twelve layers are one. At 1 all tokens point the same way.",
    )
    return _outcome(real, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_cosines(model("albert").shuffled(0), config.beyond), config)


claim = Claim(
    name="geshkovski-2023-tied-layers-on-real-weights",
    title="Training keeps tokens apart",
    statement=(
        "Applied as often as in training, the one layer of a trained ALBERT leaves the tokens of a chemical reaction "
        "apart: their mean cosine is at most 0.8. Beyond that depth they cluster, but slowly."
    ),
    hypotheses=("one trained model, one reaction",),
    reference="geshkovski2023",
    run=_run,
    control=_control,
    control_statement="The entries of every weight matrix in random order: tokens collapse to one direction.",
    quick=Config(beyond=24),
    full=Config(beyond=240),
    needs=needs("albert"),
)
