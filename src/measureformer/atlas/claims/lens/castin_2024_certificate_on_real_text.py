"""On a trained encoder the certified bound is above the local constant, in every layer and head that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series


@dataclass(frozen=True)
class Config:
    tokens: int = 32
    every: int = 3
    """Every how many layers one is looked at."""


def _brackets(config: Config, shrunk: float) -> list[tuple[float, float, float]]:
    """Place on the axis of layers, local constant, certificate of the cloud times `shrunk`; attention and heads."""
    from measureformer.lens.columns import one_head
    from measureformer.regularity import local_lipschitz

    reader = model("minilm")
    found: list[tuple[float, float, float]] = []
    for step in reader.steps(real_text(reader, config.tokens)):
        if step.index % config.every:
            continue
        seen, heads = step.seen, step.block.heads
        for h, G in enumerate((heads, *(one_head(heads, h) for h in range(reader.anatomy.heads)))):
            constant = local_lipschitz(G, seen, tol=1e-3)
            bound = constant if shrunk == 1 else local_lipschitz(G, seen.with_points(shrunk * seen.points), tol=0.1)
            # heads of a layer stand side by side, attention as a whole before them
            found.append((step.index + 0.7 + 0.6 * h / reader.anatomy.heads, constant.lower, bound.upper))
    return found


def _outcome(found: list[tuple[float, float, float]], figure: Figure | None = None) -> Outcome:
    worst = min(upper / lower for _, lower, upper in found)
    return Outcome((Check("certified bound over local constant, least", worst, low=1.0),), figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _brackets(config, 1.0)
    layers = tuple(layer for layer, _, _ in found)
    figure = Figure(
        "Attention and heads of MiniLM on real text",
        "layer",
        "local constant",
        (
            Series("attained", layers, tuple(lower for _, lower, _ in found), "points"),
            Series("certified", layers, tuple(upper for _, _, upper in found), "points"),
        ),
        yscale="log",
        caption=f"{config.tokens} tokens; in each layer the attention as a whole, and then its twelve heads.",
    )
    return _outcome(found, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_brackets(config, 0.1))


claim = Claim(
    name="castin-2024-certificate-on-real-text",
    title="The certificate holds on a trained encoder",
    statement=(
        "For the attention of the layers of all-MiniLM-L6-v2, and for each of their heads, on the tokens of a real "
        "text: the local Lipschitz constant in L² of the tokens is at most the certified bound."
    ),
    hypotheses=("float32 weights, with the rounding of the engine counted",),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="The certificate of the same cloud, shrunk to a tenth.",
    quick=Config(),
    full=Config(tokens=128, every=1),
    needs=needs("minilm"),
)
