"""On real text the local constant of attention grows more slowly with the context than in the worst case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series


@dataclass(frozen=True)
class Config:
    tokens: int = 128
    layer: int = 0
    windows: int = 3


@cache
def _real(config: Config) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Numbers of tokens of the pieces of the text, and the local constants of attention on them."""
    from measureformer.lens.sweep import sweep

    reader = model("minilm")
    found = sweep(reader, real_text(reader, config.tokens), layers=[config.layer], windows=config.windows)
    return found.lengths, found.constants[config.layer]


@cache
def _worst(config: Config) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The head on which one token against all others does most, at the radius of the real tokens."""
    from measureformer.lens.columns import one_head
    from measureformer.lens.sweep import constant_at, lengths_up_to
    from measureformer.measures import Discrete
    from measureformer.numerics.buckets import bucket
    from measureformer.regularity import two_clusters

    reader = model("minilm")
    heads = reader.layers.block(config.layer).heads
    points = np.asarray(reader.embed(real_text(reader, config.tokens)).points, np.float64)
    radius = float(np.sqrt((points**2).sum(axis=1).mean()))
    lengths = lengths_up_to(config.tokens)
    rows: list[tuple[float, ...]] = []
    for h, A in enumerate(np.asarray(heads.A, np.float64)):
        clouds = [two_clusters(A, n, radius).astype(np.float32) for n in lengths]
        padded = [Discrete.uniform(cloud).padded(bucket(config.tokens)) for cloud in clouds]
        rows.append(tuple(constant_at(one_head(heads, h), mu) for mu in padded))
    return tuple(lengths), max(rows, key=lambda row: row[-1])


def measure(key: Key, config: Config, variant: str) -> Outcome:
    from measureformer.lens.sweep import fit_exponent

    fit = fit_exponent(*(_real(config) if variant == "claim" else _worst(config)))
    checks = (
        Check(
            "exponent of n",
            fit.exponent,
            high=0.45,
            error=fit.high - fit.exponent,
            rejected_by="one-against-the-others",
        ),
    )
    if variant != "claim":
        return Outcome(checks)
    (n, real), (m, worst) = _real(config), _worst(config)
    ends = np.array([min(n), max(n)])
    figure = Figure(
        "How attention changes as the context grows",
        "tokens in the context n",
        "local constant",
        (
            Series("pieces of real text", n, real, "points", role="measured"),
            Series("one token against the others", m, worst, "points", role="control"),
            Series(f"n^{fit.exponent:.2f}", ends, fit.factor * ends**fit.exponent, "dashed", role="theory"),
            Series("√n", ends, worst[-1] * (ends / ends[1]) ** 0.5, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"all-MiniLM-L6-v2, layer {config.layer + 1}; 95 % interval [{fit.low:.2f}, {fit.high:.2f}].",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="castin-2024-growth-on-real-text",
    title="Real text is far from the worst case",
    kind="observation",
    statement=(
        "Observed for the attention of a layer of all-MiniLM-L6-v2 and pieces of a real text of 8 to n tokens: the "
        "exponent of the local Lipschitz constant in the number of tokens is below 0.45, and so is the upper end of "
        "its 95 % interval; the worst case has 1/2."
    ),
    hypotheses=("the exponent is fitted on a log-log scale",),
    reference="castin2024",
    measure=measure,
    controls={
        "one-against-the-others": "One token against n − 1 others on an eigenvector of A, for the head on which that "
        "does most."
    },
    quick=Config(),
    full=Config(tokens=512, windows=8),
    needs=needs("minilm"),
)
