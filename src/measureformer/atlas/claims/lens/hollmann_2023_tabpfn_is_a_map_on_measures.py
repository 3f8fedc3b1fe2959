"""A learner of tables is a map on measures; a causal language model is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series


@dataclass(frozen=True)
class Config:
    rows: int = 40
    asked: int = 20


def moons(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two noisy half circles."""
    angle, label = rng.uniform(0, np.pi, n), rng.integers(0, 2, n)
    x, y = np.cos(angle), np.sin(angle)
    return np.where(label[:, None], np.c_[1 - x, 0.5 - y], np.c_[x, y]) + 0.15 * rng.normal(size=(n, 2)), label


def _outcome(repeated: float, permuted: float, ratio: float, figure: Figure | None = None) -> Outcome:
    checks = (
        Check("change of the outputs when the context is repeated, relative", repeated, high=1e-3),
        Check("change when it is put into another order, relative", permuted, high=1e-3),
        Check("change for a tenth of a displacement, over that for all of it", ratio, high=0.5),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    from measureformer.lens import Table

    rng, reader = generator(key), model("tabpfn")
    (X, y), (asked, labels) = moons(rng, config.rows), moons(rng, config.asked)

    def outputs(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(reader.logits(Table(X, y, asked)), np.float64)[len(X) :, :2]

    base = outputs(X, y)
    size = float(np.abs(base).max())
    order, step = rng.permutation(config.rows), rng.normal(size=X.shape)
    apart = [float(np.abs(outputs(X + eps * step, y) - base).max()) / size for eps in (0.1, 0.01)]
    repeated = float(np.abs(outputs(np.tile(X, (2, 1)), np.tile(y, 2)) - base).max()) / size
    permuted = float(np.abs(outputs(X[order], y[order]) - base).max()) / size
    accuracy = float((base.argmax(axis=1) == labels).mean())
    names = ("repeated", "another order", "moved by 0.01", "moved by 0.1")
    figure = Figure(
        "What changes the predictions of TabPFN",
        "change of the context",
        "change of the outputs, relative",
        (Series("TabPFN", (0.0, 1.0, 2.0, 3.0), (repeated, permuted, apart[1], apart[0]), "bars"),),
        yscale="log",
        xticks=names,
        caption=f"Two moons, {config.rows} labelled points; {accuracy:.0%} of {config.asked} others are right.",
    )
    return _outcome(repeated, permuted, apart[1] / apart[0], figure)


def _control(key: Any, config: Config) -> Outcome:
    rng, reader = generator(key), model("smollm2")
    ids = real_text(reader, config.rows)
    context, last = ids[:-1], ids[-1:]

    def outputs(measure: Any) -> np.ndarray:
        """What the last token has become after the last layer."""
        for layer in reader.layers:
            measure = layer.push(measure)
        return np.asarray(measure.points, np.float64)[-1]

    def reading(context: np.ndarray) -> np.ndarray:
        return outputs(reader.embed(np.concatenate([context, last])))

    sigma = reader.embed(ids)
    base, step = outputs(sigma), rng.normal(size=sigma.points.shape).astype(np.float32) * float(sigma.radius())
    size = float(np.abs(base).max())
    moved = [outputs(sigma.with_points(sigma.points + np.float32(eps) * step)) for eps in (0.01, 0.001)]
    apart = [float(np.abs(found - base).max()) / size for found in moved]
    repeated = float(np.abs(reading(np.tile(context, 2)) - base).max()) / size
    permuted = float(np.abs(reading(rng.permutation(context)) - base).max()) / size
    return _outcome(repeated, permuted, apart[1] / apart[0])


claim = Claim(
    name="hollmann-2023-tabpfn-is-a-map-on-measures",
    title="A learner of tables is a map on measures",
    statement=(
        "The predictions of TabPFN depend on its labelled rows as on a measure: repeating all rows and reordering them "
        "change nothing, and small displacements of the rows change them little."
    ),
    hypotheses=("rows are standardised by mean and deviation of the measure",),
    reference="hollmann2023",
    run=_run,
    control=_control,
    control_statement="The same for the next token of a causal language model, SmolLM2-135M.",
    quick=Config(),
    full=Config(rows=200, asked=200),
    needs=needs("tabpfn", "smollm2"),
)
