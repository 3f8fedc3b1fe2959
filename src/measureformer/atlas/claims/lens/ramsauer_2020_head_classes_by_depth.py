"""Heads of a trained encoder average at both ends and retrieve in between; shuffled weights only average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series

AVERAGING, SELECTIVE = 1 / 2, 1 / 32
"""Parts of the mass above which a head is of class I, and below which it is of class IV."""


@dataclass(frozen=True)
class Config:
    tokens: int = 64


@cache
def _needed(config: Config, variant: str) -> np.ndarray:
    """The part of the mass that holds 90 % of the attention, in the median of the tokens, (layers, heads)."""
    import equinox as eqx

    from measureformer.lens.columns import Look

    reader = model("minilm").shuffled(0) if variant == "shuffled-weights" else model("minilm")
    found: list[np.ndarray] = []
    for step in reader.steps(real_text(reader, config.tokens)):
        scale = 1.0 if variant == "scale-forgotten" else step.block.heads.scale
        block = eqx.tree_at(lambda b: b.attention.inner.scale, step.block, np.asarray(scale, np.float32))
        found.append(Look(replace(step, block=block)).needed)
    return np.array(found)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    parts = _needed(config, variant)
    medians = np.median(parts, axis=1)
    checks = (
        Check(
            "part of the mass that the median head needs, first and last layer, least",
            medians[[0, -1]].min(),
            low=AVERAGING,
            rejected_by="scale-forgotten",
        ),
        Check(
            "the same in the layers between, largest",
            medians[1:-1].max(),
            high=AVERAGING,
            rejected_by="shuffled-weights",
        ),
        Check(
            "part that the most selective head of all needs",
            parts.min(),
            high=SELECTIVE,
            rejected_by="shuffled-weights",
        ),
    )
    return Outcome(checks, _figure(config, parts, medians) if variant == "claim" else None)


def _figure(config: Config, parts: np.ndarray, medians: np.ndarray) -> Figure:
    layers, heads = parts.shape
    depth, ends = np.arange(layers) + 1, (0.5, layers + 0.5)
    # heads of a layer stand side by side
    x = depth[:, None] - 0.35 + 0.7 * (np.arange(heads) + 0.5) / heads
    mixed = np.median(_needed(config, "shuffled-weights"), axis=1)
    return Figure(
        "Which heads are memories?",
        "layer",
        "mass that holds 90 % of attention",
        (
            Series("heads", x.ravel(), parts.ravel(), "points", role="measured"),
            Series("median", depth, medians, role="measured"),
            Series("median, weights shuffled", depth, mixed, role="control"),
            Series("class I above", ends, (AVERAGING, AVERAGING), "dashed", role="theory"),
            Series("class IV below", ends, (SELECTIVE, SELECTIVE), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"all-MiniLM-L6-v2 on {config.tokens} tokens. Class I averages over most of them, IV retrieves few.",
    )


claim = Claim(
    name="ramsauer-2020-head-classes-by-depth",
    title="Heads average at the ends and retrieve in between",
    kind="observation",
    statement=(
        "Observed in all-MiniLM-L6-v2 on real text: the median head of the first and of the last layer is of class I, "
        "where 90 % of the attention needs more than half of the mass. In the layers between it needs less, and some "
        "head is of class IV, with less than 1/32."
    ),
    hypotheses=("one trained model, one text",),
    reference="ramsauer2020",
    measure=measure,
    controls={
        "shuffled-weights": "The entries of every weight matrix in random order: all heads average.",
        "scale-forgotten": "Logits without the factor 1/√k: heads of all layers select few tokens.",
    },
    quick=Config(),
    full=Config(tokens=256),
    needs=needs("minilm"),
)
