"""Trained attention sees more of its tokens than their mean and covariance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series


@dataclass(frozen=True)
class Config:
    tokens: int = 64
    every: int = 6
    """Every how many layers one is looked at."""


def _errors(config: Config, factor: float) -> dict[int, np.ndarray]:
    """Layer -> distance of each head to its Gaussian closure, with all logits times `factor`."""
    import equinox as eqx

    from measureformer.lens.columns import COLUMNS, Look

    reader = model("smollm2")
    found: dict[int, np.ndarray] = {}
    for step in reader.steps(real_text(reader, config.tokens)):
        if step.index % config.every == 0:
            block = eqx.tree_at(lambda b: b.attention.inner.scale, step.block, factor * step.block.heads.scale)
            found[step.index + 1] = COLUMNS["closure"].of(Look(replace(step, block=block)))
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _errors(config, 0.02 if variant == "flat-logits" else 1.0)
    layers, medians = list(found), [np.median(errors) for errors in found.values()]
    checks = (
        Check(
            "error of the closure of the median head, least of the layers",
            min(medians),
            low=0.3,
            rejected_by="flat-logits",
        ),
    )
    ends = (layers[0], layers[-1])
    x = [layer for layer, errors in found.items() for _ in errors]
    figure = Figure(
        "Heads and their Gaussian closures",
        "layer",
        "error of the closure, relative",
        (
            Series("heads", x, np.concatenate(list(found.values())), "points", role="measured"),
            Series("median", layers, medians, role="measured"),
            Series("no better than the mean value", ends, (1.0, 1.0), "dashed", role="theory"),
        ),
        caption=f"SmolLM2-135M on {config.tokens} tokens. 0: only mean and covariance of what is seen matter.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="castin-2025-closure-on-real-text",
    title="Trained attention is not Gaussian",
    kind="observation",
    statement=(
        "Observed in the layers of SmolLM2-135M on real text: attention on the Gaussian with the mean and the "
        "covariance of what a token sees misses the value of the median head by at least 0.3 of its distance to the "
        "mean value."
    ),
    hypotheses=("one trained model, one text",),
    reference="castin2025",
    measure=measure,
    controls={
        "flat-logits": "All logits divided by fifty: attention is then linear in what it sees, and the closure exact."
    },
    quick=Config(),
    full=Config(tokens=256, every=1),
    needs=needs("smollm2"),
)
