"""During training, attention gets sparser and its weights larger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.incontext_learner import Learner, learned
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series


@dataclass(frozen=True)
class Config(Learner):
    share: float = 0.55
    """Largest share of keys, last over first; a model that learns nothing from its keys gets sparser too, but less."""
    weight: float = 0.3
    """Smallest growth of the largest weight."""


def measure(key: Key, config: Config, variant: str) -> Outcome:
    other = "labels-of-other-functions"
    records = learned(key, config.plain(), blend=1.0 if variant == other else 0.0).records
    first, last = ({name: values[i] for name, values in records.items()} for i in (0, -1))
    share, growth = (last["sparsity"] / first["sparsity"]).min(), (last["norm"] / first["norm"]).mean()
    gain, keys = (last["largest"] - first["largest"]).max(), "share of keys that attention rests on"
    checks = (
        Check(f"{keys}, last over first, sparsest head", share, high=config.share, rejected_by=other),
        # in the quick preset the norm grows on labels of other functions too
        Check("norm of KᵀQ, last over first, mean over heads", growth, low=1.05, context=True),
        Check("largest weight, last minus first, sparsest head", gain, low=config.weight, rejected_by=other),
    )
    return Outcome(checks, _figure(config, records) if variant == "claim" else None)


def _figure(config: Config, records: dict[str, np.ndarray]) -> Figure:
    steps, shares, norms = records["step"], records["sparsity"], records["norm"] / records["norm"][0]
    names = {
        (layer, head): f"layer {layer + 1}" + (f", head {head + 1}" if config.heads > 1 else "")
        for layer in range(config.layers)
        for head in range(config.heads)
    }
    return Figure(
        "Attention during training",
        "steps",
        "share of keys (lines), norm of KᵀQ over its first (points)",
        (
            *(Series(name, steps, shares[:, i, j], role="measured") for (i, j), name in names.items()),
            *(
                Series(f"{name}: norm", steps, norms[:, i, j], "points", role="measured")
                for (i, j), name in names.items()
            ),
        ),
        caption=(
            "Shares are medians of 1/Σp² over the number of keys that a query sees, over queries that feed an answer: "
            "in the last layer questions only."
        ),
    )


claim = Claim(
    name="tarzanagh-2023-sparser",
    title="Trained attention gets sparser and its weights larger",
    kind="observation",
    statement=(
        "Observed while a transformer is trained to learn linear functions in context: some head comes to rest on a "
        "smaller share of the keys that it sees, and its largest weights grow. With labels of other functions it does "
        "not."
    ),
    hypotheses=(
        "training with Adam, no theorem for this model",
        "in the quick preset on eight of ten fresh seeds, each a single training",
        "the norm of KᵀQ is shown and not judged: it grows with useless labels, too",
    ),
    reference="tarzanagh2023",
    measure=measure,
    controls={"labels-of-other-functions": "The same training on labels that each come from a function of their own."},
    quick=Config(),
    full=Config(
        dim=3, points=7, width=32, layers=3, steps=4000, rate=2e-3, reading="sequence", looks=12, share=0.6, weight=0.25
    ),
)
