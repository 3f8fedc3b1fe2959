"""During training, attention gets sparser and its weights larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.incontext_floats import floats
from measureformer.atlas.helpers.incontext_learner import Learner, learned
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.incontext import Trained


@dataclass(frozen=True)
class Config(Learner):
    share: float = 0.55
    """Largest share of keys, last over first; a model that learns nothing from its keys gets sparser too, but less."""
    weight: float = 0.3
    """Smallest growth of the largest weight."""


def _checks(found: Trained, config: Config) -> tuple[Check, ...]:
    first, last = ({name: values[i] for name, values in found.records.items()} for i in (0, -1))
    sparser = (last["sparsity"] / first["sparsity"]).min()
    larger = (last["norm"] / first["norm"]).mean()
    return (
        Check(
            "share of keys that attention rests on, last over first, sparsest head", float(sparser), high=config.share
        ),
        Check("norm of KᵀQ, last over first, mean over heads", float(larger), low=1.05),
        Check(
            "largest weight, last minus first, sparsest head",
            float((last["largest"] - first["largest"]).max()),
            low=config.weight,
        ),
    )


def _run(key: Any, config: Config) -> Outcome:
    found = learned(key, config.plain())
    steps = floats(found.records["step"])
    heads = [(layer, head) for layer in range(config.layers) for head in range(config.heads)]
    name = lambda layer, head: f"layer {layer + 1}" + (f", head {head + 1}" if config.heads > 1 else "")  # noqa: E731
    norms = found.records["norm"] / found.records["norm"][0]
    figure = Figure(
        "Attention during training",
        "steps",
        "share of keys (lines), norm of KᵀQ over its first (points)",
        (
            *(Series(name(*h), steps, floats(found.records["sparsity"][(slice(None), *h)])) for h in heads),
            *(Series(f"{name(*h)}: norm", steps, floats(norms[(slice(None), *h)]), "points") for h in heads),
        ),
        caption=(
            "Shares are medians of 1/Σp² over the number of keys that a query sees, over queries that feed an answer: "
            "in the last layer questions only."
        ),
    )
    return Outcome(_checks(found, config), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(learned(key, config.plain(), blend=1.0), config))


claim = Claim(
    name="tarzanagh-2023-sparser",
    title="Trained attention gets sparser and its weights larger",
    statement=(
        "While a transformer is trained to learn linear functions in context, some head comes to rest on a smaller "
        "share of the keys that it sees, and the norm of KᵀQ grows. (A weight s of 1 needs an infinite norm: "
        "s = 1/(1 + Σ e^{−gaps}).)"
    ),
    hypotheses=("an observation in training with Adam, no theorem for this model",),
    reference="tarzanagh2023",
    run=_run,
    control=_control,
    control_statement="The same training on labels that each come from a function of their own.",
    quick=Config(),
    full=Config(
        dim=3, points=7, width=32, layers=3, steps=4000, rate=2e-3, reading="sequence", looks=12, share=0.6, weight=0.25
    ),
)
