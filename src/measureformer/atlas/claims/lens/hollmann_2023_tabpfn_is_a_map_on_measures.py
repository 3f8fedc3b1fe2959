"""A learner of tables is a map on measures; a causal language model is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete, SpaceTime


@dataclass(frozen=True)
class Config:
    rows: int = 40
    asked: int = 20


def moons(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two noisy half circles."""
    angle, label = rng.uniform(0, np.pi, n), rng.integers(0, 2, n)
    x, y = np.cos(angle), np.sin(angle)
    return np.where(label[:, None], np.c_[1 - x, 0.5 - y], np.c_[x, y]) + 0.15 * rng.normal(size=(n, 2)), label


class Outputs(NamedTuple):
    """What a model predicts from a context and from its changes."""

    base: np.ndarray
    repeated: np.ndarray
    permuted: np.ndarray
    moved: np.ndarray
    moved_less: np.ndarray
    """After a tenth of the displacement."""

    @property
    def changes(self) -> np.ndarray:
        """Largest change of an output for each change of the context, relative to the largest output."""
        return np.array([np.abs(changed - self.base).max() for changed in self[1:]]) / np.abs(self.base).max()


def _of_table(rng: np.random.Generator, config: Config, constant_feature: bool) -> tuple[Outputs, float]:
    """TabPFN on two moons, and the share of the rows asked for that it predicts right."""
    from measureformer.lens import Table

    reader = model("tabpfn")
    (X, y), (asked, labels) = moons(rng, config.rows), moons(rng, config.asked)
    if constant_feature:
        X[:, 1] = asked[:, 1] = 0

    def read(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(reader.logits(Table(X, y, asked)), np.float64)[len(X) :, :2]

    order, step = rng.permutation(config.rows), rng.normal(size=X.shape)
    moved = [read(X + eps * step, y) for eps in (0.1, 0.01)]
    found = Outputs(read(X, y), read(np.tile(X, (2, 1)), np.tile(y, 2)), read(X[order], y[order]), *moved)
    return found, (found.base.argmax(axis=1) == labels).mean()


def _of_text(rng: np.random.Generator, config: Config) -> Outputs:
    """What the last token has become after the last layer of SmolLM2; all tokens before it are the context."""
    reader = model("smollm2")
    ids = real_text(reader, config.rows)
    context, last = ids[:-1], ids[-1:]

    def push(measure: Discrete | SpaceTime) -> np.ndarray:
        for layer in reader.layers:
            measure = layer.push(measure)
        return np.asarray(measure.points, np.float64)[-1]

    def read(context: np.ndarray) -> np.ndarray:
        return push(reader.embed(np.concatenate([context, last])))

    sigma = reader.embed(ids)
    step = rng.normal(size=sigma.points.shape).astype(np.float32) * float(sigma.radius())
    moved = [push(sigma.with_points(sigma.points + np.float32(eps) * step)) for eps in (0.01, 0.001)]
    return Outputs(push(sigma), read(np.tile(context, 2)), read(rng.permutation(context)), *moved)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng, accuracy = generator(key), 0.0
    if variant == "language-model":
        found = _of_text(rng, config)
    else:
        found, accuracy = _of_table(rng, config, constant_feature=variant == "constant-feature")
    repeated, permuted, moved, moved_less = found.changes
    causal = "language-model"
    checks = (
        Check("change of the outputs when the context is repeated, relative", repeated, high=1e-3, rejected_by=causal),
        Check("change when it is put into another order, relative", permuted, high=1e-3, rejected_by=causal),
        Check(
            "change for a tenth of a displacement, over that for all of it",
            moved_less / moved,
            high=0.5,
            rejected_by="constant-feature",
        ),
    )
    figure = Figure(
        "What changes the predictions of TabPFN",
        "change of the context",
        "change of the outputs, relative",
        (Series("TabPFN", range(4), (repeated, permuted, moved_less, moved), "bars", role="measured"),),
        yscale="log",
        xticks=("repeated", "another order", "moved by 0.01", "moved by 0.1"),
        caption=f"Two moons, {config.rows} labelled points; {accuracy:.0%} of {config.asked} others are right.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="hollmann-2023-tabpfn-is-a-map-on-measures",
    title="A learner of tables is a map on measures",
    kind="observation",
    statement=(
        "Observed: the predictions of TabPFN depend on its labelled rows as on a measure. Repeating all rows and "
        "reordering them changes them by at most 10⁻³, and a tenth of a displacement of the rows by at most half of "
        "what all of it does."
    ),
    hypotheses=("rows are standardised by mean and deviation of the measure", "no feature is constant"),
    reference="hollmann2023",
    measure=measure,
    controls={
        "language-model": "The same for the next token of a causal language model, SmolLM2-135M.",
        "constant-feature": "One feature is the same in all rows: standardisation makes any displacement of it as "
        "large as any other.",
    },
    quick=Config(),
    full=Config(rows=200, asked=200),
    needs=needs("tabpfn", "smollm2"),
)
