"""On a trained encoder the certified bound is above the local constant, in every layer and head that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series


@dataclass(frozen=True)
class Config:
    tokens: int = 32
    every: int = 3
    """Every how many layers one is looked at."""


@cache
def _brackets(config: Config, factor: float, tol: float) -> np.ndarray:
    """Place on the axis of layers, local constant and certificate for the cloud times `factor`; attention and heads."""
    from measureformer.lens.columns import one_head
    from measureformer.regularity import local_lipschitz

    reader = model("minilm")
    found: list[tuple[float, float, float]] = []
    for step in reader.steps(real_text(reader, config.tokens)):
        if step.index % config.every:
            continue
        seen, heads = step.seen.with_points(factor * step.seen.points), step.block.heads
        for h, G in enumerate((heads, *(one_head(heads, h) for h in range(reader.anatomy.heads)))):
            constant = local_lipschitz(G, seen, tol=tol)
            # heads of a layer stand side by side, attention as a whole before them
            found.append((step.index + 0.7 + 0.6 * h / reader.anatomy.heads, constant.lower, constant.upper))
    return np.array(found).T


def measure(key: Key, config: Config, variant: str) -> Outcome:
    layers, lower, upper = _brackets(config, 1.0, 1e-3)
    if variant == "shrunk-cloud":
        upper = _brackets(config, 0.1, 0.1)[2]
    least = (upper / lower).min()
    checks = (Check("certified bound over local constant, least", least, low=1.0, rejected_by="shrunk-cloud"),)
    figure = Figure(
        "Attention and heads of MiniLM on real text",
        "layer",
        "local constant",
        (
            Series("attained", layers, lower, "points", role="measured"),
            Series("certified", layers, upper, "points", role="theory"),
        ),
        yscale="log",
        caption=f"{config.tokens} tokens; in each layer the attention as a whole, and then its twelve heads.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="castin-2024-certificate-on-real-text",
    title="The certificate holds on a trained encoder",
    kind="theorem",
    statement=(
        "For the attention of the layers of all-MiniLM-L6-v2, and for each of their heads, on the tokens of a real "
        "text: the local Lipschitz constant in L² of the tokens is at most the certified bound."
    ),
    hypotheses=("float32 weights, with the rounding of the engine counted",),
    reference="castin2024",
    measure=measure,
    controls={"shrunk-cloud": "The certificate of the same cloud, shrunk to a tenth."},
    quick=Config(),
    full=Config(tokens=128, every=1),
    needs=needs("minilm"),
)
